"""The summary of a GPU check, its verdicts and its machine, as JSON and as Markdown."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.gpu_check.parts import BROKEN, PASSED, Result
from workbench.core.units import format_bytes
from workbench.experiment.environment import device_name, environment_tags, load_average
from workbench.files import write_file
from workbench.paths import project_root

_LIBRARIES = ("torch", "triton", "numba", "numpy", "pandas", "pydantic", "scipy", "pymetis", "mtkahypar")


def environment(device: str) -> dict[str, Any]:
    """The machine, its GPU, and versions of libraries.

    Args:
        device: that the check ran on.
    """
    about: dict[str, Any] = {**environment_tags(project_root()), "device": device_name(device), "load": load_average()}
    about |= {f"version.{name}": found for name in _LIBRARIES if (found := _version(name))}
    if device.startswith("cuda"):
        gpu = torch.cuda.get_device_properties(device)
        about |= {
            "gpu_bytes": gpu.total_memory,
            "cuda": torch.version.cuda,
            "multiprocessors": gpu.multi_processor_count,
        }
    return about


def write_summary(folder: Path, device: str, results: Sequence[Result]) -> None:
    """Write `summary.json` and `summary.md`; after every part, so that a check that is killed leaves one.

    Args:
        folder: of the check.
        device: that it ran on.
        results: of the parts so far.
    """
    about = environment(device)
    passed = all(result.status == PASSED for result in results)
    whole = {"passed": passed, "environment": about, "parts": [result.as_dict() for result in results]}
    write_file(folder / "summary.json", json.dumps(whole, indent=1))
    write_file(folder / "summary.md", "\n".join(_markdown(about, results)))


def _markdown(about: dict[str, Any], results: Sequence[Result]) -> list[str]:
    memory = f", {format_bytes(about['gpu_bytes'])}" if "gpu_bytes" in about else ""
    lines = [
        "# GPU check",
        "",
        f"{about['device']}{memory}; commit {about['commit'][:12]}, torch {_version('torch')}.",
        "",
    ]
    lines += ["| part | result | | seconds | budget |", "|---|---|---|--:|--:|"]
    lines += [f"| {r.name} | {r.status} | {r.note} | {r.seconds:.0f} | {r.budget_seconds:.0f} |" for r in results]
    for result in results:
        if result.findings or result.errors:
            lines += ["", f"## {result.name}", "", *map(_line, result.findings)]
            lines += [f"- error: {error}" for error in result.errors]
    return [*lines, ""]


def _line(finding: Any) -> str:
    mark = "held" if finding["held"] else "did not hold"
    weight = "" if finding["counts"] else ", without verdict"
    return f"- {finding['figure']}: {finding['statement']} — {mark}{weight}: {finding['evidence']}"


def exit_status(results: Sequence[Result]) -> int:
    """0 unless a part failed; a part that ran out of time has not failed."""
    return int(any(result.status == BROKEN for result in results))


def headline(results: Sequence[Result]) -> str:
    """One line."""
    counts = {status: sum(r.status == status for r in results) for status in dict.fromkeys(r.status for r in results)}
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or f"0 {PASSED}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

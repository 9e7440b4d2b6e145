"""The summary of a GPU check as JSON and Markdown: a page of answers and tables, and a file of all findings."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.gpu_check.parts import BROKEN, CHECKS, OUT_OF_TIME, PASSED, Result, left_out
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
    """Write `summary.json`, `summary.md` and `findings.md`, after every part: a check that is killed leaves them.

    Args:
        folder: of the check.
        device: that it ran on.
        results: of the parts so far.
    """
    about = environment(device)
    passed = all(result.status == PASSED for result in results)
    whole = {"passed": passed, "environment": about, "parts": [result.as_dict() for result in results]}
    write_file(folder / "summary.json", json.dumps(whole, indent=1))
    write_file(folder / "summary.md", "\n".join(_page(about, results)))
    write_file(folder / "findings.md", "\n".join(_findings(results)))


def _page(about: dict[str, Any], results: Sequence[Result]) -> list[str]:
    memory = f", {format_bytes(about['gpu_bytes'])}" if "gpu_bytes" in about else ""
    again = " Run it again to continue." if any(result.status == OUT_OF_TIME for result in results) else ""
    missing = f" Left out, for want of METIS: {', '.join(left_out())}." if left_out() else ""
    checks = [result for result in results if result.name in CHECKS]
    lines = [
        "# GPU check",
        "",
        f"{about['device']}{memory}; commit {about['commit'][:12]}, torch {_version('torch')}; load {about['load']}.",
        f"{headline(results)}.{again}{missing} All findings: findings.md.",
        "",
    ]
    if answers := [_answer(finding) for result in checks for finding in result.findings]:
        lines += ["| question | answer | evidence |", "|---|---|---|", *answers, ""]
    for result in checks:
        if result.rows:
            lines += [f"{result.name}:", "", *_table(result.rows), ""]
    lines += ["| part | result | | findings that held | seconds | budget |", "|---|---|---|---|--:|--:|"]
    lines += [_part(result) for result in results]
    errors = [f"- {result.name}: {error}" for result in results for error in result.errors]
    return [*lines, *([""] if errors else []), *errors, ""]


def _answer(finding: Any) -> str:
    return f"| {finding['statement']} | {_verdict(finding)} | {finding['evidence']} |"


def _part(result: Result) -> str:
    held = f"{sum(f['held'] for f in result.findings)} of {len(result.findings)}" if result.findings else ""
    cells = (result.name, result.status, result.note, held, f"{result.seconds:.0f}", f"{result.budget_seconds:.0f}")
    return f"| {' | '.join(cells)} |"


def _table(rows: Sequence[Any]) -> list[str]:
    names = [name for name in rows[0] if name != "index"]
    cells = [f"| {' | '.join(_cell(name, row[name]) for name in names)} |" for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *cells]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes"):
        return format_bytes(int(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _findings(results: Sequence[Result]) -> list[str]:
    lines = ["# Findings of the GPU check", ""]
    for result in results:
        if result.findings or result.errors:
            lines += [f"## {result.name}", "", *map(_line, result.findings)]
            lines += [*(f"- error: {error}" for error in result.errors), ""]
    return lines


def _verdict(finding: Any) -> str:
    return ("yes" if finding["held"] else "no") + ("" if finding["counts"] else ", without verdict")


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

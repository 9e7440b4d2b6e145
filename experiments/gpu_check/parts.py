"""The parts of the GPU check: their programs, and the verdicts on their results."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from workbench.experiment.environment import device_name
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.grid import GridRuns, parse_overrides, runs_of_grid
from workbench.experiment.table import table_of
from workbench.files import write_file
from workbench.paths import project_root
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import FAILED, FINISHED, Run

PASSED, BROKEN, OUT_OF_TIME = "passed", "failed", "out of time"
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-o", "minversion=7")
"""Of any recent version, and with any version of torch, whose warnings may be new."""
_WORKERS = ("--numprocesses", "8", "--dist", "worksteal")
"""Of pytest-xdist where it is installed: compiling the kernels of the CPU takes minutes in one process."""
SIZES = {"cpu": "smoke", "cuda": "paper"}
_LOAD = "import workbench as wb; print(wb.load_dataset('synthetic-products', scale={scale}))"
_SCALES = {"cpu": 0.004, "cuda": 1.0}
CHECKS = ("gpu_check/parity", "gpu_check/memory", "gpu_check/throughput", "gpu_check/training")
"""Measurements of the check itself, whose tables are in the summary."""

METIS = "METIS"
"""Of a figure that has no other partitioner (`left_out`)."""

_PAPER: tuple[tuple[str, float, tuple[str, ...], str], ...] = (
    ("betty/fig2", 2.5, (), "random"),
    ("betty/table6", 2.0, ("num_parts=[1,8,64]",), "[random]"),
    ("betty/fig11", 3.0, ("num_parts=[1,8,64]",), "[range,random]"),
    ("betty/table7", 1.0, (), "random"),
    ("betty/table2", 1.0, (), "random"),
    ("betty/fig3", 1.0, (), ""),
    ("betty/fig4", 1.0, (), METIS),
    ("data_placement/las_training", 1.0, ("topology=[2 GPUs]",), ""),
    ("data_placement/speedup", 1.0, ("dataset={name: synthetic-reddit}",), METIS),
    ("cooperative/fig9", 1.0, (), ""),
    ("batchgnn/fig4", 1.0, ("dataset={name: ogbn-products, otherwise: {name: synthetic-products, scale: 1.0}}",), ""),
    ("mariusgnn/node_classification", 1.0, (), ""),
    ("mariusgnn/link_at_scale", 1.0, (), ""),
    ("cooperative/table4", 1.0, (), ""),
)
"""Figures whose data are generated, in order of value: name, weight, settings on a GPU, partitioners without METIS.

First what a GPU's allocator and clock alone can tell (peaks and times of micro-batches, on a graph that the check has
built already), then accuracies, then what has to build a larger graph.
"""


@dataclass(frozen=True)
class Part:
    """One part of the check, a program.

    Args:
        name: shown in the summary; of a figure, "paper/figure".
        weight: share of the time that is left to it, relative to the parts after it.
        command: of the program.
        overrides: `key=value` texts that choose a part of the figure's grid; empty for other parts.
        is_figure: the program runs a figure's sweep, and its runs are judged, not its exit status.
        size: of the figure.
    """

    name: str
    weight: float
    command: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    is_figure: bool = False
    size: str = ""


@dataclass(frozen=True)
class Result:
    """How a part ended.

    Args:
        name: of the part.
        status: "passed", "failed" or "out of time".
        seconds: that it took.
        budget_seconds: that it had.
        note: its numbers in one line.
        findings: of its figures: figure, statement, verdict, evidence.
        errors: of points that failed.
        rows: of the comparison of a measurement of the check itself.
    """

    name: str
    status: str
    seconds: float
    budget_seconds: float
    note: str = ""
    findings: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def parts(device: str, store: Path, *, small: bool = False) -> list[Part]:
    """All parts in order.

    Args:
        device: "cpu", "cuda" or "cuda:1".
        store: file of the runs.
        small: take the sizes of a CPU on any device.
    """
    kind = "cpu" if small else device.partition(":")[0]
    load = (sys.executable, "-c", _LOAD.format(scale=_SCALES[kind]))
    figures = [
        (name, weight, (*(thin if kind == "cuda" else ()), *_without_metis(methods)))
        for name, weight, thin, methods in _PAPER
        if name not in left_out()
    ]
    return [
        Part("data set", 4.0, load),
        Part("tests", 6.0, (*_PYTEST, *(_WORKERS if kind == "cuda" and find_spec("xdist") else ()), *cuda_tests())),
        *(
            _figure(name, 2.5, _without_metis("random" if name == CHECKS[-1] else ""), device, SIZES[kind], store)
            for name in CHECKS
        ),
        *(_figure(name, weight, overrides, device, SIZES[kind], store) for name, weight, overrides in figures),
    ]


def left_out() -> list[str]:
    """Figures that have no partitioner but METIS, where it is not installed."""
    return [] if find_spec("pymetis") else [name for name, _, _, methods in _PAPER if methods == METIS]


def cuda_tests() -> list[str]:
    """Files with tests of a GPU; others may import what a bare machine lacks."""
    files = sorted((project_root() / "tests").rglob("test_*.py"))
    marks = ("pytest.mark.cuda", "tests.devices import CUDA")
    return [str(file) for file in files if any(mark in file.read_text(encoding="utf-8") for mark in marks)]


def _without_metis(methods: str) -> tuple[str, ...]:
    """Replaces partitioners that need METIS where it is not installed."""
    return (f"method={methods}",) if methods and not find_spec("pymetis") else ()


def _figure(name: str, weight: float, overrides: Sequence[str], device: str, size: str, store: Path) -> Part:
    command = [sys.executable, "-m", "workbench.cli", "run", name, "--size", size, "--device", device]
    command += ["--store", str(store), *(word for text in overrides for word in ("--set", text))]
    return Part(name, weight, tuple(command), tuple(overrides), is_figure=True, size=size)


@dataclass(frozen=True)
class Ended:
    """How a part's program ended.

    Args:
        status: exit status; None if it ran out of time.
        seconds: that it took.
        budget_seconds: that it had.
        last_line: of its output.
    """

    status: int | None
    seconds: float
    budget_seconds: float
    last_line: str = ""


NOT_RUN = Ended(None, 0.0, 0.0)


def passed_before(part: Part, device: str, store: Path) -> Result | None:
    """The result of a part that an earlier check with the same folder, code and device has finished; None if none has.

    Args:
        part: the part.
        device: that it ran on.
        store: file of the runs.
    """
    if part.is_figure:
        result = judge(part, device, store, NOT_RUN) if store.exists() else None
        return result if result is not None and result.status == PASSED else None
    kept = _passed(store).get(part.name, {})
    return Result(**kept["result"]) if kept.get("state") == _state(part, device) else None


def keep_passed(part: Part, result: Result, device: str, store: Path) -> None:
    """Let later checks find the result of a program that passed; a figure's points are in the store anyway.

    Args:
        part: the part.
        result: of it.
        device: that it ran on.
        store: file of the runs.
    """
    if not part.is_figure and result.status == PASSED:
        kept = {"state": _state(part, device), "result": result.as_dict()}
        write_file(_passed_file(store), json.dumps(_passed(store) | {part.name: kept}, indent=1))


def _passed(store: Path) -> dict[str, Any]:
    file = _passed_file(store)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _passed_file(store: Path) -> Path:
    return store.with_name("passed.json")


def _state(part: Part, device: str) -> str:
    """Of what decides whether a program passes: its command, the device, torch, sources and grids."""
    found = sha256("\0".join([*part.command, device_name(device), version("torch")]).encode())
    for folder, kind in product(("workbench", "experiments", "tests"), ("*.py", "*.yaml")):
        for file in sorted((project_root() / folder).rglob(kind)):
            found.update(str(file.relative_to(project_root())).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def judge(part: Part, device: str, store: Path, ended: Ended) -> Result:
    """The result of a part.

    Args:
        part: the part.
        device: that it ran on.
        store: file of the runs.
        ended: its program.
    """
    if part.is_figure:
        return _judge_figure(part, device, store, ended)
    verdict = OUT_OF_TIME if ended.status is None else PASSED if ended.status == 0 else BROKEN
    return Result(part.name, verdict, ended.seconds, ended.budget_seconds, ended.last_line)


def _judge_figure(part: Part, device: str, store: Path, ended: Ended) -> Result:
    sweep, size = load_experiment(part.name), part.size
    found = _runs(sweep, size, device, part.overrides, store)
    finished = [run for run in found.runs if run.status == FINISHED]
    errors = tuple(dict.fromkeys(run.error or "" for run in found.runs if run.status == FAILED))
    complete = len(finished) == found.points
    decides = complete and part.name in CHECKS
    findings = [] if not finished else _findings(sweep, size, finished, decides)
    wrong = any(finding["counts"] and not finding["held"] for finding in findings)
    broken = errors or wrong or not (complete or ended.status is None)
    verdict = BROKEN if broken else PASSED if complete else OUT_OF_TIME
    note = f"{len(finished)} of {found.points} points" + "".join(f", {text}" for text in part.overrides)
    rows = _comparison(sweep, finished) if part.name in CHECKS and finished else ()
    return Result(part.name, verdict, ended.seconds, ended.budget_seconds, note, tuple(findings), errors, rows)


def _comparison(sweep: Experiment, finished: list[Run]) -> tuple[dict[str, Any], ...]:
    table: Any = sweep.compare(table_of(finished)).reset_index()
    return tuple(json.loads(table.to_json(orient="records")))


def _runs(sweep: Experiment, size: str, device: str, overrides: Sequence[str], store: Path) -> GridRuns:
    """The last run of each point that the present code made."""
    grid = sweep.configs(size=size, device=device, overrides=parse_overrides([*overrides]))
    made: list[Run] = FileStore(store).runs(sweep.name, size=size, statuses=(FINISHED, FAILED))
    code = sweep.code().digest
    return runs_of_grid([run for run in made if run.point.tags.get("code") == code], grid)


def _findings(sweep: Experiment, size: str, finished: list[Run], decides: bool) -> list[dict[str, Any]]:
    """Findings of all views of a sweep. Those of a paper's figure are results and no faults, so they decide nothing."""
    found, table = [], table_of(finished)
    for name in sweep.views:
        figure = load_experiment(name)
        try:
            findings = figure.check(table)
        except (ValueError, KeyError, AttributeError) as error:  # rows that it compares are missing
            findings = [Finding("rows", "the rows suffice for a check", False, str(error), timed=True)]
        known = figure.deviations(size)
        for finding in findings:
            counts = decides and not finding.timed and finding.name not in known
            found.append({**asdict(finding), "figure": name, "counts": counts, "known": known.get(finding.name, "")})
    return found

"""The parts of the GPU check: their programs, and the verdicts on their results."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.finding import Finding
from workbench.experiment.grid import GridRuns, parse_overrides, runs_of_grid
from workbench.experiment.table import table_of
from workbench.paths import project_root
from workbench.tracking.file_store import FileStore
from workbench.tracking.record import FAILED, FINISHED, Run

PASSED, BROKEN, OUT_OF_TIME = "passed", "failed", "out of time"
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-o", "minversion=7")
"""Of any recent version, and with any version of torch, whose warnings may be new."""
SIZES = {"cpu": "smoke", "cuda": "paper"}
_LOAD = "import workbench as wb; print(wb.load_dataset('synthetic-products', scale={scale}))"
_SCALES = {"cpu": 0.004, "cuda": 1.0}


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
    """

    name: str
    status: str
    seconds: float
    budget_seconds: float
    note: str = ""
    findings: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[str, ...] = ()

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
    thin = ("num_parts=[1,8,64]",) if kind == "cuda" else ()
    figures = [
        ("gpu_check/parity", 1.5, ()),
        ("gpu_check/memory", 1.5, ()),
        ("gpu_check/throughput", 1.0, ()),
        ("betty/fig2", 2.5, _without_metis("random")),
        ("betty/fig11", 3.5, (*thin, *_without_metis("[range,random]"))),
        ("betty/table6", 2.0, (*thin, *_without_metis("[random]"))),
    ]
    return [
        Part("data set", 4.0, load),
        Part("tests", 1.5, (*_PYTEST, *cuda_tests())),
        *(_figure(name, weight, overrides, device, SIZES[kind], store) for name, weight, overrides in figures),
    ]


def cuda_tests() -> list[str]:
    """Files with tests of a GPU; others may import what a bare machine lacks."""
    files = sorted((project_root() / "tests").rglob("test_*.py"))
    marks = ("pytest.mark.cuda", "tests.devices import CUDA")
    return [str(file) for file in files if any(mark in file.read_text(encoding="utf-8") for mark in marks)]


def _without_metis(methods: str) -> tuple[str, ...]:
    """Replaces partitioners that need METIS where it is not installed."""
    return () if find_spec("pymetis") else (f"method={methods}",)


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
    findings = [] if not finished else _findings(sweep, size, finished, complete and not part.overrides)
    wrong = any(finding["counts"] and not finding["held"] for finding in findings)
    broken = errors or wrong or not (complete or ended.status is None)
    verdict = BROKEN if broken else PASSED if complete else OUT_OF_TIME
    note = f"{len(finished)} of {found.points} points" + "".join(f", {text}" for text in part.overrides)
    return Result(part.name, verdict, ended.seconds, ended.budget_seconds, note, tuple(findings), errors)


def _runs(sweep: Experiment, size: str, device: str, overrides: Sequence[str], store: Path) -> GridRuns:
    """The last run of each point that the present code made."""
    grid = sweep.configs(size=size, device=device, overrides=parse_overrides([*overrides]))
    made: list[Run] = FileStore(store).runs(sweep.name, size=size, statuses=(FINISHED, FAILED))
    code = sweep.code().digest
    return runs_of_grid([run for run in made if run.point.tags.get("code") == code], grid)


def _findings(sweep: Experiment, size: str, finished: list[Run], is_whole: bool) -> list[dict[str, Any]]:
    """Findings of all views of a sweep; on a part of the grid, those of a paper's figure decide nothing."""
    found, table = [], table_of(finished)
    for name in sweep.views:
        figure = load_experiment(name)
        try:
            findings = figure.check(table)
        except (ValueError, KeyError, AttributeError) as error:  # rows that it compares are missing
            findings = [Finding("rows", "the rows suffice for a check", False, str(error), timed=True)]
        known = figure.deviations(size)
        for finding in findings:
            counts = is_whole and not finding.timed and finding.name not in known
            found.append({**asdict(finding), "figure": name, "counts": counts, "known": known.get(finding.name, "")})
    return found

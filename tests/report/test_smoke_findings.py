"""Smoke verdicts as files, and those of this repository against the documented deviations."""

from pathlib import Path

import pytest

from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.finding import Finding
from workbench.paths import project_root
from workbench.report.generated_docs import BENCHMARKS
from workbench.report.verdicts import read_smoke_findings, run_smoke, smoke_file, write_smoke_findings
from workbench.tracking.file_store import FileStore

HELD, LOST = Finding("a", "a, quoted", True, "1 < 2"), Finding("b", "b", False, "NA")
PAPERS = sorted(file.parent.name for file in (project_root() / "experiments" / "results").glob("*/smoke-findings.csv"))


def test_read_returns_what_was_written_without_timed_findings(toys: Path) -> None:
    timed = Finding("c", "c", True, "1 s", timed=True)
    undecided = Finding("d", "d", False, "1 ± 2", decided=False)
    write_smoke_findings("toys", {"toys/fig1": [HELD, timed, LOST, undecided], "toys/fig2": [timed]})
    assert read_smoke_findings("toys") == {"toys/fig1": [HELD, LOST, undecided], "toys/fig2": []}


def test_nothing_is_recorded(toys: Path) -> None:
    assert not smoke_file("toys").exists() and read_smoke_findings("toys") == {}


def test_running_smoke_checks_every_figure(toys: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.experiment.experiment.open_store", lambda: store)
    found = run_smoke(map(load_experiment, experiment_names()))
    assert {name: [finding.held for finding in each] for name, each in found.items()} == {
        "toys/fig1": [True],
        "toys/fig2": [True],
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_recorded_smoke_findings_that_did_not_hold_are_documented(paper: str) -> None:
    found = {load_experiment(name): findings for name, findings in read_smoke_findings(paper).items()}
    missed = {(one.name, f.name) for one, findings in found.items() for f in findings if f.counts and not f.held}
    known = {(one.name, name) for one in found for name in one.deviations("smoke")}
    assert missed <= known, "run `make figures`, or document these deviations"


def test_every_paper_has_recorded_smoke_findings_of_all_its_figures() -> None:
    reproduced = [name for name in experiment_names() if not name.startswith(BENCHMARKS)]
    recorded = [name for paper in PAPERS for name in read_smoke_findings(paper)]
    assert recorded == reproduced, "run `make figures`"

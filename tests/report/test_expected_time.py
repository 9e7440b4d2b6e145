"""Expected times of sweeps: from recorded tables and the recorded seconds of smoke runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from workbench.experiment.figure_loader import experiment_names, load_experiment
from workbench.experiment.recorded import record
from workbench.report.expected_time import (
    about,
    announcement,
    expected_seconds,
    smoke_seconds,
    write_smoke_seconds,
)
from workbench.report.notebook import point_text
from workbench.tracking.file_store import FileStore


def test_nothing_is_known_before_anything_is_recorded(toys: Path) -> None:
    figure = load_experiment("toys/fig2")
    assert expected_seconds(figure, "smoke") is None and expected_seconds(figure, "paper") is None
    assert announcement([(figure, 3, 3)], "smoke") == ""


def test_recorded_seconds_are_rounded_up(toys: Path) -> None:
    write_smoke_seconds("toys", {"toys/fig1": 31.5})
    figure = load_experiment("toys/fig2")
    assert expected_seconds(figure, "smoke") == 60
    assert announcement([(figure, 2, 3)], "smoke") == "toys/fig1 at smoke: 2 points to run, about 1 min on two cores"
    assert announcement([(figure, 0, 3)], "smoke") == ""
    assert announcement([(figure, 3, 3), (figure, 1, 3)], "smoke") == (
        "2 sweeps at smoke: 4 points to run, about 2 min on two cores"
    )


def test_one_unknown_sweep_makes_the_time_unknown(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = iter([30.0, None])
    monkeypatch.setattr("workbench.report.expected_time.expected_seconds", lambda *_: next(known))
    figure = load_experiment("toys/fig2")
    assert announcement([(figure, 1, 1), (figure, 1, 1)], "smoke") == ""


def test_a_recorded_table_tells_the_time_of_its_size(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    runs = figure.runs(size="smoke", store=store)
    record(runs)
    assert expected_seconds(figure, "smoke") == pytest.approx(sum(run.seconds or 0.0 for run in runs), rel=1e-3)
    assert expected_seconds(figure, "real") is None


def test_points_of_equal_seconds_count_each(toys: Path, store: FileStore) -> None:
    figure = load_experiment("toys/fig1")
    record([replace(run, seconds=2.5) for run in figure.runs(size="smoke", store=store)])
    assert expected_seconds(figure, "smoke") == 7.5
    assert "As recorded: 3 points of size smoke in 8 s on " in point_text(figure)


def test_smoke_seconds_are_those_of_sweeps(toys: Path, store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.experiment.experiment.open_store", lambda: store)
    found = smoke_seconds(map(load_experiment, experiment_names()))
    assert list(found) == ["toys/fig1"] and found["toys/fig1"] > 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "5 s"), (5.1, "10 s"), (3600, "1 h"), (3601, "2 h"), (9000, "3 h")]
)
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    assert about(seconds) == f"about {text} on two cores"


def test_the_seconds_of_every_sweep_are_known() -> None:
    """Of one that is not, `make reproduce` could not say what it takes."""
    assert [name for name in experiment_names() if expected_seconds(load_experiment(name), "smoke") is None] == []

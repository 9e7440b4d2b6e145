"""The advice against what was measured: claims that can be lost, and the rows of a small run."""

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.beyond import advisor
from workbench.experiment.figure_loader import load_experiment

CONFIGURATIONS = {"plain": 1.0, "LABOR": 0.8, "disk, static cache": 1.5, "disk, packed rows": 3.0}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = [
        {
            "dataset": dataset,
            "model": "gcn",
            "budget": budget,
            "place": place,
            "configuration": name,
            "fits": 1,
            "changes": int(name == "LABOR"),
            "predicted_peak_bytes": 1000,
            "peak_bytes": 1010,
            "predicted_moved_bytes": 500.0,
            "moved_bytes": 490.0,
            "predicted_seconds": seconds,
            "seconds": 1.1 * seconds,
            "seconds_low": 1.09 * seconds,
            "seconds_high": 1.12 * seconds,
            "stated_error": 0.1,
        }
        for dataset in "ab"
        for budget in ("enough", "host")
        for place, (name, seconds) in enumerate(sorted(CONFIGURATIONS.items(), key=lambda item: item[1]))
    ]
    return pd.DataFrame(rows)


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in advisor.check(rows, pd.DataFrame()) if not finding.held}


def test_every_claim_holds_on_a_table_made_for_it():
    assert lost(table()) == set()


@pytest.mark.parametrize(
    ("column", "factor", "name", "names"),
    [
        ("peak_bytes", 1.1, "plain", {"peak"}),
        ("peak_bytes", 0.9, "plain", {"peak"}),
        ("moved_bytes", 1.2, "LABOR", {"moved"}),
        ("seconds", 1.5, None, {"seconds"}),
        ("seconds", 1.5, "LABOR", {"order", "order-apart", "advised"}),
        ("seconds", 0.1, "disk, packed rows", {"order", "order-apart", "advised"}),
        ("seconds", float("nan"), "plain", {"seconds", "order", "order-apart"}),
    ],
)
def test_a_claim_is_lost(column: str, factor: float, name: str | None, names: set[str]):
    rows = table()
    spoiled = (rows.configuration == name) & (rows.dataset == "a") if name else rows.dataset.notna()
    for each in [name for name in rows if name.startswith(column)]:
        rows[each] = rows[each].astype(float).where(~spoiled, rows[each] * factor)
    assert lost(rows) == names


@pytest.mark.parametrize(("wide", "names"), [(0.0, {"order", "order-apart"}), (0.2, {"order"})])
def test_programs_that_epochs_do_not_tell_apart_have_no_order(wide: float, names: set[str]):
    rows = table()
    rows["seconds"] = rows.configuration.replace({"plain": "LABOR", "LABOR": "plain"}).map(CONFIGURATIONS)
    rows["seconds_low"], rows["seconds_high"] = rows.seconds * (1 - wide), rows.seconds * (1 + wide)
    assert lost(rows) & {"order", "order-apart"} == names


def test_a_program_that_does_not_fit_is_not_among_those_advised():
    rows = table()
    rows.loc[rows.configuration == "disk, packed rows", ["fits", "seconds"]] = [0, 0.1]
    assert "advised" not in lost(rows)


def test_the_figure_and_the_comparison():
    experiment = load_experiment("beyond/advisor")
    figure, compared = experiment.draw(table()), experiment.compare(table())
    assert figure.layout.title.text.replace("<br>", " ").startswith("Median error of predicted seconds 10%")
    assert len(compared) == 4
    assert compared.tau.tolist() == pytest.approx([1.0] * 4)


@pytest.mark.slow
def test_a_small_run_measures_what_was_predicted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    values: dict[str, Any] = {
        "dataset": {"name": "synthetic-arxiv", "scale": 0.01, "undirected": True},
        "seed": 0,
        "model": "gcn",
        "hidden_dim": 8,
        "fanouts": (4, 4),
        "batch_size": 300,
        "num_batches": 4,
        "epochs": 1,
    }
    rows = pd.DataFrame(advisor.run(advisor.Config(**values)))
    assert {"enough", "device", "host"} == set(rows.budget)
    assert rows.configuration.str.contains("micro-batches").any()
    assert rows.configuration.str.contains("disk").any()
    assert (rows.peak_bytes / rows.predicted_peak_bytes).between(0.95, 1.05).all()
    assert (rows.moved_bytes / rows.predicted_moved_bytes).between(0.8, 1.2).all()  # of four batches
    assert (rows.seconds > 0).all()
    assert tempfile.tempdir == str(tmp_path) and not [*tmp_path.glob("tmp*")]  # nothing of the programs is left

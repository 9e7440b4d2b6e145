"""Epochs that are read ahead: claims that can be lost, and the rows of a small run."""

import pandas as pd
import pytest

from experiments.performance import read_ahead
from experiments.performance.read_ahead import AHEAD, MEMORY, PACKED, READING, TRAINING
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

SECONDS = {MEMORY: 3.0, TRAINING: 2.0, READING: 3.0, AHEAD: 3.3, PACKED: 6.0}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    return pd.DataFrame(
        {
            "dataset": "a",
            "num_partitions": 8,
            "capacity": 2,
            "epoch": epoch,
            "epoch_seconds": seconds,
            "over_memory": seconds / 3,
            "over_longer": seconds / 3,
            "same_losses": None if epoch == READING else 1.0,
            "read_bytes": 9,
        }
        for epoch, seconds in SECONDS.items()
    )


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("performance/read_ahead", rows) if not finding.held}


@pytest.mark.parametrize(
    ("epoch", "column", "value", "names"),
    [
        (AHEAD, "over_memory", 1.1, set()),
        (AHEAD, "over_memory", 1.6, {"near-memory"}),
        (AHEAD, "over_longer", 1.2, {"overlapped"}),
        (PACKED, "same_losses", 0.99, {"same-losses"}),
        (AHEAD, "same_losses", 0.99, {"same-losses"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(epoch: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table()
    spoiled.loc[spoiled.epoch == epoch, column] = value
    assert lost(spoiled) == names


def test_the_figure_and_the_comparison() -> None:
    experiment = load_experiment("performance/read_ahead")
    assert experiment.draw(table()).layout.title.text.replace("<br>", " ").startswith("Read ahead, an epoch takes 1.10")
    assert experiment.compare(table()).epoch.tolist() == list(SECONDS)


def test_rows_of_a_small_run() -> None:
    config = read_ahead.Config(
        dataset={"name": "synthetic-products", "scale": 0.001},  # pyright: ignore
        model="sage-mean",
        fanouts=(2, 2),
        hidden_dim=4,
        batch_size=20,
        num_partitions=4,
        capacity=3,
        gap_bytes=0,
        memory_share=1.0,
        learning_rate=0.01,
        epochs=4,
        steps=3,
    )
    rows = {row["epoch"]: row for row in read_ahead.run(config)}
    assert {row["num_steps"] for row in rows.values()} == {3}
    assert {kind: row["same_losses"] for kind, row in rows.items()} == dict.fromkeys(SECONDS, 1.0) | {READING: None}
    assert rows[AHEAD]["read_bytes"] == rows[READING]["read_bytes"] > 0 == rows[MEMORY]["read_bytes"]
    assert rows[MEMORY]["over_memory"] == 1.0
    assert all(0 < rows[alone]["over_longer"] <= 1 for alone in (READING, TRAINING))

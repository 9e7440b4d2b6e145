"""Overlap of I/O and computation: claims that can be lost, and the rows of a small run."""

import pandas as pd
import pytest

from experiments.performance import out_of_core
from experiments.performance.out_of_core import COMPUTE, IO, OVERLAPPED, SERIAL
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

STEADY = {IO: 2.0, COMPUTE: 3.0, SERIAL: 5.0, OVERLAPPED: 3.3}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    fixed = {
        "graph": "a",
        "num_partitions": 8,
        "capacity": 2,
        "hidden_dim": 4,
        "train_share": 1.0,
        "longer_seconds": 3.0,
    }
    return pd.DataFrame(
        {
            **fixed,
            "epoch": epoch,
            "steady_seconds": seconds,
            "over_longer": seconds / 3,
            "loss": None if epoch == IO else 0.5,
            "load_wall_seconds": 0.2,
            "sample_wall_seconds": None if epoch == IO else 1.0,
            "read_bytes": 9,
        }
        for epoch, seconds in STEADY.items()
    )


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("performance/out_of_core", rows) if not finding.held}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    assert lost(table()) == set()


@pytest.mark.parametrize(
    ("epoch", "column", "value", "names"),
    [
        (OVERLAPPED, "over_longer", 1.2, {"overlapped"}),
        (OVERLAPPED, "loss", 0.5000001, {"same-losses"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(epoch: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table()
    spoiled.loc[spoiled.epoch == epoch, column] = value
    assert lost(spoiled) == names


def test_losses_of_different_shares_of_the_nodes_are_not_compared() -> None:
    assert lost(pd.concat([table(), table().assign(train_share=0.5, loss=table().loss + 0.1)])) == set()


def test_short_epochs_are_not_compared() -> None:
    short = table()
    short.loc[short.epoch == IO, "steady_seconds"] = 0.9
    short["over_longer"] = 2.0
    assert lost(short) == set()


def test_bars_are_the_main_threads_seconds() -> None:
    experiment = load_experiment("performance/out_of_core")
    totals = dict.fromkeys(STEADY, 0.0)
    for trace in experiment.draw(table()).data:
        if trace.type == "bar":
            for name, value in zip(trace.x[1], trace.y, strict=True):
                totals[name] += value
    assert {name: round(value, 6) for name, value in totals.items()} == STEADY
    assert len(experiment.compare(table())) == 4


def test_rows_of_a_small_run() -> None:
    config = out_of_core.Config(
        dataset={"name": "synthetic-products", "scale": 0.001},  # pyright: ignore
        model="sage-mean",
        fanouts=(2, 2),
        hidden_dim=4,
        batch_size=50,
        num_partitions=4,
        capacity=2,
        repeats=1,
        train_share=0.5,
    )
    rows = {row["epoch"]: row for row in out_of_core.run(config)}
    assert rows[SERIAL]["loss"] == rows[OVERLAPPED]["loss"]
    assert rows[IO]["num_steps"] == rows[IO]["num_states"] == 3
    assert rows[IO]["read_bytes"] == rows[SERIAL]["read_bytes"] == rows[OVERLAPPED]["read_bytes"] > 0

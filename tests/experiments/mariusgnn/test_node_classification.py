"""Node classification in memory and from disk: claims that can be lost, and the rows of a small run."""

import pandas as pd
import pytest

from experiments.mariusgnn import node_classification, time_to_accuracy
from experiments.mariusgnn.training_systems import DGL, DISK, MEMORY
from workbench.experiment.figure_loader import load_experiment

SECONDS, BEST = {MEMORY: 10.0, DISK: 11.0, DGL: 30.0}, {MEMORY: 0.8, DISK: 0.795, DGL: 0.8}
PRICES = node_classification.DOLLARS_PER_HOUR


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = []
    for system, seconds in SECONDS.items():
        for epoch in (1, 2, 3):
            disk = {"read_bytes": 50, "predicted_read_bytes": 50} if system == DISK else {}
            rows.append(
                {
                    "dataset": "a",
                    "num_partitions": 8,
                    "capacity": 2,
                    "memory_share": 0.25,
                    "limited": system == DISK,
                    "system": system,
                    "epoch": epoch,
                    "epoch_seconds": seconds,
                    "dollars": seconds / 3600 * PRICES[system],
                    "accuracy": BEST[system] * (1 - 0.3 / 3 ** (2 * epoch)),
                    "memory_bytes": 400,
                    "anonymous_peak_bytes": 90 if system == DISK else 600,
                    **disk,
                }
            )
    return pd.DataFrame(rows)


def lost(name: str, rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in load_experiment(f"mariusgnn/{name}").check(rows) if not finding.held}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    for name in ("node_classification", "time_to_accuracy"):
        assert lost(name, table()) == set()
        assert lost(name, table().query("system != @DGL")) == set()


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("system == @DISK and epoch == 3", "accuracy", 0.78, {"keeps-accuracy"}),
        ("system == @DISK", "read_bytes", 51, {"predicted"}),
        ("system == @DISK", "epoch_seconds", 13.0, {"as-fast"}),
        ("system == @DISK", "dollars", 0.02, {"cheaper"}),
        ("system == @DISK and epoch == 2", "anonymous_peak_bytes", 101, {"in-a-quarter"}),
        ("system == @DGL", "epoch_seconds", 10.5, {"dgl-is-slower"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(rows: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table().astype({"anonymous_peak_bytes": float})
    spoiled.loc[spoiled.query(rows).index, column] = value
    assert lost("node_classification", spoiled) == names


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("system == @DISK", "accuracy", 0.77, {"reaches-it", "sooner-than-dgl"}),
        ("system == @DGL", "epoch_seconds", 5.0, {"sooner-than-dgl"}),
    ],
)
def test_curves_that_come_too_late_lose_their_claims(rows: str, column: str, value: float, names: set[str]) -> None:
    spoiled = table()
    spoiled.loc[spoiled.query(rows).index, column] = value
    assert lost("time_to_accuracy", spoiled) == names


def test_figures_and_comparisons_have_all_systems() -> None:
    for name in ("node_classification", "time_to_accuracy"):
        experiment = load_experiment(f"mariusgnn/{name}")
        assert experiment.draw(table()).data
        assert set(experiment.compare(table()).system) >= set(SECONDS)
    assert len(node_classification.by_system(table())) == 3
    assert time_to_accuracy.curves(table()).train_seconds.max() == 90


def test_rows_of_a_small_run() -> None:
    config = node_classification.Config(
        dataset={"name": "synthetic-products", "scale": 0.001},  # pyright: ignore
        model="sage-mean",
        fanouts=(2, 2),
        hidden_dim=4,
        batch_size=50,
        num_partitions=8,
        capacity=2,
        memory_share=0.25,
        learning_rate=0.01,
        epochs=1,
        test_nodes=20,
        systems=(MEMORY, DISK),
    )
    memory, disk = node_classification.run(config)
    assert (memory["system"], disk["system"]) == (MEMORY, DISK)
    assert memory["num_steps"] == disk["num_steps"]
    assert disk["read_bytes"] == disk["predicted_read_bytes"] > 0

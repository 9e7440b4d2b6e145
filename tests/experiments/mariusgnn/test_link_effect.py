"""Effect of l and p on learnt rows: claims that can be lost, and the rows of a small run."""

import pandas as pd
import pytest

from experiments.mariusgnn import link_effect
from experiments.mariusgnn.link_systems import BALANCED, COMET
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

EXP = "mariusgnn/link_effect"
SETTINGS = [(32, 4), (32, 8), (32, 16), (8, 8), (16, 8), (64, 8)]


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    return pd.DataFrame(
        {
            "dataset": "fb15k-237",
            "system": system,
            "num_partitions": p,
            "num_groups": groups,
            "seed": seed,
            "epochs": 5,
            "epoch_seconds": 2.0 + groups,
            "mrr": 0.28 - 0.001 * groups + 0.0001 * seed,
            "disk_bytes": 1000 * groups + p,
            "num_loads": 10 * groups,
            "bias": 0.9 if system == COMET else 0.4,
        }
        for system in (COMET, BALANCED)
        for p, groups in SETTINGS
        for seed in (0, 1, 2)
    )


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(EXP, rows) if not (finding.held and finding.decided)}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    assert lost(table()) == set()


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("num_groups == 4 and system == @COMET", "mrr", 0.26, {"fewer-groups"}),
        ("num_groups == 16", "disk_bytes", 10, {"bytes"}),
        ("num_groups == 16", "epoch_seconds", 1.0, {"time"}),
        ("num_partitions == 64", "mrr", 0.25, {"any-p"}),
        ("num_partitions == 64", "epoch_seconds", 13.0, {"time-any-p"}),
        ("num_partitions == 64 and system == @BALANCED", "bias", 0.95, {"balanced-bias"}),
    ],
)
def test_each_claim_can_be_lost(rows, column, value, names) -> None:
    spoiled = table()
    spoiled.loc[spoiled.eval(rows), column] = value
    assert lost(spoiled) == names


def test_the_common_setting_is_in_both_series() -> None:
    found = link_effect.series(table())
    assert sorted(found.series.unique()) == ["l, at p = 32", "p, at l = 8"]
    assert len(found) == 2 * (3 + 4)
    assert len(load_experiment(EXP).compare(table())) == 2 * len(SETTINGS)


def test_two_groups_in_the_buffer_load_the_same_whatever_p_is() -> None:
    configs = load_experiment(EXP).configs(size="smoke")
    rows = {}
    for config in configs:
        if config.system == COMET and config.num_groups == 8:  # type: ignore[attr-defined]
            [row] = link_effect.run(config.model_copy(update={"epochs": 1}))  # type: ignore[arg-type]
            rows[config.num_partitions] = row  # type: ignore[attr-defined]
    assert rows[16]["num_loads"] == 2 * rows[8]["num_loads"]
    assert all(0 < row["mrr"] < 1 and row["disk_bytes"] > 0 for row in rows.values())

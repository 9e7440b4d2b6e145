"""Link prediction by order: claims that can be lost, and the rows of a small run."""

from importlib.util import find_spec

import pandas as pd
import pytest

from experiments.mariusgnn import link_prediction
from experiments.mariusgnn.link_systems import BALANCED, BETA, COMET, DGL, MEMORY, SYSTEMS
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

EXP = "mariusgnn/link_prediction"
MRR = {MEMORY: 0.27, COMET: 0.265, BETA: 0.23, BALANCED: 0.266}
LOADS = {COMET: 112, BETA: 86, BALANCED: 112}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    return pd.DataFrame(
        {
            "dataset": "fb15k-237",
            "encoder": encoder,
            "system": system,
            "seed": seed,
            "epoch": epoch,
            "epoch_seconds": 9.0,
            "mrr": mrr * (1 - 0.1 / epoch) + 0.001 * seed + (0.01 if encoder == "sage-mean" else 0),
            "hits_at_10": 0.4,
            "num_loads": LOADS.get(system),
            "bias": 0.9,
        }
        for encoder in ("none", "sage-mean")
        for system, mrr in MRR.items()
        for seed in (0, 1, 2)
        for epoch in (1, 2, 5)
    )


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(EXP, rows) if not (finding.held and finding.decided)}


def test_all_claims_hold_in_a_table_made_for_them() -> None:
    assert lost(table()) == set()
    assert {f.name for f in directions(EXP, table().assign(dataset="a"))} == {
        "comet-above-beta",
        "balanced-as-comet",
        "equal-loads",
    }


@pytest.mark.parametrize(
    ("rows", "column", "value", "names"),
    [
        ("system == @BETA and encoder == 'none' and epoch == 5", "mrr", 0.262, {"comet-above-beta"}),
        ("system == @BALANCED and epoch == 5", "mrr", 0.24, {"balanced-as-comet"}),
        ("system == @MEMORY and encoder == 'none' and epoch == 5", "mrr", 0.237, {"reaches-paper"}),
        ("system == @BALANCED", "num_loads", 113, {"equal-loads"}),
    ],
)
def test_each_claim_can_be_lost(rows, column, value, names) -> None:
    spoiled = table()
    spoiled.loc[spoiled.eval(rows), column] = value
    assert lost(spoiled) == names


def test_first_epochs_do_not_count() -> None:
    spoiled = table()
    spoiled.loc[spoiled.epoch == 1, "mrr"] = 0.0
    assert lost(spoiled) == set()


@pytest.mark.parametrize("encoder", ["none", "sage-mean"])
def test_every_system_trains_each_triple_once_per_epoch(encoder) -> None:
    [config, *_] = load_experiment(EXP).configs(size="smoke")
    rows = {}
    for system in [name for name in SYSTEMS if name != DGL or find_spec("dgl")]:
        update = {"encoder": encoder, "system": system, "epochs": 1}
        [rows[system]] = link_prediction.run(config.model_copy(update=update))  # type: ignore[arg-type]
    assert all(0 < row["mrr"] < 1 and row["loss"] > 0 for row in rows.values())
    assert rows[MEMORY]["num_steps"] == 11 and "num_loads" not in rows[MEMORY]
    assert rows[COMET]["num_loads"] == rows[BALANCED]["num_loads"] > rows[BETA]["num_loads"]
    assert rows[BALANCED]["bias"] < rows[COMET]["bias"] < rows[BETA]["bias"]


@pytest.mark.parametrize(
    ("name", "rows", "value", "finding"),
    [
        ("bias_mrr", "system == @BETA", 0.3, "falls"),
        ("link_time_to_accuracy", "system == @COMET", 0.2, "near-memory"),
    ],
)
def test_claims_of_the_views(name, rows, value, finding) -> None:
    exp, good = load_experiment(f"mariusgnn/{name}"), table()
    good["bias"] = good.system.map({COMET: 0.9, BETA: 0.98, BALANCED: 0.4})
    assert all(found.held for found in exp.check(good))
    assert exp.draw(good).layout.title.text and len(exp.compare(good))
    spoiled = good.copy()
    spoiled.loc[spoiled.eval(rows), "mrr"] = value
    assert {found.name for found in exp.check(spoiled) if not found.held} == {finding}

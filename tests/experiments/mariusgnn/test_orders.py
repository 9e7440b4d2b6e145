"""The figures about orders: claims hold on small tables of their own points, and on none of the spoiled ones."""

from functools import cache
from typing import Any

import pandas as pd
import pytest

import workbench as wb
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

FIGURES = ("bias", "effect_of_l", "effect_of_p", "sequences")
_KEPT = {"bias": [5, 7]}


@cache
def table(name: str) -> pd.DataFrame:
    """The rows of a figure's smoke size, without a store."""
    experiment = load_experiment(f"mariusgnn/{name}")
    rows = []
    for config in experiment.configs(size="smoke"):
        fixed: dict[str, Any] = config.model_dump()
        if "dataset" in fixed:
            fixed["dataset"] = fixed["dataset"]["name"]
        if fixed["num_logical"] not in _KEPT.get(name, []):
            rows += [fixed | row for row in experiment.module.run(config)]
    return pd.DataFrame(rows)


def lost(name: str, rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(f"mariusgnn/{name}", rows) if not finding.held}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bias", set()), ("effect_of_l", set()), ("effect_of_p", {"COMET-bias"}), ("sequences", set())],
)
def test_the_claims_that_hold_at_smoke(name: str, expected: set[str]) -> None:
    assert lost(name, table(name)) == expected


@pytest.mark.parametrize(
    ("name", "rows", "column", "factor", "names"),
    [
        (
            "bias",
            "method == 'balanced'",
            "partition_bias",
            4.0,
            {"balanced-least-partitions", "bias-8", "half-of-comet"},
        ),
        ("bias", "method == 'balanced'", "partition_bias", 1.4, {"bias-8", "half-of-comet"}),
        ("bias", "method == 'balanced'", "hub_bias", 4.0, {"balanced-least-hubs"}),
        ("bias", "method == 'COMET'", "partition_bias", 1.5, {"comet-below-beta", "reshuffled-as-comet"}),
        ("bias", "method == 'COMET'", "reshuffled_bias", 1.08, {"reshuffled-as-comet"}),
        ("effect_of_l", "num_logical == 16", "rows_read", 1.1, {"loads"}),
        ("effect_of_l", "num_logical == 16", "partition_bias", 0.1, {"comet-bias"}),
        ("effect_of_l", "num_logical == 16", "modelled_io_seconds", 0.2, {"linear", "io-rises"}),
        ("effect_of_l", "method == 'BETA'", "read_bytes", 2.0, {"beta-reads-least"}),
        ("effect_of_p", "num_partitions == 256", "read_bytes", 1.1, {"COMET-bias", "equal-bytes"}),
        ("effect_of_p", "num_partitions == 32", "modelled_io_seconds", 1.2, {"COMET-bias", "flat"}),
        ("effect_of_p", "num_partitions == 256", "partition_bias", 1.5, {"COMET-bias", "balanced-bias"}),
        ("sequences", "method == 'COMET'", "num_buckets", 2.0, {"every-bucket-once"}),
        ("sequences", "method == 'BETA'", "loads", 2.0, {"beta-swaps"}),
        ("sequences", "method == 'balanced'", "loads", 2.0, {"group-loads"}),
        ("sequences", "method == 'COMET' and state == 3", "num_buckets", 9.0, {"every-bucket-once", "even-states"}),
    ],
)
def test_a_spoiled_table_loses_its_claims(name: str, rows: str, column: str, factor: float, names: set[str]) -> None:
    spoiled = table(name).astype({column: float})
    spoiled.loc[spoiled.query(rows).index, column] *= factor
    assert lost(name, spoiled) == names


def test_more_loads_than_necessary_are_noticed() -> None:
    assert lost("bias", table("bias").assign(extra_loads=1)) == {"minimal-loads"}


def test_rows_are_the_orders_own() -> None:
    """Bias and loads of every point equal those of the public functions."""
    for row in table("effect_of_l").query("epoch == 1").to_dict("records"):
        p, c, groups = row["num_partitions"], row["capacity"], row["num_logical"]
        assert (p, c) == (groups * row["group_partitions"], 2 * row["group_partitions"])
        order = {
            "BETA": lambda p, c, groups: wb.outofcore.beta_order(p, c),
            "COMET": lambda p, c, groups: wb.outofcore.comet_order(p, c, groups, epoch=1),
            "balanced": lambda p, c, groups: wb.outofcore.balanced_order(p, c, groups, epoch=1),
        }[row["method"]](p, c, groups)
        assert row["partition_bias"] == wb.outofcore.partition_bias(order)
        rows = order.num_loads * -(-row["num_nodes"] // p) * row["row_bytes"]
        edges = order.num_bucket_loads * row["num_edges"] * row["edge_bytes"] / p**2
        assert row["read_bytes"] == pytest.approx(rows + edges, abs=1)
        reads = order.num_loads + order.num_bucket_loads
        operations = reads + order.num_loads  # learnt rows are written back
        assert row["modelled_io_seconds"] == pytest.approx((2 * rows + edges) / 1e9 + operations / 16_000)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_and_comparisons(name: str) -> None:
    experiment = load_experiment(f"mariusgnn/{name}")
    figure, compared = experiment.draw(table(name)), experiment.compare(table(name))
    assert figure.layout.title.text and len(compared) >= table(name).method.nunique()
    if name.startswith("effect"):
        assert "modelled: 86,054,151 rows of 800 B" in figure.layout.title.text, (
            "a modelled time names the model's inputs"
        )


def test_the_pictures_are_the_rows() -> None:
    rows = table("sequences")
    figure: Any = load_experiment("mariusgnn/sequences").draw(rows)
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    for drawn, (_, states) in zip(maps, rows.groupby("method", sort=False), strict=True):
        assert [" ".join(str(i) for i, cell in enumerate(line) if cell) for line in drawn.z] == list(states.holds)
        assert [sum(cell == 2 for cell in line) for line in drawn.z] == list(states.loads)

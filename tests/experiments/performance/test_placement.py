"""The benchmark of placements: its rows compare what they say, and its claims can fail."""

from typing import Any

import pandas as pd
import pytest

from experiments.performance import placement

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 300, "num_edges": 2400}, "repeats": 2, "fanouts": (3, 3)}
GIVEN |= {"batch_size": 5, "num_devices": 2, "buffer_share": 0.2, "peer_cost": 0.3}


def test_every_method_is_timed() -> None:
    pytest.importorskip("pymetis")
    table = pd.DataFrame(placement.run(placement.Config(**GIVEN))).set_index("placement")
    assert set(table.index) >= {"Algorithm 1", "search", "naive", "random", "METIS", "PaGraph"}
    assert table.of_algorithm_1["Algorithm 1"] == 1 and (table.low_seconds <= table.high_seconds).all()
    assert table.gap.min() > -1e-9 and table.gap["search"] < 0.01 < table.gap["METIS"]
    assert table.largest_cost["search"] <= table.largest_cost.drop("search, cost matrix").min() * (1 + 1e-9)


def table_that_holds() -> pd.DataFrame:
    row = {"graph": "power-law", "nodes": 2_450_000, "seconds": 0.5, "of_algorithm_1": 1.5, "gap": 0.002}
    return pd.DataFrame(
        {**row, "placement": name} for name in ("Algorithm 1", "search", "search, cost matrix", "METIS")
    )


@pytest.mark.parametrize(
    ("name", "column", "value", "spoiled"),
    [
        ("search", "seconds", 1.2, "fast"),
        ("search", "of_algorithm_1", 2.1, "search-uniform"),
        ("search, cost matrix", "of_algorithm_1", 11.0, "search-matrix"),
        ("search, cost matrix", "gap", 0.02, "gap"),
    ],
)
def test_claims_can_fail(name: str, column: str, value: float, spoiled: str) -> None:
    table = table_that_holds()
    assert all(finding.held for finding in placement.check(table, pd.DataFrame()))
    table.loc[table.placement == name, column] = value
    assert [f.name for f in placement.check(table, pd.DataFrame()) if not f.held] == [spoiled]


def test_drawn() -> None:
    figure = placement.draw(table_that_holds(), pd.DataFrame())
    assert [trace.name for trace in figure.data] == ["METIS", "Algorithm 1", "search"]

"""The benchmark of growth: its work is counted, its exponents are those of known powers, and its claim can fail."""

from typing import Any

import pandas as pd
import pytest

from experiments.performance import growth
from tests.experiments.directions import directions

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 500, "num_edges": 6000}, "repeats": 1, "fanouts": (3, 3)}
GIVEN |= {"seed_share": 0.2, "num_parts": 4, "width": 8}


def test_every_stage_is_timed_and_its_work_counted() -> None:
    pytest.importorskip("pymetis")
    table = pd.DataFrame(growth.run(growth.Config(**GIVEN))).set_index("stage")
    assert set(growth.METIS) <= set(table.index) and (table.seconds > 0).all()
    nodes, edges = 500, table.edges.iloc[0]
    assert table.work["graph of an edge list"] == table.work["graph by METIS"] == edges
    assert table.work["splitting"] == table.work["neighbour sampling"] <= 3 * 100 * (1 + 3)
    assert table.work["placement"] == nodes
    assert table.work["building a store"] == nodes * 8 * 4 + 2 * 4 * edges


def table_of(powers: dict[str, float]) -> pd.DataFrame:
    sizes = (100_000, 1_000_000, 10_000_000, 100_000_000)
    row = {"graph": "power-law", "unit": "edges"}
    return pd.DataFrame(
        {**row, "stage": stage, "edges": m, "work": m, "seconds": 1e-8 * m**power}
        for stage, power in powers.items()
        for m in sizes
    )


def test_exponents_are_those_of_known_powers() -> None:
    powers = {"splitting": 1.0, "placement": 1.04, growth.METIS[0]: 1.3}
    found = growth.exponents(table_of(powers)).set_index("stage")
    assert found.exponent.to_dict() == pytest.approx(powers)
    cached = table_of(powers).query("edges == 100_000 or stage == 'splitting'")
    assert growth.exponents(cached).beyond_caches.notna().tolist() == [True, False, False]


def test_a_steeper_cost_loses_the_claim_unless_it_is_metis() -> None:
    def lost(powers: dict[str, float]) -> bool:
        return not all(finding.held for finding in directions("performance/growth", table_of(powers)))

    assert not lost({"splitting": 1.0, growth.METIS[1]: 1.3})
    assert lost({"splitting": 1.0, "placement": 1.06})

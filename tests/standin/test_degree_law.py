"""Degree sequences: exact sums, quantiles at any scale, largest degrees that a simple graph can meet."""

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.standin.catalog import STANDINS
from workbench.standin.degree_law import DegreeLaw, degree_sequence
from workbench.standin.stand_in import StandIn, scaled_splits

LAW = DegreeLaw.lognormal(mean=20.0, sigma=1.2, population=100_000)


@given(st.integers(500, 20_000), st.floats(5.0, 25.0))
def test_degrees_are_ascending_sum_to_the_total_and_are_feasible(nodes, mean):
    total = int(nodes * mean)
    degrees = degree_sequence(LAW, nodes, total, max_neighbours=nodes - 1)
    assert len(degrees) == nodes and int(degrees.sum()) == total
    assert bool((degrees.diff() >= 0).all()) and int(degrees[0]) >= 1 and int(degrees[-1]) <= (nodes - 1) / 4


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.05])
def test_quantiles_are_the_same_at_every_scale(scale):
    nodes = int(100_000 * scale)
    degrees = degree_sequence(LAW, nodes, 20 * nodes, max_neighbours=nodes - 1)
    full = degree_sequence(LAW, 100_000, 2_000_000, max_neighbours=99_999)
    for share in (0.1, 0.5, 0.9, 0.99):
        assert degrees[int(share * nodes)] == pytest.approx(int(full[int(share * 100_000)]), rel=0.05, abs=1)


def test_a_counted_law_reproduces_the_counts():
    spec = STANDINS["synthetic-arxiv"]
    assert isinstance(spec, StandIn)
    law = spec.shape.degrees
    degrees = degree_sequence(law, 169_343, 2 * 1_157_799, max_neighbours=169_342)
    assert int(degrees[-1]) == 13_161
    for degree, share in law.knots:
        assert float((degrees <= degree).double().mean()) == pytest.approx(share, abs=0.02)


def test_the_largest_degree_scales_with_the_square_root():
    nodes = 1000
    largest = int(degree_sequence(LAW, nodes, 20 * nodes, max_neighbours=nodes - 1)[-1])
    assert largest <= max(LAW.largest * 0.1, (20 * nodes) ** 0.5) + 1 < int(LAW.ranked(nodes)[-1])
    assert int(degree_sequence(LAW, nodes, 20 * nodes, max_neighbours=None)[-1]) == round(float(LAW.ranked(nodes)[-1]))


def test_infeasible_degrees_are_refused():
    with pytest.raises(ValueError, match=r"mean degree of 40\.0 require .* than 24, .*; pass a larger scale"):
        degree_sequence(LAW, 100, 4000, max_neighbours=99)


def test_a_split_of_all_nodes_covers_all_nodes_at_every_scale():
    for scale in (0.001, 0.02, 0.31, 1.0):
        nodes = round(2_449_029 * scale)
        assert sum(scaled_splits((196_615, 39_323, 2_213_091), scale, nodes)) == nodes


def test_a_law_with_zeros():
    law = DegreeLaw.counted(((0, 30), (1, 60), (5, 90), (20, 100)))
    degrees = degree_sequence(law, 100, 300, min_degree=0, max_neighbours=None)
    assert int(degrees.sum()) == 300 and 20 <= int((degrees == 0).sum()) <= 35
    assert torch.equal(degrees, degrees.sort().values)

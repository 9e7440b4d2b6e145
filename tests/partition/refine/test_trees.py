"""Trees against lists and dense matrices made from the blocks in plain Python."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partition.refine.oracles import EDGE, INPUT, batch_of, bytes_of, children, firsts
from tests.strategies import minibatches, random_minibatch
from workbench.core.minibatch import MiniBatch
from workbench.partition.refine.trees import computation_trees, fair_shares, parents


def costs(mb: MiniBatch, input_bytes: int = INPUT, edge_bytes: int = EDGE) -> list[int]:
    first = firsts(mb)
    inner = [edge_bytes * degree for block in reversed(mb.blocks) for degree in block.indptr.diff().tolist()]
    return [*inner, *[input_bytes] * (first[-1] - len(inner))]


@given(minibatches())
def test_nodes_are_numbered_by_hop(mb: MiniBatch) -> None:
    trees, below = computation_trees(mb), children(mb)
    assert trees.first.tolist() == firsts(mb) and trees.num_outputs == mb.num_seeds
    found = [row.tolist() for row in trees.children.split(trees.indptr.diff().tolist())]
    assert found == [row[1:] for row in below]
    counts = Counter(child for row in below for child in row)
    assert parents(trees).tolist() == [counts[node] for node in range(firsts(mb)[-1])]


@given(minibatches(), st.integers(0, 9), st.integers(0, 9))
def test_costs_are_those_of_inputs_and_edges(mb: MiniBatch, input_bytes: int, edge_bytes: int) -> None:
    trees = computation_trees(mb, input_bytes=input_bytes, edge_bytes=edge_bytes)
    assert trees.cost.tolist() == costs(mb, input_bytes, edge_bytes)
    assert int(trees.cost.sum()) == input_bytes * mb.num_inputs + edge_bytes * mb.num_edges


def shares_by_definition(mb: MiniBatch) -> torch.Tensor:
    """Bytes of all nodes, handed down from every node alone along the edges: each passes on its share of a child."""
    below, total = children(mb), firsts(mb)[-1]
    counts = Counter(child for row in below for child in row)
    passed = torch.eye(total, dtype=torch.float64)  # [owner, node]: how much of the node is the owner's
    for node, row in enumerate(below):
        for child in row:
            passed[:, child] += passed[:, node] / counts[child]
    return passed @ torch.tensor(costs(mb), dtype=torch.float64)


@settings(max_examples=50)
@given(minibatches())
def test_shares_are_fair(mb: MiniBatch) -> None:
    torch.testing.assert_close(fair_shares(computation_trees(mb)), shares_by_definition(mb), rtol=1e-12, atol=1e-9)


@given(minibatches())
def test_shares_of_a_hop_are_all_that_lies_behind_it(mb: MiniBatch) -> None:
    shares, cost, first = fair_shares(computation_trees(mb)), costs(mb), firsts(mb)
    for begin, end in pairwise(first):
        if mb.num_seeds:
            assert float(shares[begin:end].sum()) == pytest.approx(sum(cost[begin:]))


def test_shares_of_a_worked_example() -> None:
    """Output 0 reads 2 twice, 1 reads itself and 2: each has half of source 2."""
    shares = fair_shares(computation_trees(batch_of([[2, 2], [1, 2]])))
    assert shares.tolist() == pytest.approx([512 * 3 / 2 + 32, 512 * 3 / 2 + 32, 512, 512, 512])


def test_a_batch_without_layers_costs_its_nodes() -> None:
    trees = computation_trees(MiniBatch(torch.arange(3), ()))
    assert trees.first.tolist() == [0, 3] and fair_shares(trees).tolist() == [512.0] * 3


def test_one_seed_has_it_all() -> None:
    mb = random_minibatch(num_seeds=1)
    assert float(fair_shares(computation_trees(mb))[0]) == pytest.approx(bytes_of(mb))

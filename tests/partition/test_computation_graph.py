"""Computation graphs against lists and dense matrices built from the blocks in plain Python."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from tests.partition.oracles import (
    EDGE,
    INPUT,
    batch_of,
    bytes_of,
    contracted_sources,
    groups_of,
    hop_starts,
    part_bytes,
    partitioned,
    sources_of,
)
from tests.strategies import minibatches, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import ByteCosts
from workbench.partition.computation_graph import ContractedGraph, computation_graph, contract, fair_shares, net_sizes
from workbench.partition.refine import count_bytes


def node_bytes(mb: MiniBatch, costs: ByteCosts | None = None) -> list[int]:
    costs = costs or ByteCosts((INPUT, *[0] * len(mb.blocks)), (EDGE,) * len(mb.blocks))
    layers = reversed(list(zip(mb.blocks, costs.per_edge, costs.per_node[1:], strict=True)))
    inner = [node + edge * degree for block, edge, node in layers for degree in block.indptr.diff().tolist()]
    return [round(n) for n in [*inner, *[costs.per_node[0]] * (hop_starts(mb)[-1] - len(inner))]]


@given(minibatches())
def test_nodes_are_numbered_by_hop(mb: MiniBatch) -> None:
    graph, expected = computation_graph(mb), sources_of(mb)
    assert graph.hop_starts.tolist() == hop_starts(mb) and graph.num_seeds == mb.num_seeds
    rows = [row.tolist() for row in graph.sources.split(graph.indptr.diff().tolist())]
    assert rows == [row[1:] for row in expected]
    counts = Counter(source for row in expected for source in row)
    assert net_sizes(graph).tolist() == [counts[node] for node in range(hop_starts(mb)[-1])]


@given(minibatches(), st.data())
def test_bytes_are_those_of_nodes_and_edges(mb: MiniBatch, data: st.DataObject) -> None:
    layers, cost = len(mb.blocks), st.sampled_from((0, 3, 4.25, 1000))
    per_node = data.draw(st.tuples(st.sampled_from((1, 512.125)), *[cost] * layers))
    costs = ByteCosts(per_node, data.draw(st.tuples(*[cost] * layers)))
    assert computation_graph(mb, costs).node_bytes.tolist() == node_bytes(mb, costs)
    assert int(computation_graph(mb).node_bytes.sum()) == bytes_of(mb)


def test_costs_of_another_number_of_layers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"costs are of 1 layers, but the batch has 2 blocks"):
        computation_graph(random_minibatch(fanouts=(2, 2)), ByteCosts.default(1))


def shares_by_definition(mb: MiniBatch) -> torch.Tensor:
    """Multiply the bytes by a dense matrix of shares: every node passes 1/n of a source that n nodes read to each."""
    rows, total = sources_of(mb), hop_starts(mb)[-1]
    counts = Counter(source for row in rows for source in row)
    share = torch.eye(total, dtype=torch.float64)  # [reader, node]: the reader's share of the node
    for node, row in enumerate(rows):
        for source in row:
            share[:, source] += share[:, node] / counts[source]
    return share @ torch.tensor(node_bytes(mb), dtype=torch.float64)


@given(minibatches())
def test_shares_are_fair(mb: MiniBatch) -> None:
    torch.testing.assert_close(fair_shares(computation_graph(mb)), shares_by_definition(mb), rtol=1e-12, atol=1e-9)


@given(minibatches())
def test_shares_of_a_hop_sum_to_the_bytes_from_that_hop_on(mb: MiniBatch) -> None:
    shares, expected, first = fair_shares(computation_graph(mb)), node_bytes(mb), hop_starts(mb)
    for begin, end in pairwise(first):
        if mb.num_seeds:
            assert float(shares[begin:end].sum()) == pytest.approx(sum(expected[begin:]))


def test_shares_of_a_worked_example() -> None:
    """Seed 0 reads node 2 twice, seed 1 reads itself and node 2: each has half of source 2."""
    shares = fair_shares(computation_graph(batch_of([[2, 2], [1, 2]])))
    assert shares.tolist() == pytest.approx([512 * 3 / 2 + 32, 512 * 3 / 2 + 32, 512, 512, 512])


def test_without_layers_seeds_are_inputs() -> None:
    graph = computation_graph(MiniBatch(torch.arange(3), ()))
    assert graph.hop_starts.tolist() == [0, 3] and fair_shares(graph).tolist() == [512.0] * 3


def test_a_single_seed_has_all_bytes() -> None:
    mb = random_minibatch(num_seeds=1)
    assert float(fair_shares(computation_graph(mb))[0]) == pytest.approx(bytes_of(mb))


def contracted(mb: MiniBatch) -> ContractedGraph:
    return contract(computation_graph(mb))


def rows_of(graph: ContractedGraph) -> list[list[int]]:
    return [sorted(row.tolist()) for row in graph.sources.split(graph.indptr.diff().tolist())]


@given(minibatches())
def test_nodes_of_one_reader_are_merged_with_it(mb: MiniBatch) -> None:
    graph, groups = contracted(mb), groups_of(mb)
    assert graph.num_seeds == mb.num_seeds and rows_of(graph) == contracted_sources(mb)
    node_bytes, expected = computation_graph(mb).node_bytes.tolist(), dict.fromkeys(sorted(set(groups)), 0)
    for node in range(hop_starts(mb)[-1]):
        expected[groups[node]] += node_bytes[node]
    assert graph.node_bytes.tolist() == list(expected.values())


@given(partitioned())
def test_bytes_of_parts_equal_those_of_a_split(case: tuple[MiniBatch, torch.Tensor, int]) -> None:
    mb, part, num_parts = case
    expected = part_bytes(mb, part, num_parts)[: int(part.max()) + 1 if len(part) else 0]
    assert count_bytes(contracted(mb), part).tolist() == expected


@given(minibatches())
def test_shares_of_seeds_sum_to_all_bytes(mb: MiniBatch) -> None:
    graph = contracted(mb)
    assert float(graph.shares[: mb.num_seeds].sum()) == pytest.approx(float(graph.node_bytes.sum()))


def test_a_worked_example() -> None:
    """Source 2 is read by seed 0 alone, source 3 by both; a seed itself is read by the seed alone."""
    graph = contracted(batch_of([[2, 3], [3]]))
    assert rows_of(graph) == [[2], [2], []]
    assert graph.node_bytes.tolist() == [2 * 16 + 2 * 512, 16 + 512, 512]
    assert graph.shares.tolist() == [2 * 16 + 2 * 512 + 256, 16 + 512 + 256, 512]


def test_a_source_that_nobody_reads_is_in_no_part() -> None:
    block = Block(torch.tensor([0, 1, 2]), torch.tensor([2, 2], dtype=torch.int32), num_src=4, num_dst=2)
    graph = contracted(MiniBatch(torch.arange(4), (block,)))
    assert rows_of(graph) == [[2], [2], [], []]
    assert count_bytes(graph, torch.tensor([0, 1])).tolist() == [512 + 16 + 512] * 2


def test_chains_are_merged_hop_by_hop() -> None:
    """Both seeds read node 2, and through it alone the inputs 3 and 4, which are merged with it."""
    out = Block(torch.tensor([0, 1, 2]), torch.tensor([2, 2], dtype=torch.int32), num_src=3, num_dst=2)
    inner = Block(torch.tensor([0, 0, 0, 2]), torch.tensor([3, 4], dtype=torch.int32), num_src=5, num_dst=3)
    graph = contracted(MiniBatch(torch.arange(5), (inner, out)))
    assert rows_of(graph) == [[2], [2], []] and graph.node_bytes.tolist() == [528, 528, 3 * 512 + 2 * 16]

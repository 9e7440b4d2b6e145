"""Contracted graphs against merging in plain Python, and their bytes against splits of the batch."""

import pytest
import torch
from hypothesis import given

from tests.partition.refine.oracles import (
    batch_of,
    contracted_sources,
    groups_of,
    hop_starts,
    part_bytes,
    partitioned,
)
from tests.strategies import minibatches
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.refine.computation_graph import ContractedGraph, computation_graph, contract
from workbench.partition.refine.fm import count_bytes


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

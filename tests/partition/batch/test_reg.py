"""The redundancy-embedded graph against its dense definition, and a worked example like Betty's figure 8."""

from itertools import permutations

import pytest
import torch
from hypothesis import given

from tests.partition.oracles import batch_of
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.kernels import threads
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.partition.batch import partition_batch
from workbench.partition.batch.reg import BYTES_PER_NONZERO, RedundancyEmbeddedGraph, redundancy_embedded_graph
from workbench.partition.redundancy import redundancy


def dense(graph: RedundancyEmbeddedGraph) -> torch.Tensor:
    count = len(graph.indptr) - 1
    rows = torch.repeat_interleave(torch.arange(count), graph.indptr.diff())
    assert graph.edge_weight is not None
    assert len(set(zip(rows.tolist(), graph.indices.tolist(), strict=True))) == len(rows)
    out = torch.zeros(count, count, dtype=torch.int64)
    out[rows, graph.indices] = graph.edge_weight
    return out


def dense_by_definition(mb: MiniBatch) -> torch.Tensor:
    """Algorithm 1 on the dense square matrix: C = AᵀA over all nodes, restricted to seeds, without its diagonal."""
    block = mb.blocks[-1]
    a = torch.zeros(block.num_src, block.num_src, dtype=torch.int64)
    a[block.indices.long(), block.destinations.long()] = 1
    c = (a.T @ a)[: block.num_dst, : block.num_dst]
    return c - torch.diag(torch.diag(c))


@given(minibatches())
def test_counts_equal_the_definition(mb: MiniBatch) -> None:
    assert torch.equal(dense(redundancy_embedded_graph(mb)), dense_by_definition(mb))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_threads_do_not_change_the_graph(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mb = random_minibatch(random_graph(300, 2000, seed=1), fanouts=(6,), num_seeds=150, seed=1)
    expected = redundancy_embedded_graph(mb)
    monkeypatch.setattr(threads, "num_chunks", lambda rows, min_rows=1: min(get_num_threads(), rows))
    before = get_num_threads()
    set_num_threads(count)
    try:
        found = redundancy_embedded_graph(mb)
    finally:
        set_num_threads(before)
    for a, b in (
        (found.indptr, expected.indptr),
        (found.indices, expected.indices),
        (found.edge_weight, expected.edge_weight),
    ):
        assert a is not None and b is not None and torch.equal(a, b)


def normalized_by_definition(mb: MiniBatch) -> torch.Tensor:
    """Sum max(1, round(1000 / (n - 1))) for every pair of seeds over their common sources, n the seeds of a source."""
    block = mb.blocks[-1]
    nets = [{source} if source < block.num_dst else set() for source in range(block.num_src)]
    for source, destination in zip(block.indices.tolist(), block.destinations.tolist(), strict=True):
        nets[source].add(destination)
    c = torch.zeros(block.num_dst, block.num_dst, dtype=torch.int64)
    for net in nets:
        for a, b in permutations(net, 2):
            c[a, b] += max(1, round(1000 / (len(net) - 1)))
    return c


@given(minibatches())
def test_normalized_weights_equal_the_definition(mb: MiniBatch) -> None:
    assert torch.equal(dense(redundancy_embedded_graph(mb, normalized=True)), normalized_by_definition(mb))


def test_the_normalized_weight_is_at_least_one() -> None:
    indptr = torch.arange(2003)
    block = Block(indptr, torch.full((2002,), 2002, dtype=torch.int32), 2003, 2002)
    graph = redundancy_embedded_graph(MiniBatch(torch.arange(2003), (block,)), normalized=True)
    assert graph.edge_weight is not None and graph.edge_weight.unique().tolist() == [1]


def test_a_hub_outweighs_pairs_unless_weights_are_normalized() -> None:
    """Six seeds share four hubs; the pairs 0-1, 2-3 and 4-5 share one more source each."""
    pytest.importorskip("pymetis")
    mb = batch_of([[6, 7, 8, 9, 10 + v // 2] for v in range(6)])
    by_pair = dense(redundancy_embedded_graph(mb, normalized=True))
    assert by_pair[0, 1] == 4 * 200 + 1000 and by_pair[0, 2] == 4 * 200
    plain = dense(redundancy_embedded_graph(mb))
    assert plain[0, 1] == 5 and plain[0, 2] == 4
    for seed in range(4):
        assert partition_batch(mb, 3, method="reg_normalized", seed=seed).view(3, 2).diff(dim=1).eq(0).all()


def figure_8() -> MiniBatch:
    """Seeds 0-7: the even ones read sources 8-11, the odd ones 12-15, and 0 and 1 share one source, 16."""
    rows = [[8 + 4 * (node % 2) + k for k in range(4)] + [16] * (node < 2) for node in range(8)]
    indptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    indices = torch.tensor([source for row in rows for source in row], dtype=torch.int32)
    return MiniBatch(torch.arange(17), (Block(indptr, indices, 17, 8),))


@pytest.mark.parametrize("method", ["reg", "reg_unweighted", "reg_normalized"])
def test_seeds_with_shared_sources_stay_together(method: str) -> None:
    pytest.importorskip("pymetis")
    mb = figure_8()
    part = partition_batch(mb, 2, method=method)
    assert len(set(part[::2].tolist())) == len(set(part[1::2].tolist())) == 1
    by_reg = redundancy(mb.split(part), mb)
    by_range = redundancy(mb.split(partition_batch(mb, 2, method="range")), mb)
    assert by_reg.total_inputs == 17 + 1  # only the source that both clusters read is loaded twice
    assert by_range.total_inputs == 17 + 8
    assert by_reg.largest == 9


def test_edge_weights_count_shared_sources() -> None:
    """A square of seeds in which 0-1 and 2-3 share five sources, 1-2 and 3-0 one."""
    pytest.importorskip("pymetis")
    shared = [(0, 1)] * 5 + [(2, 3)] * 5 + [(1, 2), (3, 0)]
    rows: list[list[int]] = [[] for _ in range(4)]
    for source, pair in enumerate(shared, start=4):
        for node in pair:
            rows[node].append(source)
    indptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    block = Block(indptr, torch.tensor([s for row in rows for s in row], dtype=torch.int32), 16, 4)
    mb = MiniBatch(torch.arange(16), (block,))
    for seed in range(8):
        part = partition_batch(mb, 2, method="reg", seed=seed)
        assert part[0] == part[1] != part[2] == part[3]


def test_max_bytes_is_checked_before_allocating() -> None:
    mb = random_minibatch(random_graph(200, 1500, seed=1), fanouts=(6,), num_seeds=100, seed=1)
    nonzeros = len(redundancy_embedded_graph(mb).indices)
    required = nonzeros * BYTES_PER_NONZERO
    assert len(redundancy_embedded_graph(mb, max_bytes=required).indices) == nonzeros
    with pytest.raises(CapacityError, match=rf"has {nonzeros:,} nonzeros.*use method='metis'"):
        redundancy_embedded_graph(mb, max_bytes=required - 1)
    with pytest.raises(CapacityError, match=r"at least [\d,]+ nonzeros"):
        partition_batch(mb, 2, method="reg", max_bytes=1)

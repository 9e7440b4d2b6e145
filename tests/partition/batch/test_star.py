"""METIS on the output block."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tests.partition.oracles import batch_of, bytes_of, part_bytes
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch
from workbench.partition.batch.baselines import StarGraph, star_graph
from workbench.partition.batch.prepared_batch import PartitionOptions, PreparedBatch
from workbench.partition.redundancy import redundancy


@pytest.fixture(autouse=True)
def needs_metis() -> None:
    pytest.importorskip("pymetis")


def star_parts(mb: MiniBatch, num_parts: int, **options: Any) -> Tensor:
    return partition_batch(mb, num_parts, method="star", **options)


def communities(count: int, seeds: int, sources: int, seed: int = 0) -> tuple[MiniBatch, Tensor]:
    """Build a batch whose seeds read only sources of their community; return the seeds' communities, shuffled, too."""
    rng = torch.Generator().manual_seed(seed)
    community = torch.arange(count * seeds) % count
    community = community[torch.randperm(len(community), generator=rng)]
    base = len(community) + community * sources
    return batch_of([(b + torch.randperm(sources, generator=rng)[: sources // 2]).tolist() for b in base]), community


@pytest.mark.parametrize("objective", ["largest", "total"])
@pytest.mark.parametrize(("count", "num_parts"), [(2, 2), (4, 4), (8, 4), (16, 16)])
def test_communities_are_not_cut(count: int, num_parts: int, objective: str) -> None:
    mb, community = communities(count, 24, 16)
    part = star_parts(mb, num_parts, objective=objective)
    assert redundancy(mb.split(part), mb).ratio == 1.0
    assert torch.bincount(part).tolist() == [24 * count // num_parts] * num_parts
    assert len({(int(a), int(b)) for a, b in zip(community, part, strict=True)}) == count


@pytest.mark.parametrize("fanouts", [(4,), (3, 4)])
def test_fewer_inputs_than_at_random(fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(400, 2000, seed=1), fanouts=fanouts, num_seeds=150)
    found, at_random = (
        redundancy(mb.split(partition_batch(mb, 5, method=method)), mb) for method in ("star", "random")
    )
    assert found.total_inputs < at_random.total_inputs


@pytest.mark.parametrize("num_parts", [2, 20, 59, 60])
def test_every_part_has_a_seed(num_parts: int) -> None:
    """Even if METIS assigns only sources to a part."""
    mb = random_minibatch(random_graph(600, 3000, seed=1), fanouts=(20,), num_seeds=60)
    assert mb.num_inputs > 150
    assert len(star_parts(mb, num_parts).unique()) == num_parts


def test_a_source_shared_by_all_leaves_no_part_empty() -> None:
    mb = batch_of([[20] * 3] * 20)
    assert torch.bincount(star_parts(mb, 4), minlength=4).min() >= 1


def graph_of(mb: MiniBatch, weights: Tensor | None = None) -> StarGraph:
    return star_graph(PreparedBatch(mb, PartitionOptions(weights=weights)))


def test_vertex_weights_are_fair_shares_of_bytes() -> None:
    """The bytes of all inputs and edges, each shared among the vertices that need it; a seed has its edges' too."""
    for fanouts in ((3,), (2, 3)):
        mb = random_minibatch(random_graph(100, 500, seed=1), fanouts=fanouts, num_seeds=40)
        assert float(graph_of(mb).weights.sum()) == pytest.approx(bytes_of(mb))
    mb = batch_of([[3, 3, 4, 5], [4, 5], [5]])
    assert graph_of(mb).weights.tolist() == [512 + 64 + 512 + 256, 512 + 32 + 256, 512 + 16, 512]
    assert graph_of(mb, torch.tensor([3, 1, 1])).weights.tolist() == [3, 1, 1, 0]


@given(minibatches(), st.integers(1, 4), st.integers(0, 2**16))
def test_the_cut_is_that_of_all_stars(mb: MiniBatch, num_parts: int, seed: int) -> None:
    """A source that one seed reads is never cut, one that two seeds read is cut once if they are apart."""
    if not mb.blocks or not mb.num_seeds:
        return
    block, readers = mb.blocks[-1], {}
    for row, indices in enumerate(block.indices.split(block.indptr.diff().tolist())):
        for source in set(indices.tolist()) - {row}:
            readers.setdefault(source, []).append(row)
    kept = [v for v in range(block.num_src) if v < mb.num_seeds or len(readers.get(v, ())) > 2]
    graph = graph_of(mb)
    assert len(graph.weights) == len(kept)
    labels = torch.randint(num_parts, (len(kept),), generator=torch.Generator().manual_seed(seed))
    label = dict(zip(kept, labels.tolist(), strict=True))
    cut = 0
    for source, rows in readers.items():
        if source in label:
            cut += sum(label[row] != label[source] for row in rows)
        elif len(rows) == 2:
            cut += label[rows[0]] != label[rows[1]]
    ends = labels.repeat_interleave(graph.indptr.diff())
    apart = ends != labels[graph.indices]
    assert int(graph.edge_weight[apart].sum()) == 2 * cut


def test_parts_are_balanced_by_bytes() -> None:
    """A quarter of the seeds has nearly all inputs; they share four of these, which attracts them to one part."""
    shared = [80, 81, 82, 83]
    mb = batch_of([[*shared, *range(84 + 36 * v, 120 + 36 * v)] if v < 20 else [804 + v] for v in range(80)])
    sizes = part_bytes(mb, star_parts(mb, 4), 4)
    assert max(sizes) <= 1.1 * sum(sizes) / 4
    even = part_bytes(mb, star_parts(mb, 4, weights=torch.ones(80)), 4)
    assert max(even) > 2 * sum(even) / 4


def test_without_layers_seeds_are_cut_in_order() -> None:
    mb = MiniBatch(torch.arange(6), ())
    assert star_parts(mb, 3).tolist() == [0, 0, 1, 1, 2, 2]
    heavy = torch.tensor([5, 1, 1, 1, 1, 1])
    assert star_parts(mb, 2, weights=heavy).tolist() == [0, 1, 1, 1, 1, 1]


def test_without_edges_parts_are_equal() -> None:
    block = Block(torch.zeros(7, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 6, 6)
    mb = MiniBatch(torch.arange(6), (block,))
    assert torch.bincount(star_parts(mb, 3)).tolist() == [2, 2, 2]

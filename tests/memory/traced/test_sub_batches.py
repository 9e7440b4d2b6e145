"""Sub-batches for tracing: of many sizes, none large, with all in-degrees on request."""

import torch

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.memory.traced.dry_run import batches_of_all_degrees, sub_batches, work
from workbench.sampling.neighbor import NeighborSampler


def skewed_batch(num_nodes: int, num_seeds: int, fanouts: list[int]) -> MiniBatch:
    generator = torch.Generator().manual_seed(0)
    count = 12 * num_nodes
    dst = (num_nodes * torch.rand(count, generator=generator) ** 2).long()
    src = torch.randint(num_nodes, (count,), generator=generator)
    graph = Graph.from_edges(src, dst, num_nodes=num_nodes)
    return NeighborSampler(fanouts).sample(graph, torch.randperm(num_nodes, generator=generator)[:num_seeds])


BATCH = skewed_batch(20_000, 6_000, [4, 8])


def test_parts_are_of_many_sizes_and_small() -> None:
    parts = sub_batches(BATCH)
    assert len({work(part) for part in parts}) >= 8
    assert [work(part) for part in parts] == sorted(work(part) for part in parts)
    assert max(map(work, parts)) <= max(8_000, work(BATCH) / 16)
    assert all(part.num_seeds >= 4 for part in parts)


def test_half_of_the_parts_have_consecutive_ids() -> None:
    rank = torch.empty(20_000, dtype=torch.int64)
    rank[BATCH.seeds.sort().values] = torch.arange(BATCH.num_seeds)
    consecutive = [
        part for part in sub_batches(BATCH) if int(rank[part.seeds].max() - rank[part.seeds].min()) < part.num_seeds
    ]
    assert 4 <= len(consecutive) <= len(sub_batches(BATCH)) - 4


def test_random_parts_contain_the_smallest_and_largest_in_degree() -> None:
    extremes = [(int(b.in_degrees().min()), int(b.in_degrees().max())) for b in BATCH.blocks]
    complete = [
        all((b.in_degrees() == degree).any() for b, pair in zip(part.blocks, extremes, strict=True) for degree in pair)
        for part in sub_batches(BATCH)
    ]
    assert sum(complete) >= 3


def test_the_same_seed_gives_the_same_parts() -> None:
    a, b, c = (sub_batches(BATCH, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(x.node_ids, y.node_ids) for x, y in zip(a, b, strict=True))
    assert not all(torch.equal(x.node_ids, y.node_ids) for x, y in zip(a, c, strict=False))


def test_a_small_batch_is_one_of_its_own_parts() -> None:
    mb = skewed_batch(200, 50, [2, 3])
    assert sub_batches(mb)[-1] is mb
    tiny = skewed_batch(200, 2, [2, 3])
    assert sub_batches(tiny) == [tiny]


def test_parts_have_a_few_seeds_if_these_alone_exceed_the_limit() -> None:
    mb = skewed_batch(3_000, 500, [-1, -1, -1])
    parts = sub_batches(mb)
    assert len(parts) >= 8 and all(part.num_seeds <= 4 for part in parts)


def test_every_block_has_every_in_degree_twice() -> None:
    parts = batches_of_all_degrees(BATCH)
    assert len(parts) >= 8
    for part in parts:
        for block, whole in zip(part.blocks, BATCH.blocks, strict=True):
            counts, of_whole = (torch.bincount(b.in_degrees(), minlength=9) for b in (block, whole))
            assert (counts >= of_whole.clamp(max=2)).all()


def test_no_parts_if_all_in_degrees_exceed_the_limit() -> None:
    assert batches_of_all_degrees(skewed_batch(20_000, 10_000, [-1])) == []

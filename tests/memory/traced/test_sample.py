"""Sub-batches for traces: many sizes, none large, all in-degrees where asked."""

import torch

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.memory.traced.sample import batches_of_all_degrees, sub_batches, work
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


def test_half_of_the_parts_are_runs_of_ids() -> None:
    rank = torch.empty(20_000, dtype=torch.int64)
    rank[BATCH.seeds.sort().values] = torch.arange(BATCH.num_seeds)
    runs = [
        part for part in sub_batches(BATCH) if int(rank[part.seeds].max() - rank[part.seeds].min()) < part.num_seeds
    ]
    assert 4 <= len(runs) <= len(sub_batches(BATCH)) - 4


def test_random_parts_have_the_ends_of_the_in_degrees() -> None:
    ends = [(int(b.in_degrees().min()), int(b.in_degrees().max())) for b in BATCH.blocks]
    have = [
        all((b.in_degrees() == end).any() for b, pair in zip(part.blocks, ends, strict=True) for end in pair)
        for part in sub_batches(BATCH)
    ]
    assert sum(have) >= 3


def test_the_same_seed_gives_the_same_parts() -> None:
    a, b, c = (sub_batches(BATCH, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(x.node_ids, y.node_ids) for x, y in zip(a, b, strict=True))
    assert not all(torch.equal(x.node_ids, y.node_ids) for x, y in zip(a, c, strict=False))


def test_a_small_batch_is_a_part_itself() -> None:
    mb = skewed_batch(200, 50, [2, 3])
    assert sub_batches(mb)[-1] is mb
    tiny = skewed_batch(200, 2, [2, 3])
    assert sub_batches(tiny) == [tiny]


def test_parts_of_a_few_seeds_where_these_reach_more() -> None:
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


def test_no_parts_where_all_in_degrees_reach_too_much() -> None:
    assert batches_of_all_degrees(skewed_batch(20_000, 10_000, [-1])) == []

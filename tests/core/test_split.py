"""`MiniBatch.split` compared with a brute-force splitter in plain Python and the definition of a micro-batch."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench.core.split as compiled_module
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.exchange import Exchange
from workbench.core.minibatch import MiniBatch
from workbench.core.split import _seeds_by_part, split_rows_compiled, split_rows_torch
from workbench.kernels.threads import get_num_threads, set_num_threads

FIELDS = ("indptr", "indices", "edge_ids", "edge_weight", "edge_type")


def brute_force_split(mb: MiniBatch, part: list[int]) -> list[MiniBatch]:
    """Split by the definition, with a dictionary and a list per part."""
    micro = []
    for label in sorted(set(part)):
        nodes = [seed for seed, p in enumerate(part) if p == label]
        blocks: list[Block] = []
        for block in reversed(mb.blocks):
            local = {node: i for i, node in enumerate(nodes)}
            starts = block.indptr.tolist()
            rows = [list(range(starts[node], starts[node + 1])) for node in nodes]
            edges = [e for row in rows for e in row]
            sources = [int(block.indices[e]) for e in edges]
            for source in sources:
                local.setdefault(source, len(local))
            positions = torch.tensor(edges, dtype=torch.int64)
            fields = {n: getattr(block, n)[positions] for n in FIELDS[2:] if getattr(block, n) is not None}
            indptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
            indices = torch.tensor([local[s] for s in sources], dtype=block.indices.dtype)
            blocks.insert(0, Block(indptr, indices, num_src=len(local), num_dst=len(nodes), **fields))
            nodes = list(local)
        parent = torch.tensor(nodes, dtype=torch.int64)
        micro.append(MiniBatch(mb.node_ids[parent], tuple(blocks), parent=parent, step=mb.step))
    return micro


def assert_same(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert len(a.blocks) == len(b.blocks)
        assert torch.equal(a.node_ids, b.node_ids)
        assert a.parent is not None and b.parent is not None and torch.equal(a.parent, b.parent)
        for x, y in zip(a.blocks, b.blocks, strict=True):
            assert (x.num_src, x.num_dst) == (y.num_src, y.num_dst)
            for name in FIELDS:
                s, t = getattr(x, name), getattr(y, name)
                assert (s is None) == (t is None)
                assert s is None or (s.dtype == t.dtype and torch.equal(s, t)), name


@st.composite
def batches_and_parts(draw: st.DrawFn) -> tuple[MiniBatch, Tensor]:
    mb = draw(minibatches(max_layers=4))
    highest = draw(st.sampled_from((0, 1, 3, 20, 2**40)))
    part = draw(st.lists(st.integers(0, highest), min_size=mb.num_seeds, max_size=mb.num_seeds))
    return mb, torch.tensor(part, dtype=torch.int64)


@given(batches_and_parts())
def test_split_equals_brute_force(drawn: tuple[MiniBatch, Tensor]) -> None:
    mb, part = drawn
    micro = mb.split(part)
    assert_same(micro, brute_force_split(mb, part.tolist()))
    for m in micro:
        for block in m.blocks:
            block.validate()


@given(batches_and_parts())
def test_groups_of_seeds_may_overlap_and_omit_seeds(drawn: tuple[MiniBatch, Tensor]) -> None:
    mb, part = drawn
    groups = [(part == label).nonzero()[:, 0] for label in part.unique().tolist()[1:]]
    expected = brute_force_split(mb, part.tolist())[1:]
    assert_same(mb.select([*groups, *groups]), expected + expected)


def test_seeds_of_a_group_keep_its_order(medium: MiniBatch) -> None:
    (micro,) = medium.select([torch.tensor([5, 2])])
    assert micro.seeds.tolist() == medium.seeds[[5, 2]].tolist()
    assert medium.select([]) == []
    with pytest.raises(IndexError, match="group contains"):
        medium.select([torch.tensor([medium.num_seeds])])


@given(batches_and_parts())
def test_torch_equals_compiled(drawn: tuple[MiniBatch, Tensor]) -> None:
    mb, part = drawn
    order, bounds = _seeds_by_part(part, mb.num_seeds)
    batch = mb.node_ids, mb.blocks
    assert_same(split_rows_torch(*batch, order, bounds), split_rows_compiled(*batch, order, bounds))


@given(batches_and_parts())
def test_every_destination_keeps_its_in_edges(drawn: tuple[MiniBatch, Tensor]) -> None:
    mb, part = drawn
    micro = mb.split(part)
    seeds = torch.cat([m.seeds for m in micro]) if micro else torch.empty(0, dtype=torch.int64)
    assert sorted(seeds.tolist()) == sorted(mb.seeds.tolist())
    for m in micro:
        assert m.parent is not None and torch.equal(m.node_ids, mb.node_ids[m.parent])
        for split, whole in zip(m.blocks, mb.blocks, strict=True):
            for row in range(split.num_dst):
                parent = int(m.parent[row])
                edges = slice(int(split.indptr[row]), int(split.indptr[row + 1]))
                parent_edges = slice(int(whole.indptr[parent]), int(whole.indptr[parent + 1]))
                assert torch.equal(m.parent[split.indices[edges].long()], whole.indices[parent_edges].long())
                for name in FIELDS[2:]:
                    values = getattr(whole, name)
                    assert values is None or torch.equal(getattr(split, name)[edges], values[parent_edges])


@pytest.fixture(scope="module")
def medium() -> MiniBatch:
    graph = random_graph(400, 3000, seed=3, edge_weight=torch.float32, num_edge_types=4)
    return random_minibatch(graph, fanouts=(4, 3, 5), seed=3, num_seeds=150, step=7)


def labels_of(mb: MiniBatch, num_parts: int) -> Tensor:
    return torch.arange(mb.num_seeds) * 7919 % num_parts


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_do_not_change_the_parts(medium: MiniBatch, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "_MIN_EDGES_PER_THREAD", 1)
    before = get_num_threads()
    set_num_threads(threads)
    try:
        micro = medium.split(labels_of(medium, 11))
    finally:
        set_num_threads(before)
    assert_same(micro, brute_force_split(medium, labels_of(medium, 11).tolist()))


def test_one_seed_per_part(medium: MiniBatch) -> None:
    part = torch.arange(medium.num_seeds).flip(0)
    micro = medium.split(part)
    assert torch.equal(torch.cat([m.seeds for m in micro]), medium.seeds.flip(0))
    assert_same(micro, brute_force_split(medium, part.tolist()))


def test_one_part_is_the_batch(medium: MiniBatch) -> None:
    (whole,) = medium.split(torch.zeros(medium.num_seeds, dtype=torch.int64))
    assert torch.equal(whole.node_ids, medium.node_ids)
    for copy, block in zip(whole.blocks, medium.blocks, strict=True):
        assert torch.equal(copy.indices, block.indices)


def test_parent_of_a_nested_split_refers_to_the_first_split(medium: MiniBatch) -> None:
    for half in medium.split(labels_of(medium, 2)):
        quarters = half.split(labels_of(half, 2))
        assert_same(quarters, brute_force_split(half, labels_of(half, 2).tolist()))
        for quarter in quarters:
            assert quarter.parent is not None and half.parent is not None
            assert torch.equal(quarter.node_ids, medium.node_ids[half.parent[quarter.parent]])


def test_labels_restart_before_they_overflow(medium: MiniBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "_LABEL_LIMIT", 3 * medium.num_inputs)
    part = labels_of(medium, 40)
    assert_same(medium.split(part), brute_force_split(medium, part.tolist()))


def test_more_nodes_than_int32_labels(medium: MiniBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "_LABEL_LIMIT", 5)
    part = labels_of(medium, 4)
    assert_same(medium.split(part), brute_force_split(medium, part.tolist()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_edge_weights_of_any_dtype(medium: MiniBatch, dtype: torch.dtype) -> None:
    blocks = tuple(
        Block(b.indptr, b.indices, b.num_src, b.num_dst, edge_weight=torch.randn(b.num_edges).to(dtype))
        for b in medium.blocks
    )
    mb = MiniBatch(medium.node_ids, blocks)
    assert_same(mb.split(labels_of(mb, 5)), brute_force_split(mb, labels_of(mb, 5).tolist()))


def test_gradients_reach_edge_weights() -> None:
    weight = torch.ones(4, requires_grad=True)
    block = Block(torch.tensor([0, 2, 4]), torch.tensor([2, 1, 2, 2], dtype=torch.int32), 3, 2, edge_weight=weight)
    first, _ = MiniBatch(torch.arange(3), (block,)).split(torch.tensor([0, 1]))
    assert first.blocks[0].edge_weight is not None
    first.blocks[0].edge_weight.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1, 1, 0, 0]


def dense_batch(medium: MiniBatch) -> MiniBatch:
    """Return a batch whose blocks are row prefixes of one CSR."""
    whole = medium.blocks[0]
    blocks = [whole]
    for outer in medium.blocks[1:]:
        edges = int(whole.indptr[outer.num_dst])
        views = {n: getattr(whole, n)[:edges] for n in FIELDS[1:]}
        blocks.append(Block(whole.indptr[: outer.num_dst + 1], num_src=outer.num_src, num_dst=outer.num_dst, **views))
    return MiniBatch(medium.node_ids, tuple(blocks))


def dense_like() -> MiniBatch:
    """Return a batch with all neighbours in every layer, so that a node's row is equal in all of them."""
    graph = random_graph(200, 300, seed=5, edge_weight=torch.float32, num_edge_types=4)
    return dense_batch(random_minibatch(graph, fanouts=(-1, -1, -1), num_seeds=20, seed=5))


def test_blocks_that_share_a_csr_keep_sharing_it() -> None:
    mb = dense_like()
    micro = mb.split(labels_of(mb, 4))
    assert_same(micro, brute_force_split(mb, labels_of(mb, 4).tolist()))
    for m in micro:
        assert len({block.indices.data_ptr() for block in m.blocks}) == 1
        assert m.parent is not None
        assert m.nbytes == m.blocks[0].nbytes + m.node_ids.nbytes + m.parent.nbytes


def test_parts_keep_no_storage_beyond_nbytes(medium: MiniBatch) -> None:
    order, bounds = _seeds_by_part(labels_of(medium, 6), medium.num_seeds)
    for split in (split_rows_compiled, split_rows_torch):
        for piece in split(medium.node_ids, medium.blocks, order, bounds):
            m = MiniBatch(piece.node_ids, piece.blocks, parent=piece.parent)
            storages = {
                t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                for t in m._tensors().values()
                if t is not None
            }
            assert m.nbytes == sum(storages.values())


def test_a_batch_without_layers() -> None:
    mb = MiniBatch(torch.tensor([4, 2, 9]), ())
    assert [m.node_ids.tolist() for m in mb.split(torch.tensor([1, 0, 1]))] == [[2], [4, 9]]
    order, bounds = _seeds_by_part(torch.tensor([1, 0, 1]), 3)
    assert [m.node_ids.tolist() for m in split_rows_torch(mb.node_ids, mb.blocks, order, bounds)] == [[2], [4, 9]]


def test_bad_parts_are_rejected(medium: MiniBatch) -> None:
    with pytest.raises(ValueError, match=r"first dimension must be 150"):
        medium.split(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"part contains -2"):
        medium.split(torch.full((150,), -2))
    with pytest.raises(TypeError, match=r"int64"):
        medium.split(torch.zeros(150))
    with pytest.raises(ValueError, match=r"one dimension"):
        medium.split(torch.zeros(150, 1, dtype=torch.int64))


def test_cooperative_batches_are_rejected() -> None:
    block = Block(torch.tensor([0, 1]), torch.tensor([1], dtype=torch.int32), 2, 1)
    halo = Exchange(torch.empty(0, dtype=torch.int64), (0,), (1,), torch.tensor([7]))
    mb = MiniBatch(torch.tensor([3]), (block,), exchanges=(halo,))
    with pytest.raises(ValueError, match=r"has 1 exchanges"):
        mb.split(torch.tensor([0]))

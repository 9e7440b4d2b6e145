"""Sums, maxima, attention and gathering over the rows of a block: both implementations compared with Python loops."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.kernels import edge_softmax, gather, segment, segment as segment_max, segment as segment_sum
from workbench.kernels.edge_softmax import edge_attention
from workbench.kernels.gather import gather_edges
from workbench.kernels.segment import (
    edge_ranges,
    max_rows,
    max_rows_torch,
    segment_max as maximum,
    segment_mean,
    segment_sum as total,
    segment_sum_with_self,
)


def block_of(rows: list[list[int]], num_src: int | None = None) -> Block:
    """Build a block from the sources of each destination."""
    flat = [s for row in rows for s in row]
    indptr = torch.tensor([0, *(len(row) for row in rows)], dtype=torch.int64).cumsum(0)
    size = max([len(rows), *(s + 1 for s in flat)]) if num_src is None else num_src
    return Block(indptr, torch.tensor(flat, dtype=torch.int32), size, len(rows))


blocks = st.lists(st.lists(st.integers(0, 6), max_size=6), max_size=6).map(lambda rows: block_of(rows, 7))


@pytest.fixture(params=["compiled", "torch"], scope="module")
def form(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            for module in (segment_sum, segment_max, edge_softmax, gather):
                patch.setattr(module, "use_compiled", lambda _: False)
            patch.setattr(segment, "MESSAGE_BYTES", 128)
        yield request.param


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)), dtype=torch.float64)


def edges_of(block: Block) -> list[list[tuple[int, int]]]:
    """Return the (edge, source) pairs of each row."""
    bounds, sources = block.indptr.tolist(), block.indices.tolist()
    return [[(e, sources[e]) for e in range(lo, hi)] for lo, hi in pairwise(bounds)]


def by_loops(block: Block, x: Tensor, reduce: Callable[[list[Tensor]], Tensor], weight: Tensor | None = None) -> Tensor:
    rows = [
        reduce(
            [x[s] * (1 if weight is None else weight[e].unsqueeze(-1)) for e, s in row] or [x.new_zeros(x.shape[1:])]
        )
        for row in edges_of(block)
    ]
    return torch.stack(rows) if rows else x.new_zeros(0, *x.shape[1:])


def assert_same(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weights = normal(*ours.shape)
    mine = torch.autograd.grad((ours * weights).sum(), inputs, materialize_grads=True)
    others = [torch.zeros_like(i) for i in inputs]
    if theirs.requires_grad:
        others = torch.autograd.grad((theirs * weights).sum(), inputs, materialize_grads=True)
    for a, b in zip(mine, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@given(block=blocks)
def test_weighted_sums_per_head(form: str, block: Block) -> None:
    x, weight = normal(7, 3, 2).requires_grad_(), normal(block.num_edges, 3).requires_grad_()
    expected = by_loops(block, x, lambda m: torch.stack(m).sum(0), weight)
    assert_same(total(block, x, weight), expected, [x, weight])


@given(block=blocks)
def test_scaled_sums_and_means(form: str, block: Block) -> None:
    x, weight, scale = normal(7, 5).requires_grad_(), normal(block.num_edges).requires_grad_(), normal(block.num_dst)
    summed = by_loops(block, x, lambda m: torch.stack(m).sum(0), weight)
    assert_same(total(block, x, weight, scale=scale), summed * scale[:, None], [x, weight])
    assert_same(segment_mean(block, x), by_loops(block, x, lambda m: torch.stack(m).mean(0)), [x])


@given(block=blocks)
def test_segment_sum_with_self(form: str, block: Block) -> None:
    x = normal(7, 4).requires_grad_()
    summed = by_loops(block, x, lambda m: torch.stack(m).sum(0))
    out, own = segment_sum_with_self(block, x)
    assert_same(torch.cat([out, own]), torch.cat([summed, x[: block.num_dst]]), [x])
    assert_same(segment_sum_with_self(block, x)[1], x[: block.num_dst], [x])


@given(block=blocks)
def test_weighted_maxima(form: str, block: Block) -> None:
    x, weight = normal(7, 5).requires_grad_(), normal(block.num_edges).requires_grad_()
    assert_same(maximum(block, x), by_loops(block, x, lambda m: torch.stack(m).amax(0)), [x])
    assert_same(maximum(block, x, weight), by_loops(block, x, lambda m: torch.stack(m).amax(0), weight), [x, weight])


@given(block=blocks)
def test_attention(form: str, block: Block) -> None:
    left, right = normal(7, 2).requires_grad_(), normal(block.num_dst, 2).requires_grad_()
    rows = [
        torch.nn.functional.leaky_relu(torch.stack([left[s] + right[r] for _, s in row]), 0.2).softmax(0)
        for r, row in enumerate(edges_of(block))
        if row
    ]
    assert_same(edge_attention(block, left, right), torch.cat(rows) if rows else left.new_zeros(0, 2), [left, right])


def test_attention_of_scores_in_any_memory_layout_has_the_same_gradients() -> None:
    """Products per head often have the layout of a transposed matrix."""
    block = random_minibatch(random_graph(40, 200), fanouts=(3,), num_seeds=9).blocks[0]
    found = []
    for transposed in (False, True):
        scores = [
            torch.linspace(-2, 2, 2 * n, dtype=torch.float64).sin().view(n, 2) for n in (block.num_src, block.num_dst)
        ]
        left, right = (s.T.contiguous().T if transposed else s for s in scores)
        left, right = left.detach().requires_grad_(), right.detach().requires_grad_()
        out = edge_attention(block, left, right)
        found.append(torch.autograd.grad((out * torch.arange(out.numel()).view_as(out)).sum(), (left, right)))
    for plain, other in zip(*found, strict=True):
        assert torch.equal(plain, other)


@given(block=blocks, seed=st.integers(0, 9))
def test_gathered_edges(form: str, block: Block, seed: int) -> None:
    x = normal(7, 3).requires_grad_()
    order = torch.randperm(block.num_edges, generator=torch.Generator().manual_seed(seed))
    assert_same(gather_edges(block, x, order), x[block.indices.long()[order]], [x])


def test_the_first_of_equal_values_gets_the_gradient(form: str) -> None:
    x = torch.tensor([[1.0], [2.0], [2.0]], requires_grad=True)
    maximum(block_of([[0, 2, 1]]), x).sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0, 0, 1]


@pytest.mark.parametrize("values", [[1.0, math.nan, 3.0], [-math.inf, -math.inf, -math.inf], [math.inf, 0.0, math.nan]])
def test_winners_of_special_values(values: list[float]) -> None:
    block, x = block_of([[0, 1, 2], []], 3), torch.tensor(values)[:, None]
    for ours, theirs in zip(max_rows(block, x, None), max_rows_torch(block, x, None), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert max_rows(block, x, None)[1].dtype == torch.int32


def test_attention_of_large_scores_stays_finite(form: str) -> None:
    block = block_of([[0, 1], [0]])
    out = edge_attention(block, torch.tensor([[3000.0], [-3000.0]]), torch.tensor([[10.0], [10.0]]))
    assert out.flatten().tolist() == [1, 0, 1]


def saved_by(call: Callable[[], Tensor]) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
        call()
    return shapes


def test_only_tensors_needed_by_backward_are_saved() -> None:
    block = block_of([[0, 1], [2, 2, 1]])
    x, weight = normal(3, 4).requires_grad_(), normal(5)
    assert saved_by(lambda: total(block, x)) == []
    assert saved_by(lambda: total(block, x, weight)) == [(5,)]
    assert (3, 4) in saved_by(lambda: total(block, x, weight.requires_grad_()))
    assert saved_by(lambda: maximum(block, x)) == [(2, 4)]


def test_ranges_of_edges_cover_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "MESSAGE_BYTES", 100)
    assert [(r.start, r.stop) for r in edge_ranges(25, 10)] == [(0, 10), (10, 20), (20, 25)]
    assert [(r.start, r.stop) for r in edge_ranges(3, 1000)] == [(0, 1), (1, 2), (2, 3)]


def test_wrong_shapes_are_named() -> None:
    block, x = block_of([[0, 1], [2]]), torch.ones(3, 4)
    with pytest.raises(ValueError, match="3 sources"):
        total(block, torch.ones(4, 4))
    with pytest.raises(ValueError, match="one row per edge: 3"):
        total(block, x, torch.ones(2))
    with pytest.raises(ValueError, match="one row per edge: 3"):
        maximum(block, x, torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        edge_attention(block, x, x)

"""Message passing on fake tensors: segment sums and maxima, edge attention, gathered messages."""

from collections.abc import Sequence

from workbench.kernels.segment import MESSAGE_BYTES
from workbench.memory.analytic.dense import cast
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.fake_block import FakeBlock
from workbench.memory.analytic.simulated_allocator import Storage
from workbench.memory.sizes import BlockSizes


def compute_itemsize(itemsize: int) -> int:
    """Bytes per element while computing: half precision is accumulated in float32."""
    return max(4, itemsize)


def message_chunk(num_edges: int, row_bytes: int) -> int:
    """Number of edges that the torch forms process at a time, as in `workbench.kernels.segment.edge_ranges`."""
    return min(num_edges, max(1, MESSAGE_BYTES // max(1, row_bytes)))


def _messages(autograd: FakeAutograd, num_edges: int, row_bytes: int, copies: float = 1) -> Storage:
    """Allocate `copies` times the messages of one chunk of edges; temporary if the caller drops the result."""
    edges = message_chunk(num_edges, int(row_bytes * max(1, copies)))
    return autograd.allocator.allocate(int(edges * row_bytes * copies), autograd.term)


def _sum_rows(
    autograd: FakeAutograd, block: FakeBlock, rows: int, cols: int, itemsize: int, scaled: bool = False
) -> FakeTensor:
    """Sum messages over the edges into a result [rows, cols]."""
    out = autograd.empty(rows, cols, itemsize)
    if autograd.on_cuda:
        block.derive_destinations()
        _messages(autograd, block.sizes.num_edges, cols * itemsize + (itemsize if scaled else 0))
    return out


def segment_sum_with_self(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    scale: FakeTensor | None = None,
    weight: FakeTensor | None = None,
) -> tuple[FakeTensor, FakeTensor]:
    """`workbench.kernels.segment_sum.segment_sum_with_self`; `weight` is attention, which needs a gradient, or None."""
    itemsize = x.itemsize
    weight = None if weight is None else cast(autograd, weight, compute_itemsize(itemsize))
    rows = cast(autograd, x, compute_itemsize(itemsize))
    out, h_self = _sum_with_self(autograd, block, rows, scale, weight)
    return cast(autograd, out, itemsize), cast(autograd, h_self, itemsize)


def _sum_with_self(
    autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, scale: FakeTensor | None, weight: FakeTensor | None
) -> tuple[FakeTensor, FakeTensor]:
    sizes = block.sizes
    cols, itemsize, needs_grad, scaled = x.cols, x.itemsize, x.requires_grad, scale is not None
    out = _sum_rows(autograd, block, sizes.num_dst, cols, itemsize)
    h_self = x.view(sizes.num_dst, is_view=True).detach()
    heads = None if weight is None else weight.cols
    if needs_grad:
        block.expect_transposed()

    def backward(grad: FakeTensor | None, self_grad: FakeTensor | None) -> Sequence[FakeTensor | None]:
        grad = self_grad if grad is None else grad
        for_x = None
        if needs_grad:
            if not autograd.on_cuda:
                block.derive_transposed()
            for_x = _sum_rows(autograd, block, sizes.num_src, cols, itemsize, scaled)
        return for_x, None if heads is None else _edge_dots(autograd, block, heads, cols, itemsize)

    autograd.record([out, h_self], [x, weight], backward, saves=[scale] if weight is None else [x, weight, scale])
    return out, h_self


def _edge_dots(autograd: FakeAutograd, block: FakeBlock, heads: int, cols: int, itemsize: int) -> FakeTensor:
    out = autograd.empty(block.sizes.num_edges, heads, itemsize)
    if autograd.on_cuda:
        _messages(autograd, block.sizes.num_edges, cols * itemsize, copies=2)
    return out


def segment_max(autograd: FakeAutograd, block: FakeBlock, x: FakeTensor) -> FakeTensor:
    """`workbench.kernels.segment_max.segment_max`, which saves the edge of each maximum (its argmax)."""
    return cast(autograd, _max(autograd, block, cast(autograd, x, compute_itemsize(x.itemsize))), x.itemsize)


def _max(autograd: FakeAutograd, block: FakeBlock, x: FakeTensor) -> FakeTensor:
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    out = autograd.empty(sizes.num_dst, cols, itemsize)
    argmax = autograd.empty(sizes.num_dst, cols, sizes.edge_bytes)
    if autograd.on_cuda:
        block.derive_destinations()
        edge_ids = autograd.allocator.allocate(sizes.num_edges * sizes.edge_bytes, autograd.term)
        rows = autograd.allocator.allocate(sizes.num_edges * 8, autograd.term)
        messages = _messages(autograd, sizes.num_edges, cols * itemsize, copies=2.25)  # with candidates and winners
        autograd.allocate_temporary(argmax.rows * cols)
        del edge_ids, rows, messages

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_x = autograd.empty(sizes.num_src, cols, itemsize)
        if autograd.on_cuda:
            _scatter_to_argmax(autograd, block, cols)
        return [for_x]

    autograd.record([out], [x], backward, saves=[argmax])
    return out


def _scatter_to_argmax(autograd: FakeAutograd, block: FakeBlock, cols: int) -> None:
    edges = autograd.empty(block.sizes.num_dst, cols, 8)
    values = autograd.empty(block.sizes.num_dst, cols, 4)
    sources = autograd.empty(block.sizes.num_edges, 1, 8)
    autograd.allocate_temporary(edges.nbytes)
    del edges, values, sources


def edge_attention(autograd: FakeAutograd, block: FakeBlock, left: FakeTensor, right: FakeTensor) -> FakeTensor:
    """`workbench.kernels.edge_softmax.edge_attention`, which saves the scores and the attention."""
    itemsize, sizes, heads = left.itemsize, block.sizes, left.cols
    left, right = cast(autograd, left, compute_itemsize(itemsize)), cast(autograd, right, compute_itemsize(itemsize))
    out = autograd.empty(sizes.num_edges, heads, left.itemsize)
    _score_edges(autograd, block, out)
    score_itemsize = out.itemsize
    block.expect_transposed()

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return _attention_gradients(autograd, block, heads, score_itemsize)

    autograd.record([out], [left, right], backward, saves=[left, right, out])
    return cast(autograd, out, itemsize)


def _score_edges(autograd: FakeAutograd, block: FakeBlock, out: FakeTensor) -> None:
    """The compiled form makes contiguous copies of the node scores, the torch form one copy per edge."""
    sizes = block.sizes
    if autograd.on_cuda:
        block.derive_destinations()
        rows, copies = autograd.empty(sizes.num_edges, 1, 8), autograd.empty_like(out)
        autograd.allocate_temporary(out.nbytes)
        del rows, copies
    else:
        _contiguous_scores(autograd, sizes, out)


def _contiguous_scores(autograd: FakeAutograd, sizes: BlockSizes, out: FakeTensor) -> None:
    left = autograd.empty(sizes.num_src, out.cols, out.itemsize)
    autograd.allocate_temporary(sizes.num_dst * out.cols * out.itemsize)
    del left


def _attention_gradients(autograd: FakeAutograd, block: FakeBlock, heads: int, itemsize: int) -> Sequence[FakeTensor]:
    sizes = block.sizes
    per_edge = autograd.empty(sizes.num_edges, heads, itemsize)
    for_right = autograd.empty(sizes.num_dst, heads, itemsize)
    if autograd.on_cuda:
        copies = [autograd.empty_like(per_edge) for _ in range(3)]  # edge sums, out * slope, the result of torch.where
        autograd.allocate_temporary(sizes.num_edges * heads)
        del copies
        edges = autograd.empty(sizes.num_edges, 1, 8)
        for_left = autograd.empty(sizes.num_src, heads, itemsize)
        _messages(autograd, sizes.num_edges, heads * itemsize)
        del edges
    else:
        _contiguous_scores(autograd, sizes, per_edge)
        block.derive_transposed()
        for_left = autograd.empty(sizes.num_src, heads, itemsize)
    return for_left, for_right


def gather_edges(autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, order: Storage) -> FakeTensor:
    """`workbench.kernels.gather.gather_edges`, which saves the edge order."""
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    sources = autograd.allocator.allocate(sizes.num_edges * sizes.index_bytes, autograd.term)
    out = autograd.empty(sizes.num_edges, cols, itemsize)
    del sources
    if x.requires_grad:
        block.expect_transposed()

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        grad = cast(autograd, grad.detach(), compute_itemsize(itemsize))
        if autograd.on_cuda:
            for_x = autograd.empty(sizes.num_src, cols, grad.itemsize)
            autograd.allocate_temporary(sizes.num_edges * sizes.index_bytes)
        else:
            entries = block.derive_transposed().num_edges
            position = autograd.empty(entries, 1, 8)
            autograd.allocate_temporary(sizes.num_edges * 8)
            edges = autograd.empty(entries, 1, 8)
            for_x = autograd.empty(sizes.num_src, cols, grad.itemsize)
            del position, edges
        return [cast(autograd, for_x, itemsize)]

    autograd.record([out], [x], backward, saves=[order])
    return out

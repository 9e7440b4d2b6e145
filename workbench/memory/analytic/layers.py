"""Operations on fake tensors, with the allocations of the real ones.

Dense operations, sums and maxima over edges, attention, the LSTM aggregator, R-GCN, and the loss functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.core.errors import deferred_interrupt
from workbench.kernels.dropout_mask import CHANNELS_PER_WORD, ROW_WORD_BYTES
from workbench.kernels.segment import MESSAGE_BYTES
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeBlock, FakeTensor, Storage
from workbench.memory.estimate import BlockSizes
from workbench.nn.losses import check_loss
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import packed_sizes

NORMS: tuple[type[nn.Module], ...] = (nn.Identity, nn.BatchNorm1d, nn.LayerNorm)

SAVE_RESULT: tuple[type[nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.Sigmoid)

SAVE_INPUT: tuple[type[nn.Module], ...] = (nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU)
"""The supported activations, by the tensor that they save for the backward pass."""


def linear(
    autograd: FakeAutograd, x: FakeTensor, out_dim: int, weight: FakeTensor | None, bias: FakeTensor | None = None
) -> FakeTensor:
    """`x @ weight + bias`: saves the input for the weight's gradient. Pass None for a frozen weight."""
    out = autograd.empty(x.rows, out_dim, x.itemsize)
    rows, cols, needs_grad = x.rows, x.cols, x.requires_grad

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_x = autograd.empty(rows, cols, grad.itemsize) if needs_grad else None
        for_weight = None if weight is None else autograd.empty(cols, grad.cols, grad.itemsize)
        for_bias = None if bias is None else autograd.empty(grad.cols, 1, grad.itemsize)
        return for_x, for_weight, for_bias

    autograd.record([out], [x, weight, bias], backward, saves=[] if weight is None else [x])
    return out


def linear_with_self(
    autograd: FakeAutograd,
    x: FakeTensor,
    num_dst: int,
    out_dim: int,
    weight: FakeTensor | None,
    bias: FakeTensor | None = None,
) -> tuple[FakeTensor, FakeTensor]:
    """A linear layer that also returns the destinations' rows of its input, as `workbench.nn.linear_with_self` does.

    The returned rows share the storage of `x`, and their gradient shares the storage of its gradient.
    """
    out, h_self = autograd.empty(x.rows, out_dim, x.itemsize), x.view(num_dst, is_view=True).detach()
    rows, cols, itemsize, needs_grad = x.rows, x.cols, x.itemsize, x.requires_grad

    def backward(grad: FakeTensor | None, _h_self_grad: FakeTensor | None = None) -> Sequence[FakeTensor | None]:
        if grad is None or grad.itemsize != itemsize:
            grad = autograd.empty(rows, out_dim, itemsize)
        for_x = autograd.empty(rows, cols, itemsize) if needs_grad else None
        for_weight = None if weight is None else autograd.empty(cols, out_dim, itemsize)
        return for_x, for_weight, None if bias is None else autograd.empty(out_dim, 1, itemsize)

    autograd.record([out, h_self] if needs_grad else [out], [x, weight, bias], backward, saves=[x, weight])
    return out, h_self


def cast(autograd: FakeAutograd, x: FakeTensor, itemsize: int) -> FakeTensor:
    """Convert to another precision: a copy, or the tensor itself where the precision is the same."""
    if x.itemsize == itemsize:
        return x
    out, original = autograd.empty(x.rows, x.cols, itemsize), x.itemsize
    autograd.record([out], [x], lambda grad: [autograd.empty(grad.rows, grad.cols, original)])
    return out


def add(autograd: FakeAutograd, a: FakeTensor, b: FakeTensor, *, in_place: bool = False) -> FakeTensor:
    """`a + b`, in place in the memory of `a`; both gradients share the storage of the result's gradient."""
    out = a.detach() if in_place else autograd.empty_like(a)
    autograd.record([out], [a, b], lambda grad: [grad.detach(), grad.detach()])
    return out


def add_bias(autograd: FakeAutograd, x: FakeTensor, bias: nn.Parameter | None) -> FakeTensor:
    """`x + bias`, trainable or frozen; `x` itself if `bias` is None."""
    if bias is None:
        return x
    out = autograd.empty_like(x)
    learned = autograd.leaf(bias)

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return grad, None if learned is None else autograd.empty(grad.cols, 1, grad.itemsize)

    autograd.record([out], [x, learned], backward)
    return out


def scale(autograd: FakeAutograd, x: FakeTensor, factor: FakeTensor | None = None) -> FakeTensor:
    """`x` times a scalar or one factor per row; a trainable factor saves `x` for its gradient."""
    out = autograd.empty_like(x)
    learned = factor is not None and factor.requires_grad

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_x = autograd.empty_like(grad)
        if not learned:
            return for_x, None
        autograd.allocate_temporary(grad.nbytes)
        return for_x, autograd.empty(1, 1, grad.itemsize)

    autograd.record([out], [x, factor], backward, saves=[x, factor] if learned else [factor])
    return out


def activate(autograd: FakeAutograd, x: FakeTensor, module: nn.Module) -> FakeTensor:
    """Apply an activation of `SAVE_RESULT` or `SAVE_INPUT`."""
    out = autograd.empty_like(x)
    saved = out if type(module) in SAVE_RESULT else x
    autograd.record([out], [x], lambda grad: [autograd.empty_like(grad)], saves=[saved])
    return out


def normalise(autograd: FakeAutograd, x: FakeTensor, module: nn.Module) -> FakeTensor:
    """Apply LayerNorm or BatchNorm, which save their input and its statistics."""
    if isinstance(module, nn.Identity):
        return x
    out, channels = autograd.empty_like(x), x.cols
    count = x.rows if isinstance(module, nn.LayerNorm) else channels
    statistics = [autograd.empty(count, 1, x.itemsize) for _ in range(2)]
    weight, bias = (autograd.leaves.get(id(p)) for p in (module.weight, module.bias))

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return autograd.empty_like(grad), *(autograd.empty(channels, 1, grad.itemsize) for _ in range(2))

    autograd.record([out], [x, weight, bias], backward, saves=[x, *statistics])
    return out


def dropout(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    """Apply `workbench.nn.dropout.HashDropout`, which saves node ids that the batch contains already."""
    out = _masked(autograd, x)
    autograd.record([out], [x], lambda grad: [_masked(autograd, grad)])
    return out


def _masked(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    """The compiled form allocates only the result; the torch form also hashes one range of rows at a time."""
    out = autograd.empty_like(x)
    allocate_mask_workspace(autograd, x)
    return out


def allocate_mask_workspace(autograd: FakeAutograd, x: FakeTensor) -> None:
    """Allocate and free what `workbench.kernels.dropout_mask.apply_mask` needs besides its result."""
    if autograd.on_cuda or x.itemsize < 4:
        words = -(-x.cols // CHANNELS_PER_WORD)
        rows = min(x.rows, max(1, MESSAGE_BYTES // (ROW_WORD_BYTES * words)))
        bits = autograd.allocator.allocate(rows * words * 8, autograd.term)
        autograd.allocate_temporary(2 * rows * words * CHANNELS_PER_WORD * 8)
        del bits


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
    if autograd.sums_in_torch:
        block.derive_destinations()
        _messages(autograd, block.sizes.num_edges, cols * itemsize + (itemsize if scaled else 0))
    return out


def edge_weight(autograd: FakeAutograd, sizes: BlockSizes, itemsize: int, term: str | None = None) -> FakeTensor | None:
    """A block's edge weights in the precision of its sums: a copy, or those of the batch, with which they count."""
    if sizes.weight_bytes is None:
        return None
    if sizes.weight_bytes == itemsize:
        return FakeTensor(None, sizes.num_edges, 1, itemsize)
    return autograd.empty(sizes.num_edges, 1, itemsize, term)


def segment_sum_with_self(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    scale: FakeTensor | None = None,
    weight: FakeTensor | None = None,
) -> tuple[FakeTensor, FakeTensor]:
    """`workbench.kernels.segment.segment_sum_with_self`; `weight` is attention; None: the block's weights."""
    itemsize, wide = x.itemsize, compute_itemsize(x.itemsize)
    weight = edge_weight(autograd, block.sizes, wide) if weight is None else cast(autograd, weight, wide)
    rows = cast(autograd, x, wide)
    out, h_self = _sum_with_self(autograd, block, rows, scale, weight)
    return cast(autograd, out, itemsize), cast(autograd, h_self, itemsize)


def _sum_with_self(
    autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, scale: FakeTensor | None, weight: FakeTensor | None
) -> tuple[FakeTensor, FakeTensor]:
    sizes = block.sizes
    cols, itemsize, needs_grad, scaled = x.cols, x.itemsize, x.requires_grad, scale is not None
    out = _sum_rows(autograd, block, sizes.num_dst, cols, itemsize)
    h_self = x.view(sizes.num_dst, is_view=True).detach()
    heads = None if weight is None or not weight.requires_grad else weight.cols
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

    autograd.record([out, h_self], [x, weight], backward, saves=[None if heads is None else x, weight, scale])
    return out, h_self


def _edge_dots(autograd: FakeAutograd, block: FakeBlock, heads: int, cols: int, itemsize: int) -> FakeTensor:
    out = autograd.empty(block.sizes.num_edges, heads, itemsize)
    if autograd.sums_in_torch:
        _messages(autograd, block.sizes.num_edges, cols * itemsize, copies=2)
    return out


def segment_max(autograd: FakeAutograd, block: FakeBlock, x: FakeTensor) -> FakeTensor:
    """`workbench.kernels.segment.segment_max`, which saves the edge of each maximum (its argmax)."""
    wide = compute_itemsize(x.itemsize)
    out = _max(autograd, block, cast(autograd, x, wide), edge_weight(autograd, block.sizes, wide))
    return cast(autograd, out, x.itemsize)


def _max(autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, weight: FakeTensor | None) -> FakeTensor:
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    out = autograd.empty(sizes.num_dst, cols, itemsize)
    argmax = autograd.empty(sizes.num_dst, cols, sizes.edge_bytes)
    if autograd.sums_in_torch:
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

    autograd.record([out], [x], backward, saves=[weight, argmax])
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


_PROBE_ROWS = 256

_NATIVE_SAVED = {"cpu": 7, "cuda": 6}  # per time step: four gates, the cell, its tanh (not on CUDA) and the state

_NATIVE_BACKWARD_TEMPORARIES = 9  # per time step, each the size of a state


def last_states(
    autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, lstm: nn.LSTM, weights: Sequence[FakeTensor | None]
) -> FakeTensor:
    """Sort by in-degree, gather the messages, run the LSTM on each bucket, restore the order of the states."""
    if autograd.backend.device == "cuda":
        return _states_of_packed(autograd, block, x, lstm, weights)
    sizes, allocate, term = block.sizes, autograd.allocator.allocate, autograd.term
    sorting = [allocate(sizes.num_dst * 8, term) for _ in range(4)]  # degrees, rows, sizes and counts of the buckets
    order = _edges_of_rows(autograd, block)
    messages = gather_edges(autograd, block, x, order)
    buckets = [(size, count) for size, count in sizes.buckets if count]
    parts = _split(autograd, messages, [size * count for size, count in buckets])
    pairs = zip(parts, buckets, strict=True)
    states = [_last_state_of_bucket(autograd, part, *bucket, lstm, weights) for part, bucket in pairs]
    joined = _cat(autograd, states, sizes.num_dst, lstm.hidden_size, x.itemsize)
    ranks = [allocate(sizes.num_dst * 8, term) for _ in range(2)]
    out = _permuted(autograd, joined)
    del sorting, ranks
    return out


def _states_of_packed(
    autograd: FakeAutograd, block: FakeBlock, x: FakeTensor, lstm: nn.LSTM, weights: Sequence[FakeTensor | None]
) -> FakeTensor:
    """Sort by in-degree, gather the messages, run the LSTM on packed sequences, place the states."""
    sizes, allocate, term = block.sizes, autograd.allocator.allocate, autograd.term
    sorting = [allocate(sizes.num_dst * 8, term) for _ in range(2)]  # in-degrees and rows
    autograd.allocate_temporary(sizes.num_dst * 8)
    batch_sizes = packed_sizes(sizes.buckets)
    if not batch_sizes:
        return autograd.empty(sizes.num_dst, lstm.hidden_size, x.itemsize)
    shifts = [allocate(sizes.num_edges * 8 * 2, term), allocate(sizes.num_edges * 8, term)]
    order = allocate(sizes.num_edges * 8, term)
    del shifts
    messages = gather_edges(autograd, block, x, order)
    del order
    last = _last_states_of_packed(autograd, messages, batch_sizes, lstm, weights)
    out, index = autograd.empty(sizes.num_dst, lstm.hidden_size, x.itemsize), sorting[1]
    autograd.allocate_temporary(out.nbytes)  # the zeros
    autograd.record([out], [last], lambda grad: [autograd.empty_like(last)], saves=[index])
    del sorting
    return out


def _edges_of_rows(autograd: FakeAutograd, block: FakeBlock) -> Storage:
    sizes = block.sizes
    rows = [autograd.allocator.allocate(sizes.num_dst * 8, autograd.term) for _ in range(2)]
    edges = [autograd.allocator.allocate(sizes.num_edges * 8, autograd.term) for _ in range(2)]
    order = autograd.allocator.allocate(sizes.num_edges * 8, autograd.term)
    del rows, edges
    return order


def _split(autograd: FakeAutograd, messages: FakeTensor, lengths: Sequence[int]) -> list[FakeTensor]:
    """Split into views; the backward pass concatenates their gradients once all have arrived."""
    parts = [messages.view(length, is_view=True).detach() for length in lengths]
    shape = messages.rows, messages.cols, messages.itemsize
    autograd.record(parts, [messages], lambda *grads: [autograd.empty(*shape)])
    return parts


def _cat(autograd: FakeAutograd, states: Sequence[FakeTensor], rows: int, cols: int, itemsize: int) -> FakeTensor:
    out = autograd.empty(rows, cols, itemsize)
    lengths = [state.rows for state in states]

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return [grad.view(length, is_view=True).detach() for length in lengths]

    autograd.record([out], states, backward)
    return out


def _permuted(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    out, order = autograd.empty_like(x), autograd.allocator.allocate(x.rows * 8, autograd.term)
    autograd.record([out], [x], lambda grad: [autograd.empty_like(grad)], saves=[order])
    return out


def _last_state_of_bucket(
    autograd: FakeAutograd,
    messages: FakeTensor,
    steps: int,
    rows: int,
    lstm: nn.LSTM,
    weights: Sequence[FakeTensor | None],
) -> FakeTensor:
    width, hidden, itemsize = lstm.input_size, lstm.hidden_size, messages.itemsize
    if steps == 0:
        return autograd.empty(rows, hidden, itemsize)
    is_time_major = steps == 1 or rows == 1  # otherwise transposed, time first
    inputs = messages if is_time_major else autograd.empty(rows * steps, width, itemsize)
    native, step_bytes = autograd.backend.lstm == "native", rows * hidden * itemsize
    saved = (_run_steps if native else _run_fused)(autograd, inputs, steps, rows, hidden)
    state = autograd.empty(rows, hidden, itemsize)
    autograd.allocate_temporary(step_bytes)  # the last cell state
    shapes = [(rows * steps, width), *((p.rows, p.cols) for p in weights if p is not None)]
    needs_grad = messages.requires_grad
    grad_itemsize = 4 if autograd.backend.lstm == "onednn" else itemsize  # oneDNN returns gradients in float32

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:  # this closure keeps `saved` alive
        if native:
            autograd.allocate_temporary(_NATIVE_BACKWARD_TEMPORARIES * step_bytes)
            del saved[1:]  # all but the input, which the weights' gradients need
            # each time step frees what it saved and leaves gradients of its gates, concatenated at the end
            gates = autograd.allocator.allocate(4 * steps * step_bytes, autograd.term)
            autograd.allocate_temporary(gates.nbytes)
            del gates
        grads: list[FakeTensor | None] = [autograd.empty(*shape, grad_itemsize) for shape in shapes]
        autograd.allocate_temporary(0 if native else 2 * rows * hidden * grad_itemsize)  # of the first state and cell
        if not needs_grad:
            grads[0] = None
        for position, grad_of_input in enumerate(grads):
            grads[position] = None if grad_of_input is None else cast(autograd, grad_of_input.detach(), itemsize)
        return grads

    autograd.record([state], [messages, *(p for p in weights if p is not None)], backward)
    return state


def _last_states_of_packed(
    autograd: FakeAutograd,
    messages: FakeTensor,
    batch_sizes: Sequence[int],
    lstm: nn.LSTM,
    weights: Sequence[FakeTensor | None],
) -> FakeTensor:
    """The states of rows of different lengths; `batch_sizes` has the number of rows per step."""
    width, hidden, itemsize = lstm.input_size, lstm.hidden_size, messages.itemsize
    rows, edges, needs_grad = batch_sizes[0], sum(batch_sizes), messages.requires_grad
    shapes = [(edges, width), *((p.rows, p.cols) for p in weights if p is not None)]
    step_bytes = [size * hidden * itemsize for size in batch_sizes]
    if autograd.backend.lstm == "native":
        saved = _run_packed_steps(autograd, messages, step_bytes)
        state = autograd.empty(rows, hidden, itemsize)
        autograd.allocate_temporary(state.nbytes)  # the last cell state
        gradients = partial(_gradients_of_steps, autograd, saved, step_bytes, shapes, itemsize)
    else:
        cudnn = CudnnBytes.of(width, hidden, itemsize, rows=rows, edges=edges)
        saved, state = _run_cudnn(autograd, messages, rows, hidden, sum(step_bytes), cudnn)
        gradients = partial(
            _gradients_of_cudnn, autograd, saved, state.nbytes, sum(step_bytes), cudnn, shapes, itemsize
        )

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_messages, *for_weights = gradients()
        return [for_messages if needs_grad else None, *for_weights]

    autograd.record([state], [messages, *(p for p in weights if p is not None)], backward)
    return state


def _gradients_of_steps(
    autograd: FakeAutograd,
    saved: list[Storage],
    step_bytes: Sequence[int],
    shapes: Sequence[tuple[int, int]],
    itemsize: int,
) -> list[FakeTensor]:
    gates = None
    for nbytes in reversed(step_bytes):  # frees what it saved
        autograd.allocate_temporary(_NATIVE_BACKWARD_TEMPORARIES * nbytes)
        saved.pop()
        added = autograd.allocator.allocate(4 * sum(step_bytes), autograd.term)  # to the gates of all steps
        gates = gates or added
        del added
    del gates, saved[1:]  # all but the input, which the weights' gradients need
    return [autograd.empty(*shape, itemsize) for shape in shapes]


def _gradients_of_cudnn(
    autograd: FakeAutograd,
    saved: list[Storage],
    state_bytes: int,
    output_bytes: int,
    cudnn: "CudnnBytes",
    shapes: Sequence[tuple[int, int]],
    itemsize: int,
) -> list[FakeTensor]:
    """One call for the inputs' gradient, one for the weights'; gradients of output and states are zeros or dropped."""
    others = [autograd.allocator.allocate(nbytes, autograd.term) for nbytes in (output_bytes, *[state_bytes] * 3)]
    for_messages = autograd.empty(*shapes[0], itemsize)
    autograd.allocate_temporary(cudnn.workspace)
    for_weights = [autograd.empty(*shape, itemsize) for shape in shapes[1:]]
    autograd.allocate_temporary(cudnn.workspace)
    del others, saved[1:]
    return [for_messages, *for_weights]


@dataclass(frozen=True)
class CudnnBytes:
    """What cuDNN's LSTM allocates besides its results: of version 9.19, measured by its allocations on an H200.

    Args:
        workspace: of a call, forward, for the gradient of the inputs, and for that of the weights.
        reserve: kept from the forward to the backward pass.
    """

    workspace: int
    reserve: int

    @staticmethod
    def of(width: int, hidden: int, itemsize: int, *, rows: int, edges: int) -> "CudnnBytes":
        """Of sequences of any lengths.

        Args:
            width: of the inputs.
            hidden: size of the state.
            itemsize: bytes per element.
            rows: sequences.
            edges: steps of all sequences together.
        """
        state = hidden * itemsize
        weights = 4 * state * (width + hidden)
        return CudnnBytes(
            workspace=4 * state * edges + 6 * state * rows + weights + (8 << 20) + 256,
            reserve=5 * state * edges + 256,
        )


def _run_cudnn(
    autograd: FakeAutograd, inputs: FakeTensor, rows: int, hidden: int, output_bytes: int, cudnn: CudnnBytes
) -> tuple[list[Storage], FakeTensor]:
    """cuDNN's LSTM saves input, first state and cell, output, and its reserve; the last state is the result."""
    assert inputs.storage is not None
    allocate, state_bytes = autograd.allocator.allocate, rows * hidden * inputs.itemsize
    saved = [inputs.storage, *(allocate(nbytes, autograd.term) for nbytes in (state_bytes, state_bytes, output_bytes))]
    last, cell = autograd.empty(rows, hidden, inputs.itemsize), allocate(state_bytes, autograd.term)
    workspace = allocate(cudnn.workspace, autograd.term)
    saved.append(allocate(cudnn.reserve, autograd.term))
    del workspace, cell
    return saved, last


def _run_packed_steps(autograd: FakeAutograd, inputs: FakeTensor, step_bytes: Sequence[int]) -> list[Storage]:
    """Torch's own LSTM saves gates, cell and state per time step; the input projection of all steps comes first."""
    assert inputs.storage is not None
    allocate = autograd.allocator.allocate
    gates = allocate(4 * sum(step_bytes), autograd.term)
    saved = [allocate(step_bytes[0], autograd.term) for _ in range(2)]
    saved += [allocate(size * _NATIVE_SAVED[autograd.backend.device], autograd.term) for size in step_bytes]
    output = allocate(sum(step_bytes), autograd.term)
    del gates, output
    return [inputs.storage, *saved]


def _run_fused(autograd: FakeAutograd, inputs: FakeTensor, steps: int, rows: int, hidden: int) -> list[Storage]:
    """oneDNN's LSTM saves input, initial states, output, final states and its workspace."""
    assert inputs.storage is not None
    state = rows * hidden * inputs.itemsize
    workspace = workspace_bytes(inputs.cols, hidden, inputs.itemsize, steps=steps, rows=rows)
    sizes = [state, state, steps * state, state, state, workspace]
    return [inputs.storage, *(autograd.allocator.allocate(size, autograd.term) for size in sizes)]


def _run_steps(autograd: FakeAutograd, inputs: FakeTensor, steps: int, rows: int, hidden: int) -> list[Storage]:
    """Torch's own LSTM saves gates, cell and state per time step; the input projection of all steps comes first."""
    assert inputs.storage is not None
    state, allocate = rows * hidden * inputs.itemsize, autograd.allocator.allocate
    gates = allocate(4 * steps * state, autograd.term)
    autograd.allocate_temporary(gates.nbytes)
    saved = [allocate(state, autograd.term) for _ in range(2)]
    saved += [allocate(state * _NATIVE_SAVED[autograd.backend.device], autograd.term) for _ in range(steps)]
    output = allocate(steps * state, autograd.term)
    del gates, output
    return [inputs.storage, *saved]


def workspace_bytes(width: int, hidden: int, itemsize: int, *, steps: int, rows: int) -> int:
    """Workspace that oneDNN keeps from an LSTM's forward to its backward pass, in bytes.

    The size is linear in `rows` and in `rows * steps`, plus page rounding; the rates are measured on small probes.
    """
    per_row, per_step, minimum = _workspace_rates(width, hidden, itemsize)
    return max(minimum, int(rows * (per_row + per_step * steps)) + minimum // 2)


@cache
def _workspace_rates(width: int, hidden: int, itemsize: int) -> tuple[float, float, int]:
    """Bytes per row, bytes per row and time step, minimum bytes; probed, since the layout depends on the machine."""
    shapes = ((1, _PROBE_ROWS), (2, _PROBE_ROWS), (1, 1))
    one, two, minimum = (_probe(width, hidden, itemsize, *shape) for shape in shapes)
    per_step = (two - one) / _PROBE_ROWS
    return (one - minimum // 2) / _PROBE_ROWS - per_step, per_step, minimum


def _probe(width: int, hidden: int, itemsize: int, steps: int, rows: int) -> int:
    """Bytes of the workspace, the fourth output of the operator, for a batch of this shape."""
    dtype = torch.bfloat16 if itemsize == 2 else torch.float32
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(width, hidden, dtype=dtype)
    with deferred_interrupt(), _OutputSizes() as outputs:
        lstm(torch.zeros(steps, rows, width, dtype=dtype))
    return outputs.nbytes[3]


class _OutputSizes(TorchDispatchMode):
    """Records the storage sizes of the outputs of the recurrent operator."""

    nbytes: list[int]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[override]
        outputs = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.mkldnn_rnn_layer.default:
            self.nbytes = [t.untyped_storage().nbytes() for t in outputs]
        return outputs


@dataclass(frozen=True)
class EdgeCosts:
    """What the torch forms allocate per edge, in elements; a chunk of edges is sized by one of these numbers.

    Args:
        elements: allocated per edge by a sum, in either direction, or by the gradient of the parameters.
        sum_row: elements that size the chunks of a sum.
        gradient_row: elements that size the chunks of the gradient.
        transposed_copy: elements of the parameters that the compiled gradient of x copies, transposed.
    """

    elements: int
    sum_row: int
    gradient_row: int
    transposed_copy: int = 0


def _basis_costs(bases: int, width: int) -> EdgeCosts:
    wide = bases * width
    return EdgeCosts(wide + width + bases, wide, wide + width)


def simulate_rgcn(autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`workbench.nn.rgcn.RGCNLayer`."""
    sum_relations = _sum_bases if layer.regularizer == "basis" else _sum_blocks
    out, h_dst = sum_relations(autograd, layer, block, h, _edge_factors(autograd, layer, block, h))
    if layer.loop_weight is not None:
        loop = linear(autograd, h_dst, layer.out_dim, autograd.leaf(layer.loop_weight))
        out = add(autograd, out, loop)
        del loop
    return add_bias(autograd, out, layer.h_bias)


def _sum_bases(
    autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock, h: FakeTensor, factors: FakeTensor | None
) -> tuple[FakeTensor, FakeTensor]:
    bases, sizes = layer.num_bases, block.sizes
    weights, coefficients = (_leaf(autograd, layer.linear_r[name]) for name in ("W", "coeff"))
    if layer.out_dim >= layer.in_dim:
        costs = _basis_costs(bases, layer.in_dim)
        sums, h_dst = _typed_sum(autograd, block, h, coefficients, factors, bases * layer.in_dim, costs)
        return linear(autograd, sums, layer.out_dim, weights if weights.requires_grad else None), h_dst
    directions = _transposed_bases(autograd, layer, weights)
    projected, h_dst = linear_with_self(autograd, h, sizes.num_dst, bases * layer.out_dim, directions)
    costs = _basis_costs(bases, layer.out_dim)
    return _typed_sum(autograd, block, projected, coefficients, factors, layer.out_dim, costs)[0], h_dst


def _transposed_bases(autograd: FakeAutograd, layer: RGCNLayer, weights: FakeTensor) -> FakeTensor:
    """A copy of the bases, [bases · out_dim, in_dim]; the parameter's gradient is a copy too: it has other strides."""
    out, shape = autograd.empty(layer.num_bases * layer.out_dim, layer.in_dim, weights.itemsize), weights.rows
    autograd.record([out], [weights], lambda grad: [grad.view(shape, weights.cols, is_view=True)])
    return out


def _sum_blocks(
    autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock, h: FakeTensor, factors: FakeTensor | None
) -> tuple[FakeTensor, FakeTensor]:
    size = layer.in_dim * layer.out_dim // layer.num_bases
    costs = EdgeCosts(size + layer.in_dim + layer.out_dim, size, size, transposed_copy=layer.num_relations * size)
    return _typed_sum(autograd, block, h, _leaf(autograd, layer.linear_r["W"]), factors, layer.out_dim, costs)


def _leaf(autograd: FakeAutograd, parameter: nn.Parameter) -> FakeTensor:
    """A parameter, which requires no gradient if it is frozen."""
    rows = len(parameter)
    return autograd.leaf(parameter) or FakeTensor(None, rows, parameter.numel() // rows, parameter.element_size())


def _edge_factors(autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor | None:
    """Normalization times edge weight, in the wider precision; weights that the block has already are no allocation."""
    sizes, itemsize = block.sizes, compute_itemsize(h.itemsize)
    if layer.norm == "none":
        return None if sizes.weight_bytes is None else FakeTensor(None, sizes.num_edges, 1, sizes.weight_bytes)
    inverse = _inverse_degrees(autograd, layer, block, itemsize)
    if sizes.weight_bytes is None:
        return inverse
    return autograd.empty(sizes.num_edges, 1, max(itemsize, sizes.weight_bytes))


def _inverse_degrees(autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock, itemsize: int) -> FakeTensor:
    num_edges = block.sizes.num_edges
    if layer.norm == "right":
        degrees = block.degrees()
        block.derive_destinations()
        out = autograd.empty(num_edges, 1, itemsize)
        del degrees
        return out
    if autograd.on_cuda:
        block.derive_destinations()
        copies = [autograd.empty(num_edges, 1, 8) for _ in range(_GROUP_COPIES)]
        del copies
    return autograd.empty(num_edges, 1, itemsize)


_GROUP_COPIES = 5  # of the edges' groups: sorted, and where each begins and ends there


def _typed_sum(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    parameters: FakeTensor,
    factors: FakeTensor | None,
    out_cols: int,
    costs: EdgeCosts,
) -> tuple[FakeTensor, FakeTensor]:
    """`workbench.kernels.typed_sum.typed_sum_with_self`; edge weights that need a gradient are not supported."""
    original, itemsize = x.itemsize, compute_itemsize(x.itemsize)
    factors = None if factors is None else cast(autograd, factors, itemsize)
    x, parameters = cast(autograd, x, itemsize), cast(autograd, parameters, itemsize)
    out, h_self = _rgcn_sum_with_self(autograd, block, x, parameters, factors, out_cols, costs)
    return cast(autograd, out, original), cast(autograd, h_self, original)


def _rgcn_sum_with_self(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    parameters: FakeTensor,
    factors: FakeTensor | None,
    out_cols: int,
    costs: EdgeCosts,
) -> tuple[FakeTensor, FakeTensor]:
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    needs_x, shape = x.requires_grad, (parameters.rows, parameters.cols) if parameters.requires_grad else None
    out = _sum_edges(autograd, block, sizes.num_dst, out_cols, itemsize, costs)
    h_self = x.view(sizes.num_dst, is_view=True).detach()
    if needs_x:
        block.expect_transposed()

    def backward(grad: FakeTensor | None, self_grad: FakeTensor | None = None) -> Sequence[FakeTensor | None]:
        for_x = for_parameters = None
        if needs_x:
            if not autograd.on_cuda:
                block.derive_transposed()
            copy = None if autograd.on_cuda else autograd.empty(costs.transposed_copy, 1, itemsize)
            for_x = _sum_edges(autograd, block, sizes.num_src, cols, itemsize, costs)
            del copy
        if shape is not None:
            for_parameters = autograd.empty(*shape, itemsize)
            _edge_temporaries(autograd, sizes.num_edges, costs.elements, costs.gradient_row, itemsize)
        return for_x, for_parameters

    outputs = [out, h_self] if needs_x else [out]
    autograd.record(outputs, [x, parameters], backward, saves=[x, parameters, factors])
    return out, h_self


def _sum_edges(
    autograd: FakeAutograd, block: FakeBlock, rows: int, cols: int, itemsize: int, costs: EdgeCosts
) -> FakeTensor:
    out = autograd.empty(rows, cols, itemsize)
    if autograd.on_cuda:
        block.derive_destinations()
    _edge_temporaries(autograd, block.sizes.num_edges, costs.elements, costs.sum_row, itemsize)
    return out


def _edge_temporaries(autograd: FakeAutograd, num_edges: int, elements: int, row: int, itemsize: int) -> None:
    """Allocate and free what the torch forms need for one chunk of edges; the compiled forms need nothing."""
    if autograd.on_cuda:
        autograd.allocate_temporary(message_chunk(num_edges, row * itemsize) * elements * itemsize)


LABEL_BYTES = 8

SimulateLoss = Callable[[FakeAutograd, FakeTensor], FakeTensor]


def simulate_cross_entropy(autograd: FakeAutograd, out: FakeTensor) -> FakeTensor:
    """Cross-entropy over labelled seeds: saves labels and log-probabilities, but not the loss per seed.

    The labels of the whole batch are on the host (`kept_label_bytes`); on a GPU, those of the micro-batch are copied.
    """
    autograd.term = "loss"
    labels = autograd.empty(out.rows if autograd.on_cuda else 0, 1, LABEL_BYTES, "labels")
    labelled = autograd.allocator.allocate(out.rows, "labels")
    autograd.allocator.allocate_temporary(2 * labelled.nbytes, "labels")
    log_probabilities = autograd.empty_like(out)
    losses, loss = autograd.empty(out.rows, 1, out.itemsize), autograd.empty(1, 1, 4)
    del labelled, losses

    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        picked = autograd.empty(rows, cols, itemsize)
        return [autograd.empty_like(picked)]

    autograd.record([loss], [out], backward, saves=[labels, log_probabilities])
    return loss


def simulate_binary_cross_entropy(autograd: FakeAutograd, out: FakeTensor) -> FakeTensor:
    """Binary cross-entropy: saves the output, and labels of the output's shape and dtype."""
    autograd.term = "loss"
    labels = autograd.empty_like(out, "labels")
    losses, loss = autograd.empty_like(out), autograd.empty(1, 1, 4)
    del losses
    rows, cols, itemsize = out.rows, out.cols, out.itemsize

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_out = autograd.empty(rows, cols, itemsize)
        autograd.allocate_temporary(for_out.nbytes)
        return [for_out]

    autograd.record([loss], [out], backward, saves=[labels, out])
    return loss


def kept_label_bytes(simulate: SimulateLoss, num_seeds: int, *, on_cuda: bool) -> int:
    """Bytes on the device of the labels that are read before a step's first micro-batch and kept until its last.

    Only integer classes are kept (`workbench.BatchLoss`), and on a GPU they stay on the host.
    """
    return LABEL_BYTES * num_seeds if simulate is simulate_cross_entropy and not on_cuda else 0


_LOSSES: Mapping[Any, SimulateLoss] = MappingProxyType(
    {
        functional.cross_entropy: simulate_cross_entropy,
        nn.CrossEntropyLoss: simulate_cross_entropy,
        functional.binary_cross_entropy_with_logits: simulate_binary_cross_entropy,
        nn.BCEWithLogitsLoss: simulate_binary_cross_entropy,
    }
)

_UNSUPPORTED = ("label_smoothing", "pos_weight")

_UNSUPPORTED_BY_BINARY = ("weight", *_UNSUPPORTED)
"""Options for which torch allocates tensors that are not simulated."""


def loss_simulation(loss_fn: Callable[..., Any]) -> SimulateLoss:
    """Look up the simulation of a loss function.

    Supported are torch's `cross_entropy` (integer labels) and `binary_cross_entropy_with_logits` (labels in the model's
    dtype), or their modules; `ignore_index` and the class weights of `cross_entropy` may be set.

    Raises:
        TypeError: It is no function, or a class instead of an instance.
        ValueError: The loss function, or one of its options, is not supported.
    """
    check_loss(loss_fn)
    inner = loss_fn.func if isinstance(loss_fn, partial) else loss_fn
    simulate = _LOSSES.get(type(inner) if isinstance(inner, nn.Module) else inner)
    if simulate is None:
        raise ValueError(
            f"loss_fn {getattr(inner, '__name__', inner)!r} is not supported by the memory estimate; estimate with "
            "cross_entropy or binary_cross_entropy_with_logits, whichever has labels of the same shape"
        )
    options = loss_fn.keywords if isinstance(loss_fn, partial) else vars(inner)
    options = {**options, **getattr(inner, "_buffers", {})}
    unsupported = _UNSUPPORTED if simulate is simulate_cross_entropy else _UNSUPPORTED_BY_BINARY
    if used := [name for name in unsupported if _is_set(options.get(name))]:
        raise ValueError(
            f"loss_fn with {used[0]} is not supported by the memory estimate; estimate without it and reserve memory "
            "for its tensors"
        )
    return simulate


def _is_set(option: Any) -> bool:
    return option is not None and not (isinstance(option, float) and option == 0)

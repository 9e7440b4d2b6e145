"""Gathering rows by id, for feature stores, and source rows per edge, for layers that process every message (LSTM)."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import bounds, to_device, uninitialised
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch_row, rows_ahead
from workbench.kernels.segment import Adjacency, check_rows, compute_dtype, fused, sum_rows, use_compiled
from workbench.kernels.threads import parallel_rows

_MIN_BYTES_PER_THREAD = 1 << 23  # a millisecond, as for sums (`workbench.kernels.threads`)

MAX_SERIAL = 1 << 15  # elements up to which torch's operator uses one thread; it then has the lowest fixed cost

_WORDS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def gather_rows(x: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Gather `x[ids]`, differentiable in `x` without `out`: [m, …], on the device of `x`.

    Args:
        x: [n, …] of any dtype.
        ids: int64 or int32 [m], on any device.
        out: [m, …] in the dtype and on the device of `x`, or None to allocate it.

    Raises:
        IndexError: an id outside of [0, n).
    """
    x = x if out is None else x.detach()
    plain = use_compiled(x) and x.is_contiguous() and (out is None or out.is_contiguous())
    if not plain or (x.requires_grad and torch.is_grad_enabled()):
        return gather_rows_torch(x, ids, out=out)
    if 0 < ids.numel() * x.stride(0) <= MAX_SERIAL and x.numel():
        return _gather_few(x, ids, out)
    if out is None:
        out = uninitialised(x, len(ids), *x.shape[1:])
    _copy_rows(_as_words(x), ids, out)
    return out


def gather_array(x: np.ndarray, ids: Tensor, out: Tensor) -> Tensor:
    """Gather rows of an array, which may be read-only and of any layout, on the CPU.

    No tensor shares the array's memory, so that a memory meter does not mistake it for the result's.

    Args:
        x: [n, …] of a dtype that torch has.
        ids: int64 or int32 [m].
        out: [m, …] in the dtype of `x`, which it writes to and returns.
    """
    if x.flags.c_contiguous and out.is_contiguous():
        words = np.asarray(_Writable(x)).reshape(len(x), math.prod(x.shape[1:]))
        _copy_rows(words.view(_WORDS[min(8, x.itemsize)]), ids, out)
    else:
        _check_range(ids, len(x))
        out.numpy()[...] = x[ids.cpu().numpy()]
    return out


def _gather_few(x: Tensor, ids: Tensor, out: Tensor | None) -> Tensor:
    """Gather rows by torch's operator, which checks the range on the CPU."""
    try:
        return torch.index_select(x, 0, ids.to("cpu"), out=out)
    except IndexError:
        _check_range(ids, len(x))
        raise


class _Writable:
    """Exports the memory of an array as writable, so that kernels are not compiled again for read-only ones."""

    def __init__(self, array: np.ndarray) -> None:
        address, _ = array.__array_interface__["data"]
        self.array = array  # kept alive
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def gather_rows_torch(x: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute `gather_rows` in plain torch or in Triton, on any device."""
    _check_range(ids, len(x))  # CUDA would not raise an error, but end all work in the process
    return gather_unchecked(x, to_device(ids, x.device), out=out)


def gather_unchecked(x: Tensor, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute `gather_rows` for ids in [0, n) on the device of `x`: in plain torch, or in Triton where it can.

    Triton has no complex numbers.
    """
    x = x if out is None else x.detach()
    kernels, is_plain = fused(x), x.is_contiguous() and (out is None or out.is_contiguous())
    if kernels is None or not is_plain or x.is_complex() or (x.requires_grad and torch.is_grad_enabled()):
        return torch.index_select(x, 0, ids, out=out)
    return kernels.gather_rows(x.detach(), ids, out)


def _check_range(ids: Tensor, limit: int) -> None:
    low, high = bounds(ids) if len(ids) else (0, -1)
    if low < 0 or high >= limit:
        raise IndexError(f"ids contains {low if low < 0 else high}; ids must be in [0, {limit})")


def _as_words(x: Tensor) -> np.ndarray:
    """View rows as integers of the size of their values, so that four compiled kernels copy rows of any dtype."""
    width = math.prod(x.shape[1:])
    rows = x.detach().as_strided((len(x), width), (width, 1))  # one column may have any stride
    return rows.view(torch.uint8).numpy().view(_WORDS[min(8, x.element_size())])


def _copy_rows(source: np.ndarray, ids: Tensor, out: Tensor) -> None:
    to, rows = _as_words(out), ids.to("cpu", torch.int64).contiguous().numpy()
    failed = np.zeros(1, np.bool_)
    min_rows = _MIN_BYTES_PER_THREAD // max(1, out[:1].nbytes)
    parallel_rows(lambda lo, hi: _gather_rows(source, rows, to, lo, hi, failed), len(ids), min_rows)
    if failed[0]:
        _check_range(ids, len(source))


@compiled
def _gather_rows(x, ids, out, lo, hi, failed):
    ahead = rows_ahead(x.strides[0])
    for row in range(lo, hi):
        if not 0 <= ids[row] < len(x):
            failed[0] = True
            return
        if row + ahead < hi:
            prefetch_row(x, ids[row + ahead])
        if x.shape[1] == 1:  # labels
            out[row, 0] = x[ids[row], 0]
            continue
        source, to = x[ids[row]], out[row]
        for word in range(len(to)):
            to[word] = source[word]


class _Gather(torch.autograd.Function):
    """Its backward pass sums over each source's edges instead of scattering, independent of the number of threads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        if ctx.needs_input_grad[0]:
            adjacency.expect_transposed()
        ctx.save_for_backward(order)
        return x.index_select(0, adjacency.indices[order])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (order,) = ctx.saved_tensors
        wide = grad if grad.dtype == torch.float64 else grad.float()
        if use_compiled(grad):
            indptr, ends, _, edges = ctx.adjacency.transposed
            position = torch.zeros_like(edges)  # also for edges beyond a row prefix, which the sum does not read
            position[order] = torch.arange(len(order))
            out = sum_rows(indptr, position[edges], wide, ends=ends)
        else:
            out = wide.new_zeros(ctx.adjacency.num_src, grad.shape[1])
            out.index_add_(0, ctx.adjacency.indices[order], wide)
        return out.to(grad.dtype), None, None


def gather_edges(adjacency: Adjacency, x: Tensor, order: Tensor) -> Tensor:
    """Gather `x[source]` for every edge: [num_edges, channels] in the dtype of `x`.

    Args:
        x: floating point [num_src, channels].
        order: int64 [num_edges], a permutation of the edges: the order of the result's rows.
    """
    check_rows(x, adjacency)
    return _Gather.apply(x, order, adjacency)


_MIN_ROWS_PER_THREAD = 1 << 14

_COMPILED = (torch.float32, torch.float64)


def add_rows(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Compute `out[positions[i]] += rows[i]` in the order of i, for any number of threads.

    Args:
        out: floating [size, width], contiguous; half precision is summed in float32 and rounded once per call.
        positions: int64 or int32 [n], in [0, size), which is not checked.
        rows: [n, width] in the dtype of `out`.
    """
    if not use_compiled(out) or out.dtype not in _COMPILED:
        add_rows_torch(out, positions, rows)
        return
    views = positions.contiguous().numpy(), rows.contiguous().numpy(), out.numpy()
    parallel_rows(lambda lo, hi: _add_rows(*views, lo, hi), len(out), _MIN_ROWS_PER_THREAD)


def add_rows_torch(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Compute `add_rows` in plain torch: sorted sums, since atomic additions come in any order."""
    if not len(positions):
        return
    positions, order = torch.sort(positions, stable=True)
    # As many segments as rows, the last ones empty: their number is not known without waiting for a GPU.
    segment = torch.zeros_like(positions, dtype=torch.int64)
    torch.cumsum(positions[1:] != positions[:-1], 0, out=segment[1:])
    lengths = torch.zeros_like(segment).scatter_add_(0, segment, torch.ones_like(segment))
    sums = torch.segment_reduce(rows[order].to(compute_dtype(out)), "sum", lengths=lengths, unsafe=True)
    out.index_copy_(0, positions.long(), (out[positions] + sums[segment]).to(out.dtype))  # equal values at one place


@compiled
def _add_rows(positions, rows, out, lo, hi):
    """Add the rows whose position is in [lo, hi): every thread reads all positions, and adds to rows of its own."""
    for i in range(len(positions)):
        if lo <= positions[i] < hi:
            total, row = out[positions[i]], rows[i]
            for c in range(len(row)):
                total[c] += row[c]


_MIN_ROWS = 1 << 14  # per thread

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def as_integers(values: Tensor) -> np.ndarray:
    """View a contiguous CPU tensor as integers of the same size, so that one kernel copies values of any dtype."""
    return values.view(_INTEGERS[values.element_size()]).numpy()


def place_rows(values: Tensor, indptr: Tensor, slots: Tensor, out: Tensor, out_indptr: Tensor) -> None:
    """Copy row i of a CSR to row `slots[i]` of another, which has the same length.

    Args:
        values: [num_edges] of any dtype of at most 8 bytes.
        indptr: int64 [n + 1], offsets of the rows; the first may be any number, and is that of `values[0]`.
        slots: int64 [n], distinct rows of `out`.
        out: [num_out_edges] in the dtype and on the device of `values`.
        out_indptr: int64 [num_out_rows + 1], offsets of the rows of `out`, from 0.
    """
    if values.device.type != "cpu":
        place_rows_torch(values, indptr, slots, out, out_indptr)
        return
    arrays = as_integers(values.contiguous()), indptr.numpy(), slots.numpy(), as_integers(out), out_indptr.numpy()
    parallel_rows(lambda lo, hi: _place(lo, hi, *arrays), len(slots), _MIN_ROWS)


def place_rows_torch(values: Tensor, indptr: Tensor, slots: Tensor, out: Tensor, out_indptr: Tensor) -> None:
    """Do what `place_rows` does in plain torch, on any device."""
    lengths = indptr.diff()
    edges = torch.arange(len(values), device=values.device)
    moved = out_indptr[slots] - (indptr[:-1] - indptr[0])
    out[edges + moved.repeat_interleave(lengths)] = values


@compiled
def _place(lo, hi, values, indptr, slots, out, out_indptr):
    for row in range(lo, hi):
        to = out_indptr[slots[row]]
        for e in range(indptr[row] - indptr[0], indptr[row + 1] - indptr[0]):
            out[to] = values[e]
            to += 1

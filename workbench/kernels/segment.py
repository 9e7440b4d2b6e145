"""Helpers of segment reductions over the rows of a CSR: adjacency protocol, dispatch, dtypes and bounded workspace."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from workbench.kernels.compiler_boundary import runs_eagerly
from workbench.kernels.jit import compiled
from workbench.kernels.transpose import Transposed

MESSAGE_BYTES = 1 << 28


class Adjacency(Protocol):
    """The edges of a bipartite layer; `workbench.core.block.Block` implements it."""

    @property
    def indptr(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...
    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @cached_property
    def destinations(self) -> Tensor: ...
    @cached_property
    def transposed(self) -> Transposed: ...
    def expect_transposed(self) -> None: ...


def use_compiled(x: Tensor) -> bool:
    """Return whether to use the compiled implementation: on the CPU; other devices use plain torch."""
    return x.device.type == "cpu"


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of sums: half precision is summed in float32, since long sums in bfloat16 lose their addends."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def check_rows(x: Tensor, adjacency: Adjacency) -> None:
    """Check that `x` has one row per source, since kernels do not check bounds.

    Raises:
        ValueError: if it has another number of rows.
    """
    if x.dim() < 2 or x.shape[0] != adjacency.num_src:
        raise ValueError(
            f"features have shape {tuple(x.shape)}, but the block has {adjacency.num_src} sources; pass one row per "
            "source (x[batch.node_ids] for the first block)"
        )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Return NumPy views for compiled kernels; None stays None."""
    return [None if t is None else (t.detach() if t.requires_grad else t).contiguous().numpy() for t in tensors]


@runs_eagerly
def inverse_in_degrees(adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
    """Return 1 / max(1, in-degree), [num_dst] in `dtype`: float32 or float64."""
    indptr = adjacency.indptr
    if not use_compiled(indptr):
        return inverse_in_degrees_torch(indptr, dtype)
    out = torch.empty(indptr.shape[0] - 1, dtype=dtype)
    _inverse_in_degrees(indptr.numpy(), out.numpy())
    return out


def inverse_in_degrees_torch(indptr: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute `inverse_in_degrees` in plain torch, on any device."""
    return indptr.diff().clamp_(min=1).to(dtype).reciprocal_()


@compiled
def _inverse_in_degrees(indptr, out):
    one = out.dtype.type(1)
    for row in range(len(out)):
        out[row] = one / out.dtype.type(max(1, indptr[row + 1] - indptr[row]))


def message_rows(num_edges: int, row_bytes: int) -> int:
    """Return the number of edges of the longest range of `edge_ranges`."""
    return min(num_edges, max(1, MESSAGE_BYTES // max(1, row_bytes)))


def edge_ranges(num_edges: int, row_bytes: int) -> Iterator[slice]:
    """Yield ranges of edges whose messages need at most `MESSAGE_BYTES`, which bounds the workspace in plain torch."""
    step = max(1, message_rows(num_edges, row_bytes))
    for start in range(0, num_edges, step):
        yield slice(start, min(start + step, num_edges))

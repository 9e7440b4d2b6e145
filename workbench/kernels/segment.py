"""What the reductions over the rows of a CSR share: the edges they read, the choice of form, the cutting of work."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from workbench.kernels.transpose import Transposed

MESSAGE_BYTES = 1 << 28


class Adjacency(Protocol):
    """The edges of one bipartite layer, as `workbench.core.minibatch.Block` holds them."""

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


def use_compiled(x: Tensor) -> bool:
    """Whether the compiled form runs: on the CPU; any other device runs the torch form."""
    return x.device.type == "cpu"


def compute_dtype(x: Tensor) -> torch.dtype:
    """Half precision is summed in float32: a long sum of bfloat16 loses its addends."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def check_rows(x: Tensor, adjacency: Adjacency) -> None:
    """Check that `x` has one row per source; kernels read without bounds.

    Raises:
        ValueError: another number of rows.
    """
    if x.dim() < 2 or x.shape[0] != adjacency.num_src:
        raise ValueError(
            f"features have shape {tuple(x.shape)}; the block has {adjacency.num_src} sources, one row each "
            f"(x[batch.node_ids] for the first block)"
        )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """NumPy views for the compiled form."""
    return [None if t is None else t.detach().contiguous().numpy() for t in tensors]


def inverse_in_degrees(adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
    """[num_dst] in `dtype`: 1 / in-degree, the in-degree taken as at least 1."""
    return adjacency.indptr.diff().clamp_(min=1).to(dtype).reciprocal_()


def edge_ranges(num_edges: int, row_bytes: int) -> Iterator[slice]:
    """Ranges of edges whose messages take at most `MESSAGE_BYTES`, so that the torch form's workspace is bounded."""
    step = max(1, MESSAGE_BYTES // max(1, row_bytes))
    for start in range(0, num_edges, step):
        yield slice(start, min(start + step, num_edges))

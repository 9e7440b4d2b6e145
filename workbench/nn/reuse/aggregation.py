"""A layer's linear aggregate and its transpose, written into buffers."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.kernels.row_sums import scatter_sum_torch, sum_rows
from workbench.kernels.segment import check_rows, message_rows, use_compiled
from workbench.kernels.transpose import Transposed, transpose_into
from workbench.nn.reuse.workspace import Slots


class Aggregation(NamedTuple):
    """The matrix A of `(A h)[v] = scale[v] · Σ e · h_src + own[v] · h[v]`, for the destinations v of a block.

    Args:
        block: one layer of a batch, with the edge weights e.
        slots: where temporaries are.
        scale: [num_dst], or None for ones.
        own: factors of the destinations' own rows, [num_dst, 1] or [1]; None for zeros.
    """

    block: Block
    slots: Slots
    scale: Tensor | None = None
    own: Tensor | None = None

    def apply(self, h: Tensor, out: Tensor) -> Tensor:
        """Compute `A h`.

        Args:
            h: [num_src, channels].
            out: [num_dst, channels], memory for the result.
        """
        block = self.block
        check_rows(h, block)
        weight = None if block.edge_weight is None else block.edge_weight.to(h.dtype)
        if use_compiled(h):
            sum_rows(block.indptr, block.indices, h, weight=weight, row_scale=self.scale, out=out)
        else:
            self._scatter(self._destinations(), block.indices, h, weight, None, out)
            if self.scale is not None:
                out.mul_(self.scale[:, None])
        return out if self.own is None else out.addcmul_(h[: block.num_dst], self.own)

    def apply_transposed(self, grad: Tensor, out: Tensor) -> Tensor:
        """Compute `Aᵀ grad`.

        Args:
            grad: [num_dst, channels].
            out: [num_src, channels], memory for the result.
        """
        block = self.block
        weight = None if block.edge_weight is None else block.edge_weight.to(grad.dtype)
        if use_compiled(grad):
            indptr, ends, rows, edges = self._transposed()
            order = None if weight is None else edges
            sum_rows(indptr, rows, grad, ends=ends, weight=weight, edges=order, column_scale=self.scale, out=out)
        else:
            self._scatter(block.indices, self._destinations(), grad, weight, self.scale, out)
        if self.own is not None:
            out[: block.num_dst].addcmul_(grad, self.own)
        return out

    def _scatter(
        self, to: Tensor, source: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor | None, out: Tensor
    ) -> None:
        rows = message_rows(len(to), x[0:1].nbytes)
        messages = self.slots.shared("messages", x, rows, *x.shape[1:])
        scatter_sum_torch(to, source, x, len(out), weight=weight, scale=scale, out=out, messages=messages)

    def _transposed(self) -> Transposed:
        """The edges grouped by source: those that the block has computed already, or in buffers."""
        block = self.block
        if "transposed" in block.__dict__:
            return block.transposed
        take, count = self.slots.shared, block.num_edges
        offsets = take("transposed offsets", block.indptr, block.num_src + 2)
        rows = take("transposed rows", block.indices, count)
        edges = take("transposed edges", block.indptr, count if block.edge_weight is not None else 0)
        return transpose_into(block.indptr, block.indices, offsets, rows, edges)

    def _destinations(self) -> Tensor:
        """The destination of every edge: those that the block has computed already, or in buffers."""
        block = self.block
        if "destinations" in block.__dict__:
            return block.destinations
        positions, rows = (self.slots.shared(name, block.indptr, block.num_edges) for name in ("edges", "destinations"))
        torch.arange(block.num_edges, out=positions)
        return torch.searchsorted(block.indptr, positions, right=True, out=rows).sub_(1)


def in_degrees(block: Block, like: Tensor, slots: Slots) -> Tensor:
    """Return the in-degree of every destination, [num_dst] in the dtype of `like`, in a buffer."""
    out = slots.of_layer("scale", like, block.num_dst)
    return torch.sub(block.indptr[1:], block.indptr[:-1], out=out)

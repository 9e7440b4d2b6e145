"""`CarriedData`: the node and edge data of another library's batch, and the rows of it that a micro-batch has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.block import Block

Positions = tuple[Tensor | None, ...]
"""For each block, the row of every edge in the data of the block it stems from; None: all rows in order."""

_REMEDY = "its blocks were replaced after the conversion, so drop the data, dataclasses.replace(batch, carried=None)"


@dataclass(frozen=True, eq=False)
class CarriedData:
    """Data that a batch of DGL or PyG has besides its structure, none of which is gathered before a model is called.

    `MiniBatch.from_dgl` and `MiniBatch.from_pyg` attach it, micro-batches refer to their rows of it, and
    `workbench.interop` writes it where a model of the same library reads it.

    Args:
        source: the blocks of DGL, or the batch of PyG; a reference, so data that is released there is released here.
        nodes: int64 [num_inputs], row of every node in the node data; None: all rows in order.
        edges: returns the rows of the edges, which are computed when a model reads edge data.
        num_nodes: number of rows of the node data.
        num_edges: number of rows of the edge data of each block.
        held: micro-batches are written in the library's format, with all of this data, and held until their backward
            pass is over: the loop that `workbench.micro_batches` is for. A step of this library reads what its model
            asks for, and holds what autograd does.
    """

    source: Any
    nodes: Tensor | None
    edges: Callable[[], Positions]
    num_nodes: int
    num_edges: tuple[int, ...]
    held: bool = False

    def take(self, nodes: Tensor, edges: Callable[[], Positions]) -> "CarriedData":
        """Some rows, by their positions in the batch that has this data.

        Args:
            nodes: int64 [any], local ids of nodes in the batch.
            edges: returns positions of edges in each block of the batch.
        """
        taken = nodes if self.nodes is None else self.nodes[nodes.to(self.nodes.device)]
        return replace(self, nodes=taken, edges=lambda: tuple(map(_compose, self.edges(), edges())))

    def of_part(self, whole: Sequence[Block], part: Sequence[Block], parent: Tensor) -> "CarriedData":
        """The rows of a micro-batch: it has the rows of its destinations complete and in order.

        Args:
            whole: blocks of the batch.
            part: blocks of the micro-batch.
            parent: int64 [num_inputs of the micro-batch], local id of every node in the batch.
        """
        offsets = [(of_whole.indptr, of_part.indptr) for of_whole, of_part in zip(whole, part, strict=True)]
        return self.take(parent, lambda: tuple(_row_positions(*pair, parent) for pair in offsets))

    def rows_of_nodes(self, num_nodes: int) -> Tensor | None:
        """Return `nodes`.

        Args:
            num_nodes: number of nodes that the batch reads.

        Raises:
            ValueError: The batch has another number of nodes than these rows.
        """
        rows = self.num_nodes if self.nodes is None else len(self.nodes)
        if rows != num_nodes:
            raise ValueError(f"the batch has {num_nodes} nodes, but {rows} rows of node data; {_REMEDY}")
        return self.nodes

    def rows_of_edges(self, blocks: Sequence[Block]) -> Positions:
        """Return `edges()`.

        Args:
            blocks: the blocks of the batch.

        Raises:
            ValueError: The batch has other blocks than those of these rows.
        """
        positions, counts = self.edges(), [block.num_edges for block in blocks]
        rows = [count if some is None else len(some) for some, count in zip(positions, self.num_edges, strict=True)]
        if rows != counts:
            raise ValueError(f"the blocks have {counts} edges, but {rows} rows of edge data; {_REMEDY}")
        return positions


def _compose(outer: Tensor | None, inner: Tensor | None) -> Tensor | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner.to(outer.device)]


def _row_positions(whole: Tensor, part: Tensor, parent: Tensor) -> Tensor:
    """Positions of a part's edges, from the offsets of both blocks' rows."""
    degrees = part.diff()
    shift = whole[parent[: len(degrees)]] - part[:-1]
    num_edges = int(part[-1])
    return torch.repeat_interleave(shift, degrees, output_size=num_edges) + torch.arange(num_edges, device=part.device)

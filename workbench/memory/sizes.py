"""The sizes of a batch that determine its memory: nodes, edges, index widths, in-degrees."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.row_prefix import row_prefixes
from workbench.core.shared_storage import storage_bytes


@dataclass(frozen=True)
class BlockSizes:
    """Sizes of one block.

    Args:
        num_src: number of sources.
        num_dst: number of destinations.
        num_edges: number of edges.
        index_bytes: bytes per local id.
        weight_bytes: bytes per edge weight; None for a block without weights.
        degree_counts: int64 [largest in-degree + 1], number of destinations per in-degree; None if not counted.
        is_row_prefix: its rows are the first rows of the block before it, with which it shares what layers derive.
    """

    num_src: int
    num_dst: int
    num_edges: int
    index_bytes: int = 4
    weight_bytes: int | None = None
    degree_counts: Tensor | None = None
    is_row_prefix: bool = False

    @property
    def edge_bytes(self) -> int:
        """Bytes per edge position."""
        return 4 if self.num_edges < 2**31 else 8

    @cached_property
    def buckets(self) -> list[tuple[int, int]]:
        """(in-degree, number of destinations) in increasing order of in-degree."""
        assert self.degree_counts is not None
        counts = self.degree_counts
        return [(d, int(counts[d])) for d in counts.nonzero()[:, 0].tolist()]

    @staticmethod
    def of(block: Block, *, degrees: bool = False, is_row_prefix: bool = False) -> "BlockSizes":
        """Measure a block, including its in-degree histogram if `degrees` is set."""
        counts = torch.bincount(block.in_degrees().cpu()) if degrees else None
        weight = None if block.edge_weight is None else block.edge_weight.element_size()
        sizes = block.num_src, block.num_dst, block.num_edges, block.indices.element_size()
        return BlockSizes(*sizes, weight, counts, is_row_prefix)


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of a batch.

    Args:
        blocks: sizes of the blocks, input layer first.
        array_bytes: bytes of each array that is moved to the device, each storage once.
        num_inputs: number of nodes whose features the batch reads.
    """

    blocks: tuple[BlockSizes, ...]
    array_bytes: tuple[int, ...]
    num_inputs: int

    @property
    def num_seeds(self) -> int:
        return self.blocks[-1].num_dst if self.blocks else self.num_inputs

    @staticmethod
    def of(mb: MiniBatch, *, degrees: bool = False) -> "BatchSizes":
        """Measure a batch.

        Args:
            mb: the batch; its `parent` stays on the host and does not count.
            degrees: also count in-degrees, which LSTM aggregators need.

        Raises:
            ValueError: The batch has exchanges.
        """
        refuse_halo(mb.exchanges, "estimated")
        arrays = storage_bytes(tensor for name, tensor in mb._tensors().items() if name != "parent")
        prefixes = zip(mb.blocks, row_prefixes(mb.blocks), strict=True)
        blocks = tuple(BlockSizes.of(block, degrees=degrees, is_row_prefix=prefix) for block, prefix in prefixes)
        return BatchSizes(blocks, tuple(arrays), mb.num_inputs)

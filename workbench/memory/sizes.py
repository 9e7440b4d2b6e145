"""The sizes of a batch that decide its memory."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.core.storage import storage_bytes


@dataclass(frozen=True)
class BlockSizes:
    """Sizes of one block.

    Args:
        num_src: sources.
        num_dst: destinations.
        num_edges: edges.
        index_bytes: of a local id.
        weight_bytes: of an edge's weight; None without weights.
        degree_counts: int64 [largest in-degree + 1], destinations of each in-degree; None: not needed.
    """

    num_src: int
    num_dst: int
    num_edges: int
    index_bytes: int = 4
    weight_bytes: int | None = None
    degree_counts: Tensor | None = None

    @property
    def edge_bytes(self) -> int:
        """Of the position of an edge."""
        return 4 if self.num_edges < 2**31 else 8

    @cached_property
    def buckets(self) -> list[tuple[int, int]]:
        """(in-degree, destinations that have it), rising."""
        assert self.degree_counts is not None
        counts = self.degree_counts
        return [(d, int(counts[d])) for d in counts.nonzero()[:, 0].tolist()]

    @staticmethod
    def of(block: Block, *, degrees: bool = False) -> "BlockSizes":
        """Sizes of a block, with `degrees` its in-degree histogram."""
        counts = torch.bincount(block.in_degrees().cpu()) if degrees else None
        weight = None if block.edge_weight is None else block.edge_weight.element_size()
        return BlockSizes(block.num_src, block.num_dst, block.num_edges, block.indices.element_size(), weight, counts)


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of a batch.

    Args:
        blocks: input layer first.
        array_bytes: bytes of each of its arrays as they lie on the device, each storage once.
    """

    blocks: tuple[BlockSizes, ...]
    array_bytes: tuple[int, ...]

    @property
    def num_inputs(self) -> int:
        return self.blocks[0].num_src

    @property
    def num_seeds(self) -> int:
        return self.blocks[-1].num_dst

    @staticmethod
    def of(mb: MiniBatch, *, degrees: bool = False) -> "BatchSizes":
        """Sizes of a batch, with `degrees` the in-degree histograms.

        Args:
            mb: the batch; what it was split from does not go to the device.
            degrees: count in-degrees, for LSTM aggregators.
        """
        arrays = storage_bytes(tensor for name, tensor in mb._tensors().items() if name != "parent")
        blocks = tuple(BlockSizes.of(block, degrees=degrees) for block in mb.blocks)
        return BatchSizes(blocks, tuple(arrays))

"""`MemoryEstimate`: the bytes that a training step is expected to need, by term and by phase."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.shared_storage import storage_bytes
from workbench.core.split import row_prefixes
from workbench.core.units import format_bytes

TERMS: tuple[str, ...] = (
    "parameters",
    "optimizer",
    "inputs",
    "blocks",
    "labels",
    "hidden",
    "aggregator",
    "loss",
    "gradients",
    "workspace",
)
"""Names of the terms, in order. parameters: including buffers. optimizer: its state. inputs: gathered features. blocks:
the batch's arrays and the arrays that layers derive from them. hidden: outputs of layers and of the activations, norms
and dropouts between them. aggregator: everything else that layers allocate in the forward pass. loss: log-probabilities
and losses. gradients: of parameters. workspace: gradients of activations, and the optimizer step's temporaries."""

PHASES: tuple[str, ...] = ("forward", "backward", "step")


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Estimated peak device memory of one micro-batch's training step.

    Args:
        terms: bytes by term, in the order of `TERMS`, at the peak; they add up to `peak_bytes`.
        phase_bytes: peak bytes of each phase of `PHASES`; fetching features counts as forward.
        fixed_bytes: parameters, buffers and optimizer state, allocated before the step.
        backend: name of the backend whose kernels are modelled.
        error: for a traced module, the largest relative error over the sub-batches held out from the fit; None for the
            analytic model.
    """

    terms: Mapping[str, int]
    phase_bytes: Mapping[str, int]
    fixed_bytes: int
    backend: str
    error: float | None = None

    @property
    def peak_bytes(self) -> int:
        return sum(self.terms.values())

    @property
    def step_bytes(self) -> int:
        """Bytes that the step needs on top of `fixed_bytes`."""
        return self.peak_bytes - self.fixed_bytes

    @property
    def phase(self) -> str:
        """The phase in which the peak occurs."""
        return max(self.phase_bytes, key=lambda phase: self.phase_bytes[phase])

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.terms.items() if size)
        return f"MemoryEstimate({format_bytes(self.peak_bytes)} in {self.phase} on {self.backend}: {shares})"


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

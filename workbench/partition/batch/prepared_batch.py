"""A batch with the options of its partition, and the structures that several methods build from it, each once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.refine.computation_graph import ComputationGraph, computation_graph
from workbench.partition.refine.contraction import ContractedGraph, contract


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch to partition; every structure is built on first access.

    Args:
        mb: the batch, on any device.
        options: options of the partition; `weights` are validated and on the CPU.
    """

    mb: MiniBatch
    options: PartitionOptions

    @cached_property
    def host(self) -> MiniBatch:
        """The batch on the CPU."""
        return self.mb if self.mb.device.type == "cpu" else self.mb.to("cpu")

    @property
    def seeds(self) -> Tensor:
        """Raw-graph ids of the seeds, int64 [num_seeds], on the CPU."""
        return self.mb.seeds.cpu()

    @cached_property
    def computation_graph(self) -> ComputationGraph:
        """The batch unrolled by hop, with the bytes of the options' costs."""
        return computation_graph(self.host, self.options.costs)

    @cached_property
    def contracted_graph(self) -> ContractedGraph:
        """The computation graph, with nodes that are needed only together merged."""
        return contract(self.computation_graph)


Cut = Callable[[int], Tensor]
"""A function of the number of parts that returns int64 [num_seeds] on the CPU."""

Prepare = Callable[[PreparedBatch], Cut]
"""A partition method: builds what depends on the batch alone, and returns the function that cuts it."""


def output_rows(mb: MiniBatch) -> tuple[Tensor, Tensor, int]:
    """Return `indptr`, `indices` and number of sources of the output block, on the CPU; no edges without layers."""
    if not mb.blocks:
        return torch.zeros(mb.num_seeds + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), mb.num_seeds
    block = mb.blocks[-1]
    return block.indptr.cpu(), block.indices.cpu(), block.num_src

"""A partitioner followed by Fiduccia–Mattheyses refinement, as one partitioner."""

from collections.abc import Callable

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.hypergraph import hypergraph_parts
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.batch.star import star_parts
from workbench.partition.refine import refine_parts

BatchPartitioner = Callable[[MiniBatch, int, PartitionOptions], Tensor]
"""A function of the batch, the number of parts and the options that returns int64 [num_seeds]."""


def refined(partitioner: BatchPartitioner) -> BatchPartitioner:
    """Return a partitioner that refines the parts of another.

    Args:
        partitioner: provides the initial partition.

    Returns:
        The composed partitioner.
    """

    def parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
        return refine_parts(
            mb,
            partitioner(mb, num_parts, options),
            objective=options.objective,
            weights=options.weights,
            max_bytes=options.max_bytes,
        )

    return parts


star_refined_parts = refined(star_parts)
hypergraph_refined_parts = refined(hypergraph_parts)

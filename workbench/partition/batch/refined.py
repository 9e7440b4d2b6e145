"""A rule and the refinement of what it gives, as one rule."""

from collections.abc import Callable

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.hypergraph import hypergraph_parts
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.batch.star import star_parts
from workbench.partition.refine import refine_parts

Rule = Callable[[MiniBatch, int, PartitionOptions], Tensor]


def refined(rule: Rule) -> Rule:
    """The rule that cuts as `rule` does and refines its parts."""

    def parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
        return refine_parts(
            mb,
            rule(mb, num_parts, options),
            objective=options.objective,
            weights=options.weights,
            max_bytes=options.max_bytes,
        )

    return parts


star_refined_parts = refined(star_parts)
hypergraph_refined_parts = refined(hypergraph_parts)

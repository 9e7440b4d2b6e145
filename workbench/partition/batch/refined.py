"""A partitioner followed by Fiduccia–Mattheyses refinement, as one partitioner."""

from torch import Tensor

from workbench.partition.batch.hypergraph import prepare_hypergraph
from workbench.partition.batch.prepared_batch import Cut, Prepare, PreparedBatch
from workbench.partition.batch.star import prepare_star
from workbench.partition.refine import refine


def refined(prepare: Prepare) -> Prepare:
    """Return a partitioner that refines the parts of another.

    Args:
        prepare: provides the initial partitions, without empty parts.

    Returns:
        The composed partitioner.
    """

    def prepare_refined(batch: PreparedBatch) -> Cut:
        initial, options = prepare(batch), batch.options

        def cut(num_parts: int) -> Tensor:
            part = initial(num_parts)
            if not batch.mb.blocks:
                return part
            return refine(
                batch.contracted_graph,
                part,
                num_parts,
                objective=options.objective,
                weights=options.weights,
                max_bytes=options.max_bytes,
                anneal=options.costs is not None,
            )

        return cut

    return prepare_refined


prepare_star_refined = refined(prepare_star)
prepare_hypergraph_refined = refined(prepare_hypergraph)

"""The policies "auto" and "fast": choose a method by objective and time budget."""

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.prepared_batch import POLICIES

# Wall seconds per edge on two cores, rounded up from the slowest of 32 cases on four real graphs with 4 to 32 parts
# (experiments/betty/partitioners) and of one with 196,615 seeds.
STAR_SECONDS_PER_EDGE = 1.5e-6  # of the output block
REFINE_SECONDS_PER_EDGE = 1e-6  # of all blocks
HYPERGRAPH_SECONDS_PER_EDGE = 2.5e-5  # of the output block


def resolve_method(
    mb: MiniBatch,
    *,
    method: str = "auto",
    node_parts: Tensor | None = None,
    objective: str = "largest",
    time_budget_seconds: float | None = None,
) -> str:
    """Resolve "auto" and "fast" to a method of `PARTITION_METHODS`; return any other method unchanged.

    Args:
        mb: the batch.
        method: a name of `PARTITION_CHOICES`.
        node_parts: integer [num_graph_nodes], a partition of the whole graph; None: there is none.
        objective: "largest" or "total".
        time_budget_seconds: upper limit of the partitioner's estimated time; None: no limit.

    Returns:
        "cluster" if `node_parts` are given. Otherwise "fast" is "star", and "auto" is "star_refined", or within a
        budget the first of "hypergraph_refined" (for "total" only), "star_refined" and "star" that is expected to keep
        it, or "range" if none is.
    """
    if method not in POLICIES:
        return method
    if node_parts is not None:
        return "cluster"
    if method == "fast":
        return "star"
    if time_budget_seconds is None:
        return "star_refined"
    expected = expected_seconds(mb)
    if objective == "largest":
        expected.pop("hypergraph_refined")
    return next((name for name, seconds in expected.items() if seconds <= time_budget_seconds), "range")


def expected_seconds(mb: MiniBatch) -> dict[str, float]:
    """Estimate each method's wall time from the batch's edges, as a rough upper bound.

    Args:
        mb: the batch.

    Returns:
        Method to seconds, slowest method first.
    """
    edges = [block.num_edges for block in mb.blocks] or [0]
    star, refine = edges[-1] * STAR_SECONDS_PER_EDGE, sum(edges) * REFINE_SECONDS_PER_EDGE
    return {
        "hypergraph_refined": edges[-1] * HYPERGRAPH_SECONDS_PER_EDGE + refine,
        "star_refined": star + refine,
        "star": star,
    }

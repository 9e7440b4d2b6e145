"""What "auto" and "fast" stand for."""

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import POLICIES

# Seconds of wall time an edge on two cores, rounded up from the slowest of 32 cases on four real graphs with 4 to 32
# parts (experiments/betty/partitioners) and of one with 196,615 outputs.
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
    """The method that "auto" or "fast" stands for; any other stands for itself.

    Args:
        mb: the batch.
        method: see `partition_batch`, as what follows.
        node_parts: a partition of the whole graph.
        objective: "largest" or "total".
        time_budget_seconds: that the partition should take at most.

    Returns:
        "cluster" where `node_parts` is given. "auto" is "star_refined", or within a budget the best that is expected to
        keep it: for "total" "hypergraph_refined", then "star_refined", "star", and "range" if nothing does. "fast" is
        "star".
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
    """Seconds that methods take for a batch, slowest first, by the numbers of its edges: a rough upper bound.

    Args:
        mb: the batch.
    """
    edges = [block.num_edges for block in mb.blocks] or [0]
    star, refine = edges[-1] * STAR_SECONDS_PER_EDGE, sum(edges) * REFINE_SECONDS_PER_EDGE
    return {
        "hypergraph_refined": edges[-1] * HYPERGRAPH_SECONDS_PER_EDGE + refine,
        "star_refined": star + refine,
        "star": star,
    }

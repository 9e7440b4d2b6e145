"""What every rule that partitions a batch may be told, what that means, and the part of the batch that it looks at."""

from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_bytes, check_choice, check_seed, check_vector
from workbench.core.minibatch import MiniBatch
from workbench.partition.refine import OBJECTIVES
from workbench.partition.refine.trees import computation_trees, fair_shares

POLICIES = ("auto", "fast")
"""Names that choose a method."""

_UNEVEN = {"largest": 0.03, "total": 0.1}


@dataclass(frozen=True, eq=False)
class PartitionOptions:
    """Options of `partition_batch`, checked.

    Args:
        seed: of every random decision.
        weights: [num_seeds] on the CPU, non-negative weight of every seed to balance; None: 1 each, or what
            `byte_weights` says where a rule takes that.
        node_parts: integer [num_graph_nodes], a partition of the whole graph.
        max_bytes: memory that the partition's own arrays may take; None: what the machine has left.
        objective: "largest" or "total", see `partition_batch`.
        time_limit_seconds: METIS or Mt-KaHyPar are ended after that; None: never.
    """

    seed: int = 0
    weights: Tensor | None = None
    node_parts: Tensor | None = None
    max_bytes: int | None = None
    objective: str = "largest"
    time_limit_seconds: float | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_objective(self.objective)
        if self.max_bytes is not None:
            check_bytes("max_bytes", self.max_bytes, 0)
        limit = self.time_limit_seconds
        if limit is not None and not (isinstance(limit, Real) and limit > 0):
            raise ValueError(f"time_budget_seconds is {limit!r}; it must be a positive number, or None for no limit")

    @property
    def imbalance(self) -> float:
        """By what share parts may be heavier than the mean: METIS's own 3 %, or 10 % where only the total counts."""
        return _UNEVEN[self.objective]


def byte_weights(mb: MiniBatch, options: PartitionOptions) -> Tensor:
    """The seeds' weights, or else their fair shares of the bytes of all inputs and edges of the batch: [num_seeds]."""
    return fair_shares(computation_trees(mb))[: mb.num_seeds] if options.weights is None else options.weights


def check_objective(objective: str) -> None:
    """Refuse an unknown objective.

    Raises:
        ValueError: it is not known.
    """
    check_choice("objective", objective, OBJECTIVES)


def check_method(method: str, node_parts: Tensor | None) -> None:
    """Refuse a partition of the whole graph that is missing, or that the method would not use, before any work.

    Raises:
        ValueError: "cluster" without `node_parts`, or a method that does not read them with them; not a vector.
        TypeError: `node_parts` are no integers.
    """
    check_vector("node_parts", node_parts, None, ID_DTYPES)
    if (method == "cluster") if node_parts is None else (method not in (*POLICIES, "cluster")):
        raise ValueError(
            f"method is {method!r} and node_parts is {'not ' if node_parts is None else ''}given; method 'cluster' "
            "needs them (partition_graph), 'auto' and 'fast' may have them, others would not use them"
        )


def output_rows(mb: MiniBatch) -> tuple[Tensor, Tensor, int]:
    """`indptr`, `indices` and number of sources of the output block, on the CPU; without layers there are no edges."""
    if not mb.blocks:
        return torch.zeros(mb.num_seeds + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), mb.num_seeds
    block = mb.blocks[-1]
    return block.indptr.cpu(), block.indices.cpu(), block.num_src

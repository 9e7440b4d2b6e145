"""Options shared by all batch partitioners, and their validation."""

from dataclasses import dataclass
from numbers import Real
from types import NoneType

from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_bytes, check_choice, check_seed, check_type, check_vector
from workbench.partition.costs import ByteCosts
from workbench.partition.refine import OBJECTIVES

POLICIES = ("auto", "fast")
"""Method names that choose another method."""

_IMBALANCE = {"largest": 0.03, "total": 0.1}


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionOptions:
    """Options of `partition_batch`, validated.

    Args:
        seed: seed of every random decision.
        weights: [num_seeds] on the CPU, non-negative weight of every seed to balance; None: 1 each, or the weights of
            `byte_weights` in methods that balance bytes.
        node_parts: integer [num_graph_nodes], a partition of the whole graph.
        max_bytes: memory that the partitioner's own arrays may use; None: the memory that the machine has available.
        objective: "largest" (minimize the largest part) or "total" (minimize the sum of all parts).
        time_budget_seconds: METIS or Mt-KaHyPar is ended after this many seconds; None: no limit.
        costs: bytes per node and edge of each layer, for methods that balance bytes; None: `ByteCosts.default`.
    """

    seed: int = 0
    weights: Tensor | None = None
    node_parts: Tensor | None = None
    max_bytes: int | None = None
    objective: str = "largest"
    time_budget_seconds: float | None = None
    costs: ByteCosts | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_choice("objective", self.objective, OBJECTIVES)
        if self.max_bytes is not None:
            object.__setattr__(self, "max_bytes", check_bytes("max_bytes", self.max_bytes, 0))
        check_type("costs", self.costs, (ByteCosts, NoneType), "workbench.byte_costs computes them for a model")
        limit = self.time_budget_seconds
        if limit is not None and not (isinstance(limit, Real) and limit > 0):
            raise ValueError(f"time_budget_seconds is {limit!r}; it must be a positive number, or None for no limit")

    @property
    def imbalance(self) -> float:
        """Allowed excess of a part's weight over the mean: METIS's 3 %, or 10 % for the objective "total"."""
        return _IMBALANCE[self.objective]


def check_method(method: str, node_parts: Tensor | None) -> None:
    """Refuse a partition of the whole graph that is missing, or that the method would not use.

    Args:
        method: one of `partition_choices()`.
        node_parts: integer [num_graph_nodes], or None.

    Raises:
        ValueError: "cluster" without `node_parts`, another method with them, or they are not a vector.
        TypeError: `node_parts` are not integers.
    """
    check_vector("node_parts", node_parts, None, ID_DTYPES)
    if (method == "cluster") if node_parts is None else (method not in (*POLICIES, "cluster")):
        raise ValueError(
            f"method is {method!r} and node_parts is {'not ' if node_parts is None else ''}given; method 'cluster' "
            "requires node_parts (partition_graph), 'auto' and 'fast' accept them, other methods don't use them"
        )

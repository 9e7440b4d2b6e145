"""A batch with the options of its partition, and the structures that several methods build from it, each once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from types import NoneType

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_bytes, check_choice, check_seed, check_type, check_vector
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import ByteCosts
from workbench.partition.computation_graph import ComputationGraph, ContractedGraph, computation_graph, contract
from workbench.partition.refine import OBJECTIVES


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
        check_type("costs", self.costs, (ByteCosts, NoneType), "workbench.memory.byte_costs computes them for a model")
        limit = self.time_budget_seconds
        if limit is not None and not (isinstance(limit, Real) and limit > 0):
            raise ValueError(f"time_budget_seconds is {limit!r}; it must be a positive number, or None for no limit")

    @property
    def imbalance(self) -> float:
        """Allowed excess of a part's weight over the mean: METIS's 3 %, or 10 % for the objective "total"."""
        return _IMBALANCE[self.objective]


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


POLICIES = ("auto", "fast")
"""Method names that choose another method."""

_IMBALANCE = {"largest": 0.03, "total": 0.1}


def check_method(method: str, node_parts: Tensor | None) -> None:
    """Refuse a partition of the whole graph that is missing, or that the method would not use.

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

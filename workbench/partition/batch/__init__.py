"""Partitions of a batch's seeds into micro-batches: one module per method, `Partitioner` prepares and cuts.

Betty's REG, METIS, random and range, and what goes beyond the paper: star, exact hypergraphs, and both refined. They
take weights or costs in bytes, and never call the memory estimator.
"""

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import ByteCosts
from workbench.partition.batch.partitioner import (
    PARTITION_METHODS as PARTITION_METHODS,
    Partitioner,
    partition_choices as partition_choices,
    register_partitioner as register_partitioner,
)


def partition_batch(
    mb: MiniBatch,
    num_parts: int,
    *,
    method: str = "auto",
    seed: int = 0,
    node_parts: Tensor | None = None,
    weights: Tensor | None = None,
    objective: str = "largest",
    time_budget_seconds: float | None = None,
    max_bytes: int | None = None,
    costs: ByteCosts | None = None,
) -> Tensor:
    """Assign every seed of a batch to one of `num_parts` micro-batches; `mb.split(part)` then makes them.

    `Partitioner(…).prepare(mb).cut(num_parts)` does the same in two stages, for several numbers of parts.

    Args:
        mb: the batch, on any device.
        num_parts: number of parts, 1 to the number of seeds.
        method: a name of `PARTITION_METHODS`; "auto": star_refined, or star if memory is too short for that, or the
            best method that the time budget allows; "fast": star.
        seed: the same seed gives the same parts; range and cluster do not depend on it.
        node_parts: integer [num_graph_nodes], a partition of the whole graph (`partition_graph`), for cluster.
        weights: integer or floating [num_seeds], non-negative weight of every seed: parts are balanced by weight
            instead of number. None: range, random, metis and reg balance the number of seeds, as the paper does; in
            star and hypergraph a seed weighs its fair share of the bytes of all nodes and edges, and the refinement
            lowers the bytes themselves.
        objective: for star, hypergraph and the refinement. "largest": minimize the bytes of the largest part;
            "total": minimize the inputs of all parts together, whose weights may then exceed the mean by 10 % instead
            of 3 %.
        time_budget_seconds: "auto" chooses the best of hypergraph_refined (for "total" only), star_refined, star and
            range whose time, estimated from the batch's edges, is within the budget; METIS and Mt-KaHyPar are ended
            when they overrun it (a refinement is not). None: no limit.
        max_bytes: memory that the partitioner itself may allocate; None: the memory that the machine has available.
        costs: bytes per node and edge of each layer, for star, hypergraph and the refinement
            (`workbench.memory.byte_costs` computes those of a model); None: 512 per input node (128 features in
            float32) and 16 per edge.

    Returns:
        int64 [num_seeds] in [0, num_parts), on the batch's device.

    Raises:
        ValueError: an unknown method or objective, an impossible number of parts, a budget that is not positive,
            invalid weights, `node_parts` missing or unused, or the batch has exchanges.
        TypeError: tensors of another dtype.
        IndexError: a seed that `node_parts` does not cover.
        CapacityError: reg, hypergraph or a refinement would need more than `max_bytes` (checked before allocating).
        ImportError: metis, reg or star without pymetis, hypergraph without mtkahypar.
        PartitionError: METIS or Mt-KaHyPar failed, crashed or overran the budget.

    Source: Betty (ASPLOS 2023), sections 4.3 and 6.
    """
    partitioner = Partitioner(
        method=method,
        seed=seed,
        node_parts=node_parts,
        weights=weights,
        objective=objective,
        time_budget_seconds=time_budget_seconds,
        max_bytes=max_bytes,
        costs=costs,
    )
    return partitioner.prepare(mb).cut(num_parts).assignment

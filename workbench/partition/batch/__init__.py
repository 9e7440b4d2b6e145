"""Partitions of a batch's seeds into micro-batches: one module per method, `partition_batch` dispatches to them."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_at_least, check_choice, check_type
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import check_weights
from workbench.partition.batch.auto import resolve_method
from workbench.partition.batch.cluster import cluster_parts
from workbench.partition.batch.hypergraph import hypergraph_deep_parts, hypergraph_parts
from workbench.partition.batch.metis import metis_parts
from workbench.partition.batch.options import POLICIES, PartitionOptions, check_method
from workbench.partition.batch.random import random_parts
from workbench.partition.batch.range import range_parts
from workbench.partition.batch.refined import BatchPartitioner, hypergraph_refined_parts, star_refined_parts
from workbench.partition.batch.reg import reg_normalized_parts, reg_parts, reg_unweighted_parts
from workbench.partition.batch.star import star_parts

PARTITION_METHODS: Mapping[str, BatchPartitioner] = MappingProxyType(
    {
        "range": range_parts,
        "random": random_parts,
        "metis": metis_parts,
        "reg": reg_parts,
        "reg_unweighted": reg_unweighted_parts,
        "reg_normalized": reg_normalized_parts,
        "star": star_parts,
        "star_refined": star_refined_parts,
        "hypergraph": hypergraph_parts,
        "hypergraph_deep": hypergraph_deep_parts,
        "hypergraph_refined": hypergraph_refined_parts,
        "cluster": cluster_parts,
    }
)

PARTITION_CHOICES = (*POLICIES, *PARTITION_METHODS)
"""The methods that `partition_batch` accepts: `PARTITION_METHODS`, and the policies that choose one of them."""


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
) -> Tensor:
    """Assign every seed of a batch to one of `num_parts` micro-batches; `mb.split(part)` then makes them.

    Args:
        mb: the batch, on any device.
        num_parts: number of parts, 1 to the number of seeds.
        method: a name of `PARTITION_METHODS`; "auto": star_refined, or star if memory is too short for that, or the
            best method that the time budget allows; "fast": star.
        seed: the same seed gives the same parts; range and cluster do not depend on it.
        node_parts: integer [num_graph_nodes], a partition of the whole graph (`partition_graph`), for cluster.
        weights: integer or floating [num_seeds], non-negative weight of every seed: parts are balanced by weight
            instead of number. None: range, random, metis and reg balance the number of seeds, as the paper does; in
            star and hypergraph a seed weighs its fair share of the bytes of all inputs and edges, and the refinement
            lowers the bytes themselves.
        objective: for star, hypergraph and the refinement. "largest": minimize the bytes of the largest part;
            "total": minimize the inputs of all parts together, whose weights may then exceed the mean by 10 % instead
            of 3 %.
        time_budget_seconds: "auto" chooses the best of hypergraph_refined (for "total" only), star_refined, star and
            range whose time, estimated from the batch's edges, is within the budget; METIS and Mt-KaHyPar are ended
            when they overrun it (a refinement is not). None: no limit.
        max_bytes: memory that the partitioner itself may allocate; None: the memory that the machine has available.

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
    check_choice("method", method, PARTITION_CHOICES)
    check_type("mb", mb, MiniBatch, "pass a MiniBatch; workbench.micro_batches splits batches of DGL and PyG")
    refuse_halo(mb.exchanges, "partitioned")
    check_at_least("num_parts", num_parts, 1)
    options = PartitionOptions(seed, None, node_parts, max_bytes, objective, time_budget_seconds)
    if num_parts > max(1, mb.num_seeds):
        raise ValueError(
            f"num_parts is {num_parts}, but the batch has {mb.num_seeds} seeds; ask for at most one part per seed"
        )
    check_method(method, node_parts)
    weights = check_weights(weights, mb.num_seeds)
    if num_parts == 1:
        return torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device)
    options = replace(options, weights=weights)
    resolved = resolve_method(
        mb, method=method, node_parts=node_parts, objective=objective, time_budget_seconds=time_budget_seconds
    )
    try:
        part = PARTITION_METHODS[resolved](mb, num_parts, options)
    except CapacityError:
        if method != "auto":
            raise
        part = star_parts(mb, num_parts, options)  # the best method of linear memory
    return part.to(mb.device)

"""Partitions of a batch's seeds into micro-batches: one file a rule, `partition_batch` over all of them."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_at_least, check_choice, check_type
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.choice import resolve_method
from workbench.partition.batch.cluster import cluster_parts
from workbench.partition.batch.hypergraph import hypergraph_deep_parts, hypergraph_parts
from workbench.partition.batch.metis import metis_parts
from workbench.partition.batch.options import POLICIES, PartitionOptions, check_method
from workbench.partition.batch.random import random_parts
from workbench.partition.batch.range import range_parts
from workbench.partition.batch.refined import Rule, hypergraph_refined_parts, star_refined_parts
from workbench.partition.batch.reg import reg_normalized_parts, reg_parts, reg_unweighted_parts
from workbench.partition.batch.star import star_parts
from workbench.partition.weights import check_weights

PARTITION_METHODS: Mapping[str, Rule] = MappingProxyType(
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
"""What `partition_batch` takes as a method: those of `PARTITION_METHODS`, and names that choose one."""


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
    """Say which of `num_parts` micro-batches every seed belongs to; `mb.split` of the result makes them.

    Args:
        mb: the batch, on any device.
        num_parts: parts, 1 to the number of seeds.
        method: a name of `PARTITION_METHODS`; "auto": star_refined, or star where that lacks memory, or what the budget
            allows; "fast": star.
        seed: the same seed gives the same parts; range and cluster do not depend on it.
        node_parts: integer [num_graph_nodes], a partition of the whole graph (`partition_graph`), for cluster.
        weights: integer or floating [num_seeds], non-negative weight of every seed, so that parts are equal in weight
            rather than in number. None: range, random, metis and reg make parts equal in number, as the paper does;
            with star and hypergraph a seed weighs its fair share of the bytes of all inputs and edges, and the
            refinement lowers bytes themselves.
        objective: "largest": parts need few bytes, the largest one above all; "total": all of them together need few
            inputs, and may be 10 % heavier than the mean rather than 3 %. For star, hypergraph and the refinement.
        time_budget_seconds: "auto" takes the best of hypergraph_refined (for "total"), star_refined, star and range
            that it expects to take at most so long, by the batch's edges; METIS and Mt-KaHyPar are ended when they
            overrun it (a refinement is not). None: no limit.
        max_bytes: memory that the partition itself may take; None: what the machine has left.

    Returns:
        int64 [num_seeds] in [0, num_parts), on the batch's device.

    Raises:
        ValueError: an unknown method or objective, an impossible number of parts, a budget that is not positive, bad
            weights, `node_parts` missing or not used.
        TypeError: tensors of another dtype.
        IndexError: a seed beyond `node_parts`.
        CapacityError: reg, hypergraph or a refinement would need more than `max_bytes`; what that is about has not been
            built then.
        ImportError: metis, reg or star without pymetis, hypergraph without mtkahypar.
        PartitionError: METIS or Mt-KaHyPar failed, crashed or overran the budget.

    Source: Betty (ASPLOS 2023), sections 4.3 and 6.
    """
    check_choice("method", method, PARTITION_CHOICES)
    check_type("mb", mb, MiniBatch, "pass a MiniBatch; workbench.micro_batches cuts batches of DGL and PyG")
    check_at_least("num_parts", num_parts, 1)
    options = PartitionOptions(seed, None, node_parts, max_bytes, objective, time_budget_seconds)
    if num_parts > max(1, mb.num_seeds):
        raise ValueError(
            f"num_parts is {num_parts}, but the batch has {mb.num_seeds} seeds; ask for at most one part a seed"
        )
    check_method(method, node_parts)
    weights = check_weights(weights, mb.num_seeds)
    if num_parts == 1:
        return torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device)
    options = replace(options, weights=weights)
    chosen = resolve_method(
        mb, method=method, node_parts=node_parts, objective=objective, time_budget_seconds=time_budget_seconds
    )
    try:
        part = PARTITION_METHODS[chosen](mb, num_parts, options)
    except CapacityError:
        if method != "auto":
            raise
        part = star_parts(mb, num_parts, options)  # of linear size, and all that is left to try
    return part.to(mb.device)

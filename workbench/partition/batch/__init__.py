"""Partitions of a batch's seeds into micro-batches: one file a rule, `partition_batch` over all of them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.block import FLOATS
from workbench.core.errors import ID_DTYPES, check_at_least, check_choice, check_vector
from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.cluster import cluster_parts
from workbench.partition.batch.metis import metis_parts, share_among_outputs
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.batch.random import random_parts
from workbench.partition.batch.range import range_parts
from workbench.partition.batch.reg import reg_fits, reg_parts, reg_unweighted_parts

Rule = Callable[[MiniBatch, int, PartitionOptions], Tensor]

_METIS_FROM = 1 / 3

PARTITION_METHODS: Mapping[str, Rule] = MappingProxyType(
    {
        "range": range_parts,
        "random": random_parts,
        "metis": metis_parts,
        "reg": reg_parts,
        "reg_unweighted": reg_unweighted_parts,
        "cluster": cluster_parts,
    }
)


def partition_batch(
    mb: MiniBatch,
    num_parts: int,
    *,
    method: str = "auto",
    seed: int = 0,
    node_parts: Tensor | None = None,
    weights: Tensor | None = None,
    max_bytes: int | None = None,
) -> Tensor:
    """Say which of `num_parts` micro-batches every seed belongs to; `mb.split` of the result makes them.

    Args:
        mb: the batch, on any device.
        num_parts: parts, 1 to the number of seeds.
        method: a name of `PARTITION_METHODS`, or "auto": what `resolve_method` says.
        seed: the same seed gives the same parts; range and cluster do not depend on it.
        node_parts: integer [num_graph_nodes], a partition of the whole graph (`partition_graph`), for cluster.
        weights: integer or floating [num_seeds], non-negative weight of every seed, so that parts are equal in weight
            rather than in number.
        max_bytes: memory that the partition itself may take; None: what the machine has left.

    Returns:
        int64 [num_seeds] in [0, num_parts), on the batch's device.

    Raises:
        ValueError: an unknown method, an impossible number of parts, bad weights, `node_parts` missing or not used.
        TypeError: tensors of another dtype.
        IndexError: a seed beyond `node_parts`.
        CapacityError: reg would need more than `max_bytes`; nothing has been built then.
        ImportError: metis, reg or reg_unweighted without pymetis.

    Source: Betty (ASPLOS 2023), sections 4.3 and 6.
    """
    check_choice("method", method, ("auto", *PARTITION_METHODS))
    check_at_least("num_parts", num_parts, 1)
    if num_parts > max(1, mb.num_seeds):
        raise ValueError(
            f"num_parts is {num_parts}, but the batch has {mb.num_seeds} seeds; ask for at most one part a seed"
        )
    if node_parts is not None and method not in ("auto", "cluster"):
        raise ValueError(f"node_parts serves method 'cluster'; method {method!r} would not use it")
    weights = check_weights(weights, mb.num_seeds)
    if num_parts == 1:
        return torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device)
    if method == "auto":
        max_bytes = available_bytes() if max_bytes is None else max_bytes
        method = resolve_method(mb, node_parts=node_parts, max_bytes=max_bytes)
    options = PartitionOptions(seed, weights, node_parts, max_bytes)
    return PARTITION_METHODS[method](mb, num_parts, options).to(mb.device)


def resolve_method(mb: MiniBatch, *, node_parts: Tensor | None = None, max_bytes: int | None = None) -> str:
    """The method that "auto" stands for.

    On six real graphs metis was as good as reg, in a tenth of the time, where outputs are each other's sources.

    Args:
        mb: the batch.
        node_parts: see `partition_batch`.
        max_bytes: see `partition_batch`.

    Returns:
        "cluster" where `node_parts` is given; else "metis" where a third or more of the output block's edges come from
        outputs, or where reg's graph exceeds `max_bytes`; else "reg".
    """
    if node_parts is not None:
        return "cluster"
    if share_among_outputs(mb) >= _METIS_FROM:
        return "metis"
    return "reg" if reg_fits(mb, available_bytes() if max_bytes is None else max_bytes) else "metis"


def check_weights(weights: Tensor | None, count: int) -> Tensor | None:
    """The weights on the CPU, if they can be balanced.

    Raises:
        TypeError: neither integers nor floats.
        ValueError: another length, a negative, infinite or missing number, or all zero.
    """
    check_vector("weights", weights, count, (*ID_DTYPES, *FLOATS))
    if weights is None or not count:
        return None
    low, high = (float(v) for v in torch.aminmax(weights))
    if not (low >= 0 and 0 < high < float("inf")):
        raise ValueError(f"weights lie in [{low}, {high}]; they must be finite, not negative and not all zero")
    return weights.detach().cpu()

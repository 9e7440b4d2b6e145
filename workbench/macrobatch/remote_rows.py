"""`remote_rows`: how many feature rows a rank fetches from others, mini-batch by mini-batch or in macrobatches."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_at_least, check_ids, check_type, check_vector
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.trace import AccessTrace
from workbench.features.cache.simulate import simulate_cache
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import IdIndex
from workbench.macrobatch.plan import WindowUnions


def remote_rows(batches: Iterable[MiniBatch], owner: Tensor, rank: int, *, group_size: int = 1) -> int:
    """Count the feature rows that a rank fetches from others, if those of several mini-batches are fetched at once.

    Args:
        batches: the rank's mini-batches of an epoch, in order; a group at a time is in memory if they are generated.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        rank: number of the rank.
        group_size: F, mini-batches whose rows are fetched together, at least 1.

    Returns:
        Σ |A_k| of equation 3, restricted to rows of other ranks; with `group_size` 1, Σ |f_i| of equation 2.

    Raises:
        ValueError: `group_size` below 1, or a batch with exchanges, whose rows are not fetched in groups.
        IndexError: a node that no rank owns.

    Source: BatchGNN, appendix A, equations 2 and 3.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> batches = [wb.FullNeighborSampler(1).sample(path, torch.tensor([seed])) for seed in (2, 3)]
    >>> [remote_rows(batches, torch.tensor([0, 0, 1, 1]), 0, group_size=size) for size in (1, 2)]
    [3, 2]
    """
    check_at_least("group_size", group_size, 1)
    check_vector("owner", owner, None, ID_DTYPES)
    total, rest = 0, iter(batches)
    while group := list(islice(rest, group_size)):
        ids = []
        for mb in group:
            refuse_halo(mb.exchanges, "counted")
            ids.append(check_ids("node_ids", mb.node_ids, len(owner)))
        total += int((gather_rows(owner, IdIndex(ids, len(owner)).ids) != rank).sum())
    return total


@dataclass(frozen=True)
class WindowFetches:
    """Rows that the batches of a window fetch, by how they are kept in memory.

    Args:
        separate_rows: batch by batch, nothing kept.
        grouped_rows: as macrobatches: each group's distinct rows once, nothing kept from group to group.
        lru_rows: through an LRU cache with room for `capacity_rows`.
        belady_rows: through a cache of that size that knows the window: no cache that starts empty fetches fewer.
        capacity_rows: rows of the largest group, or as given.
    """

    separate_rows: int
    grouped_rows: int
    lru_rows: int
    belady_rows: int
    capacity_rows: int


def window_fetches(
    window: Iterable[Tensor | MiniBatch | tuple[int, MiniBatch]],
    *,
    group_size: int,
    capacity_rows: int | None = None,
) -> WindowFetches:
    """Count the rows that a window of batches fetches as macrobatches, and with caches that hold as many rows.

    A window that is sampled at once is a known trace, of which Belady's rule gives the lower bound.

    Args:
        window: the batches, pairs (step, batch), or the ids that each reads, each once.
        group_size: F, batches whose rows are fetched and held together.
        capacity_rows: rows of the caches, at least 1; None: those of the largest group.

    Raises:
        TypeError: `window` contains something else.
        ValueError: a number below 1.

    Source: Park et al., "Ginex" (VLDB 2022): superbatches and provably optimal caching; BatchGNN, section 3.
    """
    check_at_least("group_size", group_size, 1)
    reads = [_ids(item) for item in window]
    trace = AccessTrace.of(reads)
    groups = WindowUnions.of(iter(trace)).counts(group_size)
    capacity = max(1, int(max(groups, default=0))) if capacity_rows is None else capacity_rows
    check_at_least("capacity_rows", capacity, 1)
    misses = {
        policy: simulate_cache(trace, capacity, policy=policy, semantics="batch").num_misses
        for policy in ("lru", "belady-bypass")
    }
    return WindowFetches(len(trace.ids), int(groups.sum()), misses["lru"], misses["belady-bypass"], capacity)


def _ids(item: Any) -> Tensor:
    item = item[1] if isinstance(item, tuple) and len(item) == 2 else item
    if isinstance(item, MiniBatch):
        return item.node_ids
    check_type("an item of window", item, Tensor, "pass batches, pairs (step, batch), or the ids that each batch reads")
    return item

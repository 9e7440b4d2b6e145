"""`window_fetches`: rows that a window fetches as macrobatches, and with caches of the same size."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from workbench.core.errors import check_at_least, check_type
from workbench.core.minibatch import MiniBatch
from workbench.core.trace import AccessTrace
from workbench.features.cache.simulate import simulate_cache
from workbench.features.window_unions import WindowUnions


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

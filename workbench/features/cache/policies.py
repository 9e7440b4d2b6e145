"""The policies by name, and what each needs to start."""

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_fits, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.trace import AccessTrace
from workbench.features.cache import eviction as codes
from workbench.features.cache.eviction import (
    GHOST_SHARE,
    SIZE,
    SMALL_LIMIT,
    SMALL_SHARE,
    CacheState,
    empty_state,
    next_uses,
)
from workbench.features.cache.machine import CacheMachine
from workbench.kernels.jit import compiled

_CODES = {
    "lru": codes.LRU,
    "fifo": codes.FIFO,
    "clock": codes.CLOCK,
    "sieve": codes.SIEVE,
    "s3-fifo": codes.S3_FIFO,
    "static": codes.STATIC,
    "belady": codes.BELADY,
    "belady-bypass": codes.BELADY_BYPASS,
}

CACHE_POLICIES = tuple(_CODES)
"""Names of the replacement policies. "static" needs the rows, "belady" and "belady-bypass" the trace."""

NEED_TRACE = ("belady", "belady-bypass")

MAX_CAPACITY = 1 << 30  # nodes, ghosts and sentinels included, are int32


def make_machine(
    policy: str,
    num_rows: int,
    capacity_rows: int,
    *,
    batches: bool,
    rows: Tensor | None = None,
    trace: AccessTrace | None = None,
) -> CacheMachine:
    """Return the machine of a policy, empty except for the rows of a static cache.

    Args:
        policy: a name of `CACHE_POLICIES`.
        num_rows: number of rows of the store.
        capacity_rows: number of rows that the cache has room for; one that exceeds `num_rows` evicts nothing, and the
            state has room for `num_rows` alone.
        batches: whether batch semantics follow, in which a row is next used in a later read.
        rows: int64 or int32 [any], ids of the rows of a static cache, the most important first; required by "static",
            refused by all others.
        trace: everything that will be read; required by "belady" and "belady-bypass", refused by all others.
    """
    check_choice("policy", policy, CACHE_POLICIES)
    check_at_least("capacity_rows", capacity_rows, 1, most=MAX_CAPACITY)
    if policy == "static" and rows is None:
        raise ValueError('policy="static" needs rows=, their ids, such as wb.features.rank_by_degree(graph)')
    if policy != "static" and rows is not None:
        raise ValueError(f'rows= is for policy="static" alone, but policy is "{policy}"; leave rows out')
    if trace is not None and policy not in NEED_TRACE:
        raise ValueError(f'trace= is for {" and ".join(NEED_TRACE)} alone, but policy is "{policy}"; leave trace out')
    room = min(capacity_rows, max(1, num_rows))
    return CacheMachine(_CODES[policy], _state(policy, num_rows, room, batches, rows, trace))


def _state(
    policy: str, num_rows: int, capacity: int, batches: bool, rows: Tensor | None, trace: AccessTrace | None
) -> CacheState:
    if rows is not None:
        return static_state(num_rows, capacity, rows)
    if policy in NEED_TRACE:
        if trace is None:
            raise ValueError(f'policy="{policy}" needs trace=, a wb.AccessTrace of all reads to come; others need none')
        check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
        ids, offsets = check_ids("trace.ids", trace.ids, num_rows).cpu(), trace.offsets.cpu().contiguous()
        return empty_state(num_rows, capacity, next_use=next_uses(ids, offsets, num_rows, later_read=batches))
    if policy == "s3-fifo":
        state = empty_state(num_rows, capacity, ghosts=int(capacity * GHOST_SHARE))
        state.counters[SMALL_LIMIT] = max(1, int(capacity * SMALL_SHARE))
        return state
    return empty_state(num_rows, capacity)


def rank_by_degree(graph: Graph) -> Tensor:
    """Rank nodes by the number of neighbour lists that contain them, the most frequent first: PaGraph's static cache.

    Args:
        graph: the graph that is sampled.

    Returns:
        int64 [num_nodes], node ids; equal degrees in the order of their ids.

    Source: PaGraph (SoCC 2020), section 3.3.
    """
    check_type("graph", graph, Graph, "pass a wb.Graph")
    return _descending(torch.bincount(graph.indices, minlength=graph.num_nodes))


def rank_by_frequency(trace: AccessTrace, *, num_rows: int | None = None) -> Tensor:
    """Rank rows by how often a trace reads them, the most frequent first: GNNLab's presampling.

    Args:
        trace: reads of some batches, such as those of one epoch with another seed.
        num_rows: number of rows to rank; None: up to the largest id of the trace.

    Returns:
        int64 [num_rows], row ids; equal counts in the order of their ids.

    Raises:
        IndexError: an id that is not below `num_rows`.
        CapacityError: the ranking does not fit into memory.

    Source: GNNLab (EuroSys 2022), section 6.3, with one or more presampled epochs.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    num_rows = num_rows_of(trace) if num_rows is None else num_rows
    check_at_least("num_rows", num_rows, 0)
    check_fits(f"a ranking of {num_rows:,} rows", 24 * num_rows, "number the rows from 0")
    return _descending(torch.bincount(check_ids("trace.ids", trace.ids, num_rows), minlength=num_rows))


def num_rows_of(trace: AccessTrace) -> int:
    """Return the smallest number of rows that a trace can be about."""
    return int(trace.ids.max()) + 1 if len(trace.ids) else 0


def _descending(counts: Tensor) -> Tensor:
    return torch.argsort(counts, descending=True, stable=True)


def static_state(num_rows: int, capacity: int, rows: Tensor) -> CacheState:
    """Return the state of a cache that contains the first `capacity` of some rows, in slots of that order.

    Args:
        num_rows: number of rows of the store.
        rows: int64 or int32 [any], ids, each once.
    """
    rows = check_ids("rows", rows, num_rows, unique=True)[:capacity].cpu()
    state = empty_state(num_rows, capacity)
    state.counters[SIZE] = len(rows)
    _fill(state, rows.numpy())
    return state


@compiled(_nrt=False)
def _fill(s, rows):
    for slot in range(len(rows)):
        s.row_of[slot] = rows[slot]
        s.node_of[rows[slot]] = slot

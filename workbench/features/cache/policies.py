"""The policies by name, and what each needs to start."""

from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_ids, check_type
from workbench.core.trace import AccessTrace
from workbench.features.cache import state as codes
from workbench.features.cache.belady import next_uses
from workbench.features.cache.machine import CacheMachine
from workbench.features.cache.s3fifo import GHOST_SHARE, SMALL_SHARE
from workbench.features.cache.state import SMALL_LIMIT, CacheState, empty_state
from workbench.features.cache.static import static_state

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

    Raises:
        ValueError: an unknown policy, a capacity below 1, or what the policy needs is missing.
        IndexError: an id out of range.
        CapacityError: the state does not fit into memory.
    """
    check_choice("policy", policy, CACHE_POLICIES)
    check_at_least("capacity_rows", capacity_rows, 1, most=MAX_CAPACITY)
    if policy == "static" and rows is None:
        raise ValueError('policy="static" needs rows=, their ids, such as wb.rank_by_degree(graph)')
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

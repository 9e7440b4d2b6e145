"""S3-FIFO: a small FIFO queue filters out rows that are used once, a main queue keeps the others.

A row enters the small queue (a tenth of the cache), or the main queue if it is among the ghosts: the last rows evicted
from the small queue, 0.9 times as many as the cache has room for. Rows of the small queue that hit twice move to the
main queue, which reinserts rows that hit, with a frequency of at most 3 that falls by one each time. As in the second
version of libCacheSim, rows enter the main queue while the small queue is full and nothing has been evicted yet.

Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1.
"""

from workbench.features.cache.state import (
    GHOST_QUEUE,
    GHOSTS,
    HAS_EVICTED,
    MAIN_QUEUE,
    NONE,
    SIZE,
    SMALL,
    SMALL_LIMIT,
    SMALL_QUEUE,
    is_full,
    next_free_slot,
    oldest,
    push,
    put,
    unlink,
)
from workbench.kernels.jit import compiled

SMALL_SHARE = 0.1
GHOST_SHARE = 0.9
_MAX_FREQUENCY = 3
_MOVE_TO_MAIN = 2


@compiled(_nrt=False)
def hit_s3fifo(s, slot):
    s.mark[slot] = min(s.mark[slot] + 1, _MAX_FREQUENCY)


@compiled(_nrt=False)
def admit_s3fifo(s, row):
    to_main = _forget_ghost(s, row)
    slot = _evict(s) if is_full(s) else next_free_slot(s)
    if not s.counters[HAS_EVICTED] and s.counters[SMALL] >= s.counters[SMALL_LIMIT]:
        to_main = True
    put(s, slot, row)
    s.mark[slot] = 0
    s.counters[SMALL] += 0 if to_main else 1
    push(s, MAIN_QUEUE if to_main else SMALL_QUEUE, slot)
    return slot


@compiled(_nrt=False)
def _forget_ghost(s, row):
    """Remove a row from the ghosts; return whether it was one. The last ghost moves to its node, to leave no gap."""
    node = s.node_of[row]
    if node == NONE:
        return False
    unlink(s, node)
    s.node_of[row] = s.row_of[node] = NONE
    last = len(s.mark) + s.counters[GHOSTS] - 1
    s.counters[GHOSTS] -= 1
    if node != last:
        newer, older = s.newer[last], s.older[last]
        s.newer[node], s.older[node] = newer, older
        s.older[newer] = s.newer[older] = node
        moved = s.row_of[last]
        s.row_of[last] = NONE
        s.row_of[node] = moved
        s.node_of[moved] = node
    return True


@compiled(_nrt=False)
def _remember(s, row):
    """Insert a row that leaves the cache into the ghosts, in place of the oldest one if they are complete."""
    limit = len(s.row_of) - len(s.mark)
    if not limit:
        return
    if s.counters[GHOSTS] == limit:
        node = oldest(s, GHOST_QUEUE)
        unlink(s, node)
    else:
        node = len(s.mark) + s.counters[GHOSTS]
        s.counters[GHOSTS] += 1
    put(s, node, row)
    push(s, GHOST_QUEUE, node)


@compiled(_nrt=False)
def _evict(s):
    s.counters[HAS_EVICTED] = 1
    slot = NONE
    while slot == NONE:
        in_main, main_limit = s.counters[SIZE] - s.counters[SMALL], len(s.mark) - s.counters[SMALL_LIMIT]
        slot = _evict_main(s) if in_main > main_limit or s.counters[SMALL] == 0 else _evict_small(s)
    return slot


@compiled(_nrt=False)
def _evict_small(s):
    """Move used rows to the main queue until one is found that was not, and evict that; `NONE` if there is none."""
    while s.counters[SMALL]:
        slot = oldest(s, SMALL_QUEUE)
        unlink(s, slot)
        s.counters[SMALL] -= 1
        if s.mark[slot] < _MOVE_TO_MAIN:
            row = s.row_of[slot]
            s.row_of[slot] = NONE
            s.node_of[row] = NONE
            _remember(s, row)
            return slot
        s.mark[slot] = 0
        push(s, MAIN_QUEUE, slot)
    return NONE


@compiled(_nrt=False)
def _evict_main(s):
    slot = oldest(s, MAIN_QUEUE)
    while s.mark[slot]:
        s.mark[slot] -= 1
        unlink(s, slot)
        push(s, MAIN_QUEUE, slot)
        slot = oldest(s, MAIN_QUEUE)
    unlink(s, slot)
    return slot

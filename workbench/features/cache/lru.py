"""LRU: evicts the row that was least recently used."""

from workbench.features.cache.state import MAIN_QUEUE, is_full, next_free_slot, oldest, push, put, unlink
from workbench.kernels.jit import compiled


@compiled(_nrt=False)
def hit_lru(s, slot):
    unlink(s, slot)
    push(s, MAIN_QUEUE, slot)


@compiled(_nrt=False)
def admit_lru(s, row):
    if is_full(s):
        slot = oldest(s, MAIN_QUEUE)
        unlink(s, slot)
    else:
        slot = next_free_slot(s)
    put(s, slot, row)
    push(s, MAIN_QUEUE, slot)
    return slot

"""LRU: evicts the row that was least recently used."""

from workbench.features.cache.state import MAIN_QUEUE, is_full, next_free_slot, oldest, push_node, put, remove_node
from workbench.kernels.jit import compiled


@compiled(_nrt=False)
def hit_lru(s, slot):
    remove_node(s, slot)
    push_node(s, MAIN_QUEUE, slot)


@compiled(_nrt=False)
def admit_lru(s, row):
    if is_full(s):
        slot = oldest(s, MAIN_QUEUE)
        remove_node(s, slot)
    else:
        slot = next_free_slot(s)
    put(s, slot, row)
    push_node(s, MAIN_QUEUE, slot)
    return slot

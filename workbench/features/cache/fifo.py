"""FIFO evicts the oldest row; CLOCK gives rows that were used since the hand last passed another round.

Both keep the slots in a circle in the order of insertion, so that a hand is all the order they need. CLOCK, also known
as FIFO-Reinsertion and Second Chance, has one bit per row, which is 0 on insertion.

Source: Corbató, "A paging experiment with the Multics system", 1968 (CLOCK).
"""

from workbench.features.cache.state import HAND, is_full, next_free_slot, put
from workbench.kernels.jit import compiled


@compiled(_nrt=False)
def admit_fifo(s, row):
    slot = _advance(s) if is_full(s) else next_free_slot(s)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def hit_clock(s, slot):
    s.mark[slot] = 1


@compiled(_nrt=False)
def admit_clock(s, row):
    if is_full(s):
        slot = _advance(s)
        while s.mark[slot]:
            s.mark[slot] = 0
            slot = _advance(s)
    else:
        slot = next_free_slot(s)
    put(s, slot, row)
    return slot


@compiled(_nrt=False)
def _advance(s):
    """Return the slot under the hand and move the hand to the next."""
    slot = s.counters[HAND]
    s.counters[HAND] = slot + 1 if slot + 1 < len(s.mark) else 0
    return slot

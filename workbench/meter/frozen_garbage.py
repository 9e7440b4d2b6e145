"""Suspended collection of old garbage while memory is measured or limited."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep reference cycles from being collected in the few steps from the count of live memory to the freeze."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class FrozenGarbage:
    """Keeps reference cycles that already exist from being collected in a `with` block, where they would free memory.

    Collecting them at entry would take long in a large process. If a block is active already, or the user froze the
    garbage collector, the block does nothing.
    """

    def __enter__(self) -> Self:
        self._frozen_here = gc.get_freeze_count() == 0
        if self._frozen_here:
            gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        if self._frozen_here:
            gc.unfreeze()

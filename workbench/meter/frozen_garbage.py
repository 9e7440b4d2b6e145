"""Suspended collection of old garbage while memory is measured or limited."""

import gc
from typing import Self


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

"""Garbage that stays where it is while memory is measured or limited."""

import gc
from typing import Self


class FrozenGarbage:
    """Keeps reference cycles of the past from being collected in a `with` block, where they would make room.

    Collecting them at entry instead would take long in a large process. Where a block is open already, or the
    collector was frozen by the user, nothing changes.
    """

    def __enter__(self) -> Self:
        self._frozen_here = gc.get_freeze_count() == 0
        if self._frozen_here:
            gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        if self._frozen_here:
            gc.unfreeze()

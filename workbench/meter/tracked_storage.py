"""What the CPU meter knows of a storage, and what it reports of all of them."""

import weakref
from typing import NamedTuple


class TrackedStorage(weakref.ref):
    """A weak reference to a storage, whose bytes are subtracted when it is freed.

    Its callback is `deque.append`, which runs outside the interpreter: an interrupt inside a callback written in Python
    would be lost, and with it the record of the freed bytes.
    """

    __slots__ = ("counted", "key", "nbytes", "older")
    key: int
    nbytes: int
    counted: bool
    """Whether freeing it lowers the live bytes."""
    older: bool
    """Whether it was alive at the start."""


class Peak(NamedTuple):
    """Live bytes relative to the start of a count.

    Args:
        nbytes: the highest number since the last peak.
        gross: the highest number if no storage that was alive at the start had been freed.
        live: the number now.
        freed: bytes of storages alive at the start that have been freed.
    """

    nbytes: int
    gross: int
    live: int
    freed: int

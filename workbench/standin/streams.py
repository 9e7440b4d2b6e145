"""Random streams of a stand-in: every draw is a pure function of (name, seed) and its purpose."""

import zlib
from enum import IntEnum

from workbench.kernels.hash import derive_key


class Draw(IntEnum):
    """Purpose of a random stream."""

    CLASS = 1
    NODE_ID = 2
    BLOCK = 3
    SAME_CLASS = 4
    FREE = 5
    SHARE = 6
    TIME = 7
    RECIPROCITY = 8
    SPLIT = 9
    CENTRE = 10
    NOISE = 11
    LABEL = 12
    AUTHOR = 13
    INSTITUTION = 14
    ENTITY = 15
    RELATION = 16
    SWITCH = 17


def key_of(name: str, seed: int, draw: Draw, *more: int) -> int:
    """Derive the key of a random stream.

    Args:
        name: name of the stand-in.
        seed: a 64-bit integer.
        draw: purpose of the stream.
        more: further numbers that distinguish streams of the same purpose.

    Returns:
        The key, for the hash functions of `workbench.kernels.hash`.

    >>> key_of("a", 0, Draw.TIME) != key_of("b", 0, Draw.TIME)
    True
    """
    return derive_key(seed, zlib.crc32(name.encode()), draw, *more)

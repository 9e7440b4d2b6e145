"""Edges of a block of text, and where its lines end."""

import re
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Edges(NamedTuple):
    """Consecutive edges: int64 [n] each, and float64 [n] if weights are read."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None


def end_of_line(text: bytes, count: int, begin: int = 0) -> int:
    """Where the line number `count`, from 1, ends."""
    if not count:
        return begin
    last = next(islice(_LINE_END.finditer(text, begin), count - 1, None), None)
    return len(text) if last is None else last.end()


def cut(edges: Edges, low: int, high: int) -> Edges:
    return Edges(*(None if values is None else values[low:high] for values in edges))  # type: ignore[arg-type]


def joined(pieces: list[Edges]) -> Edges:
    columns: Any = zip(*pieces, strict=True)
    return Edges(*(None if values[0] is None else np.concatenate(values) for values in columns))  # type: ignore[arg-type]


def mirrored(edges: Edges, sign: int) -> Edges:
    """Every edge, followed by its reverse unless it is a loop: the order does not depend on where chunks begin."""
    both = np.ones((len(edges.src), 2), bool)
    both[:, 1] = edges.src != edges.dst
    src = np.stack([edges.src, edges.dst], 1)[both]
    dst = np.stack([edges.dst, edges.src], 1)[both]
    weight = None if edges.weight is None else np.stack([edges.weight, sign * edges.weight], 1)[both]
    return Edges(src, dst, weight)

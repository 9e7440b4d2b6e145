"""Covering arrays: tests run every pair of parameter values by default, and all combinations with `-m slow`."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*axes: Iterable[Any]) -> list[Any]:
    """All combinations of the axes' values as parameters of pytest, in the order of `itertools.product`.

    Some of them, chosen greedily, together contain every pair of values of two axes; the others are marked slow. Most
    mistakes depend on one value or on two. Values without a readable name are best given as keys of a table.
    """
    values = [list(axis) for axis in axes]
    rows = list(product(*(range(len(axis)) for axis in values)))
    chosen = _covering(rows)
    return [
        pytest.param(*(axis[i] for axis, i in zip(values, row, strict=True)), marks=_marks(row in chosen))
        for row in rows
    ]


def _marks(runs_by_default: bool) -> tuple[Any, ...]:
    return () if runs_by_default else (pytest.mark.slow,)


def _covering(rows: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Rows that contain every pair of all rows, taken greedily: the first of those that add most pairs."""
    pairs = {row: set(combinations(enumerate(row), 2)) for row in rows}
    left, chosen = set().union(*pairs.values()), set()
    while left:
        best = max(rows, key=lambda row: len(pairs[row] & left))
        chosen.add(best)
        left -= pairs[best]
    return chosen


def chessboard(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """All combinations of two axes as parameters of pytest, of which every other one is marked slow."""
    columns = list(second)
    return [
        pytest.param(value, other, marks=_marks((row + column) % 2 == 0))
        for row, value in enumerate(first)
        for column, other in enumerate(columns)
    ]


def every(stride: int) -> list[Any]:
    """Strides through a long range, as parameters of pytest: this one by default, and 1 with `-m slow`."""
    return [stride, pytest.param(1, marks=pytest.mark.slow)]

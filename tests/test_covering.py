"""Every pair of values runs by default, and no combination is lost."""

from itertools import combinations, product

import pytest

from tests.covering import chessboard, every, pairwise


@pytest.mark.parametrize(("sizes", "at_most"), [((2, 2), 4), ((3, 4, 2), 13), ((18, 2, 5, 2), 95), ((3, 3, 3, 3), 12)])
def test_every_pair_of_values_runs_by_default(sizes: tuple[int, ...], at_most: int) -> None:
    axes = [[f"{axis}{value}" for value in range(size)] for axis, size in enumerate(sizes)]
    parameters = pairwise(*axes)
    assert [parameter.values for parameter in parameters] == list(product(*axes))
    run = [parameter.values for parameter in parameters if not parameter.marks]
    assert all({mark.name for mark in parameter.marks} <= {"slow"} for parameter in parameters)
    covered = {pair for row in run for pair in combinations(row, 2)}
    assert covered == {(a, b) for first, second in combinations(axes, 2) for a in first for b in second}
    assert len(run) <= at_most


def test_values_of_an_axis_may_be_equal_or_unhashable() -> None:
    assert [parameter.values for parameter in pairwise([[1], [1]], (0,))] == [([1], 0), ([1], 0)]


def test_every_other_combination_and_every_few_positions_run_by_default() -> None:
    assert [(*found.values, bool(found.marks)) for found in chessboard("ab", (1, 2, 3))] == [
        *(("a", 1, False), ("a", 2, True), ("a", 3, False)),
        *(("b", 1, True), ("b", 2, False), ("b", 3, True)),
    ]
    by_default, slow = every(5)
    assert by_default == 5 and slow.values == (1,) and [mark.name for mark in slow.marks] == ["slow"]

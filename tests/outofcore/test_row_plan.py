"""Plans of reads, held against their definition and against all other plans of tiny traces."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.trace import AccessTrace
from workbench.features.cache.simulate import simulate_cache
from workbench.outofcore import row_plan
from workbench.outofcore.row_plan import RowPlan, RowPlanner, plan_rows

Groups = Sequence[Sequence[int]]

GROUPS = st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=7)


def trace_of(groups: Groups) -> AccessTrace:
    return AccessTrace.of([torch.tensor(group, dtype=torch.int64) for group in groups])


def in_use(groups: Groups, number: int, overlap: bool) -> set[int]:
    """Rows that must be in memory when a group's have been read."""
    return {row for group in groups[max(0, number - overlap) : number + 1] for row in group}


def fewest_reads(groups: Groups, capacity: int, overlap: bool) -> int | None:
    """Try whatever may be kept; None: the rows in use do not fit."""
    best = {frozenset[int](): 0}
    for number, group in enumerate(groups):
        needed, after = in_use(groups, number, overlap), dict[frozenset[int], int]()
        if len(needed) > capacity:
            return None
        for held, reads in best.items():
            others = (held | set(group)) - needed
            for kept in combinations(sorted(others), min(capacity - len(needed), len(others))):
                now = frozenset(needed | set(kept))
                after[now] = min(after.get(now, 10**9), reads + len(set(group) - held))
        best = after
    return min(best.values())


def check_serves(plan: RowPlan, groups: Groups, pool: list[int | None], overlap: bool) -> None:
    """Obey a plan: every row is in its slot while its group is trained, and no slot in use is written to."""
    assert len(plan) == len(groups)
    places = plan.places.split([len(group) for group in groups]) if groups else ()
    used = set[int]()
    for group, of_group, (ids, slots) in zip(groups, places, plan.reads(), strict=True):
        assert len(set(ids.tolist())) == len(ids) and len(set(slots.tolist())) == len(slots)
        assert not (used & set(slots.tolist()) if overlap else ())
        for row, slot in zip(ids.tolist(), slots.tolist(), strict=True):
            pool[slot] = row
        assert [pool[slot] for slot in of_group.tolist()] == list(group)
        used = set(of_group.tolist())


@given(groups=GROUPS, capacity=st.integers(1, 7), overlap=st.booleans())
def test_every_row_is_there_and_no_plan_reads_fewer(groups: Groups, capacity: int, overlap: bool) -> None:
    expected = fewest_reads(groups, capacity, overlap)
    if expected is None:
        with pytest.raises(CapacityError):
            plan_rows(trace_of(groups), capacity, num_rows=6, overlap=overlap)
        return
    plan = plan_rows(trace_of(groups), capacity, num_rows=6, overlap=overlap)
    assert plan.num_rows == expected and plan.peak_rows <= capacity
    check_serves(plan, groups, [None] * capacity, overlap)


@pytest.mark.slow
@given(
    groups=st.lists(st.lists(st.integers(0, 7), max_size=4), max_size=10),
    capacity=st.integers(1, 8),
    overlap=st.booleans(),
)
def test_longer_traces(groups: Groups, capacity: int, overlap: bool) -> None:
    if (expected := fewest_reads(groups, capacity, overlap)) is not None:
        assert plan_rows(trace_of(groups), capacity, overlap=overlap).num_rows == expected


@given(
    windows=st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4), max_size=4),
    capacity=st.integers(8, 11),
    overlap=st.booleans(),
)
def test_windows_continue_with_the_rows_in_memory(windows: Sequence[Groups], capacity: int, overlap: bool) -> None:
    planner = RowPlanner(10, capacity, overlap=overlap)
    pool: list[int | None] = [None] * capacity
    before: Groups = []
    for groups in windows:
        plan = planner.plan(trace_of(groups))
        last = before[-1:] if overlap and groups else []
        held = {slot for slot, row in enumerate(pool) if last and row in last[0]}
        assert not held & set(next(plan.reads())[1].tolist() if groups else ())
        check_serves(plan, groups, pool, overlap)
        read = [set(ids.tolist()) for ids, _ in plan.reads()]
        if capacity >= 10:  # nothing is evicted, so no row is read twice
            assert sum(map(len, read)) == len(set().union(*read))
        before = groups or before


def test_with_room_for_all_rows_each_is_read_once() -> None:
    ids = torch.randint(1000, (50, 100), generator=torch.Generator().manual_seed(0))
    trace = AccessTrace.of(list(ids))
    plan = plan_rows(trace, 10**6)
    assert plan.num_rows == len(ids.unique()) == plan.peak_rows


def test_reads_no_more_than_belady_s_cache_beside_two_groups_of_its_own() -> None:
    ids = torch.randint(3000, (100, 120), generator=torch.Generator().manual_seed(1))
    trace = AccessTrace.of(list(ids))
    for capacity in (400, 1000, 2000):
        least = simulate_cache(trace, capacity, policy="belady-bypass", semantics="access")
        most = simulate_cache(trace, capacity - 240, policy="belady", semantics="batch")
        assert least.num_misses <= plan_rows(trace, capacity).num_rows <= most.num_misses
        fewer = [plan_rows(trace, capacity, overlap=overlap).num_rows for overlap in (False, True)]
        assert fewer == sorted(fewer)


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        ([[0, 1], [2, 3]], {}, "group 1 of the window and the one before it read 4 rows.*memory for 3; raise it, pass"),
        ([[0, 1, 2, 3]], {}, "group 0 of the window reads 4 rows"),
        ([[0], [0, 1, 2, 3]], {"overlap": False}, "group 1 of the window reads 4 rows.*raise it, or lower group"),
    ],
)
def test_too_little_memory(groups: Groups, options: dict, message: str) -> None:
    with pytest.raises(CapacityError, match=message):
        plan_rows(trace_of(groups), 3, **options)


@pytest.mark.parametrize(("overlap", "needed"), [(True, 50), (False, 40)])
def test_the_memory_that_is_said_to_be_enough_is(overlap: bool, needed: int) -> None:
    first, window = trace_of([[9]]), trace_of([[0, 1, 0], [2], [3, 4, 5, 6], [6]])

    def plan(nbytes: int) -> None:
        planner = RowPlanner(10, nbytes // 10, overlap=overlap, row_bytes=10)
        planner.plan(first)
        planner.plan(window)

    with pytest.raises(CapacityError, match=rf"memory for \d; raise memory to {needed}, enough for the window"):
        plan(needed - 1)
    plan(needed)
    with pytest.raises(CapacityError, match=f"raise memory to {needed}"):
        plan(20)


def test_memory_of_planning_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, allocated, filled = list[int](), list[int](), row_plan._filled

    def remembered(size: int, value: int) -> Tensor:
        allocated.append(4 * size)
        return filled(size, value)

    monkeypatch.setattr(row_plan, "check_fits", lambda _name, nbytes, _remedy: checked.append(nbytes))
    monkeypatch.setattr(row_plan, "_filled", remembered)
    RowPlanner(1000, 10).plan(trace_of([[0], [1]]))
    assert checked == [sum(allocated) + 8 * 10] == [8080]


def test_bad_input() -> None:
    trace = trace_of([[0, 5]])
    with pytest.raises(ValueError, match="capacity_rows is 0"):
        plan_rows(trace, 0)
    with pytest.raises(IndexError, match="5"):
        plan_rows(trace, 3, num_rows=5)
    with pytest.raises(TypeError, match=r"AccessTrace\.of"):
        plan_rows([torch.tensor([0])], 3)  # pyright: ignore[reportArgumentType]
    assert repr(plan_rows(trace, 3)) == "RowPlan(1 groups read 2 rows, 2 in memory)"
    assert plan_rows(trace_of([]), 3).offsets.tolist() == [0]
    assert [lo <= hi for lo, hi in pairwise(plan_rows(trace, 3).offsets.tolist())] == [True]

"""Automatic tuning of a partition buffer: against all settings of small sizes, and against the orders themselves."""

from math import ceil, isqrt, lcm
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from workbench.outofcore.buffer import slots_needed
from workbench.outofcore.buffer_state import SlotMemory

PAGE = 4096
sizes = st.fixed_dictionaries(
    {
        "num_nodes": st.integers(1, 40),
        "row_bytes": st.sampled_from([100, 4096, 9000]),
        "num_edges": st.integers(0, 3000),
        "memory": st.integers(1, 400_000),
        "working_bytes": st.integers(0, 50_000),
        "disk_read_bytes": st.sampled_from([1, 2000, 30_000]),
        "learnt": st.booleans(),
        "method": st.sampled_from(["COMET", "balanced"]),
        "max_partitions": st.integers(1, 24),
        "prefetch": st.booleans(),
    }
)


def tuned(setting: dict) -> wb.outofcore.BufferPlan | None:
    try:
        return wb.outofcore.plan_buffer(**setting, edge_bytes=16)
    except wb.CapacityError:
        return None


def memory_of(setting: dict, p: int, c: int) -> float:
    """The formula of the paper, with partitions in whole pages and rows, and half of the next state's partitions and
    buckets."""
    record = setting["row_bytes"] * (2 if setting["learnt"] else 1)
    unit = lcm(PAGE, setting["row_bytes"])
    partition = ceil(ceil(setting["num_nodes"] / p) * record / unit) * unit
    next_group = c // 2 if setting["prefetch"] and c < p else 0
    buckets = 2 * c * c + c * c - (c - next_group) ** 2
    return (c + next_group) * partition + buckets * setting["num_edges"] * 16 / p**2 + setting["working_bytes"]


def by_brute_force(setting: dict) -> tuple[int, int, int] | None:
    """The best of all (p, c, l) that fit: few groups, then as many partitions as are at least one disk read."""
    record = setting["row_bytes"] * (2 if setting["learnt"] else 1)
    read, fitting = setting["disk_read_bytes"], []
    most = min(setting["max_partitions"], setting["num_nodes"])
    for p in range(1, most + 1):
        small = setting["num_nodes"] * record < p * read or (0 < setting["num_edges"] * 16 < p * p * read)
        for groups in (n for n in range(1, p + 1) if p % n == 0 and n != 2):
            c = p if groups == 1 else 2 * p // groups
            if (setting["method"] == "balanced" and groups % 2 == 0) or memory_of(setting, p, c) > setting["memory"]:
                continue
            if not small or p == groups:  # partitions below one disk read only where no larger ones exist
                fitting.append((groups, small and p > 1, -p, c))
    if not fitting:
        return None
    groups, _, p, c = min(fitting)
    return -p, c, groups


@given(sizes)
def test_the_plan_is_the_best_of_all_settings_that_fit(setting: dict) -> None:
    plan, best = tuned(setting), by_brute_force(setting)
    assert (plan and (plan.num_partitions, plan.capacity, plan.num_logical)) == best
    if plan is not None:
        needed = memory_of(setting, plan.num_partitions, plan.capacity)
        assert plan.peak_bytes == ceil(needed) <= setting["memory"]


@given(sizes)
def test_the_partitions_that_the_program_allocates_fit(setting: dict) -> None:
    plan = tuned(setting)
    if plan is None:
        return
    prefetch = "prefetch=False" not in plan.code()
    assert prefetch == (setting["prefetch"] or plan.in_memory)
    slots = slots_needed(plan.order(), prefetch)
    assert slots * plan.slot_bytes + setting["working_bytes"] <= plan.peak_bytes <= setting["memory"]


@pytest.mark.parametrize("width", [33, 64, 1433])
def test_rows_that_divide_no_page_have_the_memory_that_is_planned(tmp_path: Path, width: int) -> None:
    x = torch.zeros(3000, width)
    plan = wb.outofcore.plan_buffer(3000, 4 * width, num_edges=0, edge_bytes=16, memory=x.nbytes * 3 // 4 + (9 << 20))
    graph = wb.Graph.from_edges([0], [1], num_nodes=3000)
    store = wb.outofcore.PartitionStore.build(tmp_path / "store", graph, rows=x, num_partitions=plan.num_partitions)
    memory = SlotMemory(store.layout, slots_needed(plan.order(), prefetch=True))
    assert memory.slot_bytes == plan.slot_bytes
    assert memory.slot_bytes * memory.num_slots <= plan.peak_bytes <= x.nbytes * 3 // 4 + (9 << 20)


@given(sizes, st.integers(0, 200_000))
def test_more_memory_never_gives_more_groups(setting: dict, more: int) -> None:
    plan, larger = tuned(setting), tuned(setting | {"memory": setting["memory"] + more})
    assert plan is None or (larger is not None and larger.num_logical <= plan.num_logical)


@given(sizes)
def test_predicted_loads_are_those_of_the_order(setting: dict) -> None:
    plan = tuned(setting)
    if plan is None:
        return
    order = plan.order(seed=1)
    assert (order.num_partitions, order.capacity) == (plan.num_partitions, plan.capacity)
    assert (plan.num_loads, plan.num_bucket_loads) == (order.num_loads, order.num_bucket_loads)
    rows = order.num_loads * plan.partition_bytes
    edges = order.num_bucket_loads * setting["num_edges"] * 16 / plan.num_partitions**2
    assert plan.read_bytes == pytest.approx(rows + edges, abs=1)
    assert plan.write_bytes == (rows if setting["learnt"] else 0)
    assert plan.num_operations == order.num_loads * (1 + setting["learnt"]) + order.num_bucket_loads


def test_bucket_loads_are_those_whose_partitions_were_not_both_there() -> None:
    for order in (
        wb.outofcore.beta_order(7, 3),
        wb.outofcore.comet_order(12, 4),
        wb.outofcore.comet_order(12, 6, 6),
        wb.outofcore.balanced_order(10, 4),
    ):
        before: set[tuple[int, int]] = set()
        count = 0
        for held in order.states.tolist():
            now = {(i, j) for i in held for j in held}
            count += len(now - before)
            before = now
        assert order.num_bucket_loads == count


def test_the_papers_rule_for_p() -> None:
    """p = min(features / D, √(edges / D)), rounded to a multiple of l."""
    rows: dict[str, Any] = {"num_nodes": 10**6, "row_bytes": 400, "edge_bytes": 16, "memory": "150 MiB"}
    rows["prefetch"] = False
    by_edges = wb.outofcore.plan_buffer(**rows, num_edges=10**7, disk_read_bytes=65_536)
    assert by_edges.limit == "edges" and isqrt(160_000_000 // 65_536) == 49
    assert 49 - by_edges.num_logical < by_edges.num_partitions <= 49
    coarse = wb.outofcore.plan_buffer(
        **rows, num_edges=10**7, disk_read_bytes=10**6
    )  # √160 = 12.6; the features give 400
    assert (coarse.limit, coarse.num_partitions, coarse.num_logical) == ("edges", 7, 7)
    few = wb.outofcore.plan_buffer(**{**rows, "memory": "1 GiB"}, num_edges=0, disk_read_bytes=4 * 10**7)
    assert (few.limit, few.num_partitions, few.in_memory) == ("rows", 10, True)
    assert wb.outofcore.plan_buffer(**rows, num_edges=0, disk_read_bytes=1).limit == "max_partitions"
    small = wb.outofcore.plan_buffer(**rows, num_edges=10**6, disk_read_bytes=4 * 10**8)
    assert (small.limit, small.num_partitions, small.num_logical) == ("memory", 6, 6)


def test_what_it_refuses() -> None:
    rows: Any = {"num_nodes": 1000, "row_bytes": 4096, "num_edges": 0, "edge_bytes": 16, "prefetch": False}
    with pytest.raises(wb.CapacityError, match=r"fits into 19.53 KiB: the smallest, 2 of 1000 .* raise memory to"):
        wb.outofcore.plan_buffer(**rows, memory=20_000, working_bytes=18_000)
    assert wb.outofcore.plan_buffer(**rows, memory=18_000 + 8192, working_bytes=18_000).capacity == 2
    for wrong, message in (
        ({"memory": "much"}, "'much' is not a number of bytes"),
        ({"memory": 10**6, "num_nodes": 0}, "num_nodes is 0"),
        ({"memory": 10**6, "method": "BETA"}, "BETA"),
        ({"memory": 10**6, "disk_read_bytes": 0}, "disk_read_bytes is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            wb.outofcore.plan_buffer(**(rows | wrong))


def test_a_disk_needs_positive_numbers() -> None:
    with pytest.raises(ValueError, match="reads_per_second is 0"):
        wb.outofcore.DiskModel(bytes_per_second=1e9, reads_per_second=0)
    with pytest.raises(ValueError, match="write_bytes_per_second is 0"):
        wb.outofcore.DiskModel(1e9, 1e4, write_bytes_per_second=0)

"""Plans of reads, held against their definition: blocks, gaps and sizes."""

from typing import Any

import numpy as np
import torch
from hypothesis import example, given, strategies as st

from workbench.features.disk_rows import MAX_GAP, MAX_READ, buffer_bytes, plan_reads


@given(
    ids=st.lists(st.integers(0, 3000) | st.integers(2**40, 2**40 + 5), min_size=1, max_size=60),
    record_bytes=st.integers(1, 600) | st.sampled_from([4096, 70_001, MAX_READ + 1]),
    block=st.sampled_from([1, 512, 4096]),
    threads=st.sampled_from([1, 3, 16]),
)
def test_reads_cover_all_records_and_no_wide_gap(ids: list[int], record_bytes: int, block: int, threads: int) -> None:
    plan = plan_reads(torch.tensor(ids), record_bytes, block=block, threads=threads)
    assert plan.starts.tolist() == [record_bytes * i for i in sorted(ids)]
    assert (np.array(ids)[plan.order] * record_bytes == plan.starts).all()
    offsets, ends = plan.offsets, plan.offsets + plan.sizes
    assert not (offsets % block).any() and not (plan.sizes % block).any()
    read = np.repeat(np.arange(len(offsets)), np.diff(plan.first_record))
    assert len(read) == len(ids) and plan.first_record[0] == 0
    assert (offsets[read] <= plan.starts).all() and (plan.starts + record_bytes <= ends[read]).all()
    assert (plan.sizes <= max(MAX_READ, record_bytes + 2 * block)).all()
    low, high = plan.starts // block * block, -(-(plan.starts + record_bytes) // block) * block
    for k in range(1, len(offsets)):  # a new read begins for one of two reasons
        first = plan.first_record[k]
        assert low[first] - ends[k - 1] > MAX_GAP or high[first] - offsets[k - 1] > MAX_READ
    same = read[1:] == read[:-1]
    assert (low[1:] - high[:-1] <= MAX_GAP)[same].all()


@given(
    ids=st.lists(st.integers(0, 4000), min_size=1, max_size=100, unique=True),
    record_bytes=st.sampled_from([16, 9000, MAX_READ]),
    threads=st.sampled_from([1, 16]),
    depth=st.sampled_from([1, 8]),
)
@example(ids=[0, 352, 896, 1440, 1984, 2560, 3136, 3360], record_bytes=16, threads=16, depth=1)  # two reads, one task
def test_tasks_fit_into_a_buffer_and_are_a_quarter_of_a_thread_s_share(
    ids: list[int], record_bytes: int, threads: int, depth: int
) -> None:
    plan = plan_reads(torch.tensor(ids), record_bytes, block=512, threads=threads, depth=depth)
    assert plan.tasks[0] == 0 and plan.tasks[-1] == len(plan.sizes) and (np.diff(plan.tasks) > 0).all()
    task_bytes = np.add.reduceat(plan.sizes, plan.tasks[:-1])
    assert (task_bytes <= buffer_bytes(record_bytes, 512, depth)).all()
    before_last = task_bytes - plan.sizes[plan.tasks[1:] - 1]
    fewest = 1 << 20 if depth > 1 else 1
    assert (before_last < max(fewest, plan.sizes.sum() / (4 * threads))).all()


def test_few_bytes_are_one_task_of_a_thread_that_asks_for_many_reads() -> None:
    few, many = torch.arange(0, 200_000, 1000), torch.arange(4000)
    options: dict[str, Any] = {"block": 512, "threads": 2}
    assert [len(plan_reads(few, 512, depth=depth, **options).tasks) - 1 for depth in (1, 8)] == [8, 1]
    assert len(plan_reads(many, 4096, depth=8, **options).tasks) - 1 == 8


def test_a_long_record_is_read_once() -> None:
    plan = plan_reads(torch.tensor([2, 2, 2]), 3 * MAX_READ, block=512, threads=4)
    assert plan.sizes.tolist() == [3 * MAX_READ] and plan.first_record.tolist() == [0, 3]

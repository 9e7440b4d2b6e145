"""`workbench buffer`: the sentence and the table are those of `plan_buffer`."""

from typing import Any

import pytest

import workbench as wb
from workbench.cli import main

ASKED = ["buffer", "--nodes", "1000000", "--row", "400", "--edges", "10000000", "--memory"]


def plan(memory: str, **options: Any) -> wb.outofcore.BufferPlan:
    return wb.outofcore.plan_buffer(
        10**6, 400, num_edges=10**7, edge_bytes=16, memory_bytes=memory, disk_read_bytes=62_500, **options
    )


def test_the_answer_is_the_plans(capsys: Any) -> None:
    assert main([*ASKED, "200MiB", "--working", "50MiB", "--learnt", "--method", "balanced"]) == 0
    out = capsys.readouterr().out
    expected = plan("200MiB", working_bytes="50MiB", learnt=True, method="balanced")
    assert f"{expected.capacity} of {expected.num_partitions} partitions fit into 200MiB" in out
    moved = [wb.format_bytes(size) for size in (expected.read_bytes, expected.write_bytes)]
    assert f"in {expected.num_logical} logical groups: an epoch reads {moved[0]} and writes {moved[1]}." in out
    seconds = (expected.read_bytes + expected.write_bytes) / 1e9 + expected.num_operations / 16_000
    assert f"{seconds:,.1f} s at 953.67 MiB/s and 16,000 operations/s" in out
    assert f"{wb.outofcore.partition_bias(expected.order()):.3f} with {expected.order().num_states} states" in out


def test_all_in_memory(capsys: Any) -> None:
    assert main([*ASKED, "8GiB"]) == 0
    assert capsys.readouterr().out.startswith("Everything fits into 8GiB: all rows and edges need ")


@pytest.mark.parametrize(("memory", "why"), [("1kB", "raise memory_bytes to "), ("much", "is not a number of bytes")])
def test_errors_are_one_line(capsys: Any, memory: str, why: str) -> None:
    assert main([*ASKED, memory]) == 1
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1

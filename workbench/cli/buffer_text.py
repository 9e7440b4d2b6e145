"""Settings of a partition buffer in words: the answer in one sentence, and a table of what it rests on."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.core.errors import check_bytes
from workbench.core.units import format_bytes
from workbench.outofcore.bucket_order import partition_bias
from workbench.outofcore.tuning import BufferPlan, DiskModel, plan_buffer
from workbench.report.text_table import text_table

_LIMITS = {
    "rows": "a partition is one disk read",
    "edges": "an edge bucket is one disk read",
    "max_partitions": "the upper bound, --max-partitions or the number of nodes",
    "memory": "larger partitions do not fit, so they are smaller than one disk read",
}


def describe_buffer(asked: Mapping[str, Any]) -> list[str]:
    """Tunes a buffer and describes it.

    Args:
        asked: the options of `workbench buffer` by name.

    Returns:
        Lines to print: the answer, and a table.

    Raises:
        ValueError: invalid options.
        CapacityError: no buffer fits.
    """
    disk = DiskModel(check_bytes("bandwidth", asked["bandwidth"]), asked["disk_reads"])
    plan = plan_buffer(
        asked["nodes"],
        check_bytes("row", asked["row"]),
        num_edges=asked["edges"],
        edge_bytes=check_bytes("edge", asked["edge"]),
        memory_bytes=asked["memory"],
        working_bytes=asked["working"],
        disk_read_bytes=disk.read_bytes,
        learnt=asked["learnt"],
        state_bytes=None if asked["state"] is None else check_bytes("state", asked["state"]),
        method=asked["method"],
        max_partitions=asked["max_partitions"],
    )
    return [_answer(plan, str(asked["memory"])), "", *_table(plan, disk)]


def _answer(plan: BufferPlan, memory: str) -> str:
    used = format_bytes(plan.memory_bytes)
    if plan.in_memory:
        return f"Everything fits into {memory}: all rows and edges need {used} with the working memory."
    written = f" and writes {format_bytes(plan.write_bytes)}" if plan.write_bytes else ""
    return (
        f"{plan.capacity} of {plan.num_partitions} partitions fit into {memory} ({used}), in {plan.num_logical} "
        f"logical groups: an epoch reads {format_bytes(plan.read_bytes)}{written}."
    )


def _table(plan: BufferPlan, disk: DiskModel) -> list[str]:
    order = plan.order()
    moved = disk.seconds(plan.read_bytes + plan.write_bytes, plan.num_operations)
    rows = {
        "partitions (p)": f"{plan.num_partitions:,}: {_LIMITS[plan.limit]}",
        "in the buffer (c)": f"{plan.capacity:,}",
        "logical groups (l)": f"{plan.num_logical:,}",
        "partition": format_bytes(plan.partition_bytes),
        "edge bucket, mean": format_bytes(plan.bucket_bytes),
        "memory": f"{format_bytes(plan.memory_bytes)}, of which {format_bytes(plan.working_bytes)} beside the buffer",
        "read per epoch": format_bytes(plan.read_bytes),
        "written per epoch": format_bytes(plan.write_bytes),
        "I/O per epoch, modelled": f"{moved:,.1f} s at {format_bytes(disk.bytes_per_second)}/s and "
        f"{disk.reads_per_second:,.0f} operations/s (one disk read: {format_bytes(disk.read_bytes)})",
        f"edge permutation bias, {plan.method}": f"{partition_bias(order):.3f} with {order.num_states} states",
    }
    return text_table(pd.DataFrame(rows.items(), columns=["", "value"]))

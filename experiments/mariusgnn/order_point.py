"""What the figures about orders share: the orders by name, a grid point, and what an epoch reads."""

from math import ceil
from typing import Any, Literal

import pandas as pd
from pydantic import Field, PositiveFloat, PositiveInt

import workbench as wb
from workbench.core.units import format_bytes
from workbench.experiment.config import PointConfig
from workbench.outofcore.bucket_order import fewest_swaps

BETA, COMET, BALANCED = "BETA", "COMET", "balanced"
Method = Literal["BETA", "COMET", "balanced"]


class OrderConfig(PointConfig):
    """Epochs of one order.

    Args:
        method: "BETA" on physical partitions, "COMET", or "balanced", ours.
        num_logical: number l of logical groups, of which BETA has none.
        group_partitions: physical partitions per group; p is l times as many.
        groups_in_buffer: logical groups in the buffer.
        epochs: each has other random groups (BETA: the same order).
    """

    method: Method
    num_logical: int = Field(ge=2)
    group_partitions: PositiveInt
    groups_in_buffer: int = Field(default=2, ge=2)
    epochs: PositiveInt = 1

    @property
    def num_partitions(self) -> int:
        return self.num_logical * self.group_partitions

    @property
    def capacity(self) -> int:
        return self.groups_in_buffer * self.group_partitions

    def order(self, epoch: int, *, reshuffle: bool = False) -> wb.outofcore.BucketOrder:
        """The order of an epoch, whose cycles may be reshuffled, which the balanced order has none of."""
        p, c = self.num_partitions, self.capacity
        if reshuffle:
            options: dict[str, Any] = {"seed": self.seed, "epoch": epoch, "reshuffle": True}
            return (
                wb.outofcore.beta_order(p, c, **options)
                if self.method == BETA
                else wb.outofcore.comet_order(p, c, self.num_logical, **options)
            )
        if self.method == BETA:
            return wb.outofcore.beta_order(p, c)
        made = wb.outofcore.comet_order if self.method == COMET else wb.outofcore.balanced_order
        return made(p, c, self.num_logical, seed=self.seed, epoch=epoch)

    @property
    def least_loads(self) -> int:
        """Partitions that any order of groups loads at least."""
        return self.capacity + self.group_partitions * fewest_swaps(self.num_logical, self.groups_in_buffer)


class StoredOrderConfig(OrderConfig):
    """Epochs of one order over a graph on a disk whose times are modelled.

    Args:
        num_nodes: number of nodes.
        row_bytes: bytes of a node's row, with its optimizer state.
        num_edges: number of edges.
        edge_bytes: bytes of an edge.
        bytes_per_second: bandwidth of the disk.
        reads_per_second: small reads of the disk per second.
    """

    num_nodes: PositiveInt
    row_bytes: PositiveInt
    num_edges: PositiveInt
    edge_bytes: PositiveInt = 24
    bytes_per_second: PositiveFloat
    reads_per_second: PositiveFloat

    def epoch_row(self, epoch: int) -> dict[str, Any]:
        """The bias of an epoch, the partitions and buckets that it reads, and the modelled time of these reads and of
        writing the partitions back."""
        order, disk = self.order(epoch), wb.outofcore.DiskModel(self.bytes_per_second, self.reads_per_second)
        p = order.num_partitions
        rows = order.num_loads * ceil(self.num_nodes / p) * self.row_bytes
        edges = round(order.num_bucket_loads * self.num_edges * self.edge_bytes / p**2)
        reads = order.num_loads + order.num_bucket_loads
        return {
            "epoch": epoch,
            "num_partitions": p,
            "capacity": order.capacity,
            "num_states": order.num_states,
            "num_loads": order.num_loads,
            "num_reads": reads,
            "rows_read": order.num_loads / p,
            "read_bytes": rows + edges,
            "modelled_io_seconds": disk.seconds(rows + edges, reads + order.num_loads, written_bytes=rows),
            "partition_bias": wb.outofcore.partition_bias(order),
        }


def disk_of(table: pd.DataFrame) -> str:
    """The inputs of the model of the disk, for a subtitle."""
    each: Any = table.iloc[0]
    return (
        f"modelled: {each.num_nodes:,} rows of {format_bytes(each.row_bytes)}, written back, {each.num_edges:,} edges "
        f"of {each.edge_bytes} B; a disk with {each.bytes_per_second / 1e9:g} GB/s and {each.reads_per_second:,.0f} "
        "reads/s"
    )

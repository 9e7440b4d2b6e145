"""`epoch_io`: the bytes that an epoch reads and writes, known before it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from workbench.outofcore.edge_buckets import EdgeBuckets
from workbench.outofcore.partition_store import PartitionStore


@dataclass(frozen=True)
class EpochIO:
    """What moves between disk and buffer, padding included.

    Args:
        loads: partitions that are read.
        row_bytes: bytes read of their rows, and of the state of learnt ones.
        edge_bytes: bytes read of edge buckets.
        written_bytes: bytes of partitions written back.
    """

    loads: int = 0
    row_bytes: int = 0
    edge_bytes: int = 0
    written_bytes: int = 0

    @property
    def read_bytes(self) -> int:
        """Bytes that are read."""
        return self.row_bytes + self.edge_bytes

    def __add__(self, other: "EpochIO") -> "EpochIO":
        return EpochIO(
            self.loads + other.loads,
            self.row_bytes + other.row_bytes,
            self.edge_bytes + other.edge_bytes,
            self.written_bytes + other.written_bytes,
        )


def epoch_io(store: PartitionStore, order: Any) -> EpochIO:
    """Predict what an epoch moves.

    Args:
        store: the store.
        order: `BucketOrder` or `NodeOrder` over its partitions.

    Returns:
        The prediction. It supposes that every partition of learnt rows changes while it is in the buffer; each is
        written when it leaves. The table that a write replaces, of some bytes per partition, is not counted.

    Raises:
        ValueError: an order over another number of partitions, or the store was rebuilt since it was opened.
    """
    check_order(store, order)
    buckets = EdgeBuckets(store.open_folder(), store.layout, store.bucket_edges, store.bucket_checksums, direct=False)
    edge_bytes, loads = 0, 0
    for loaded, held in zip(loads_of(order.states), order.states, strict=True):
        loads += len(loaded)
        edge_bytes += sum(buckets.run_bytes(run) for run in buckets.runs(loaded, held))
    nbytes = loads * store.partition_bytes
    return EpochIO(loads, nbytes, edge_bytes, nbytes if store.learnt else 0)


def loads_of(states: torch.Tensor) -> Sequence[torch.Tensor]:
    """Partitions that every state adds to the one before; all of the first state's."""
    new = [states[0]] if len(states) else []
    return new + [after[~torch.isin(after, before)] for before, after in pairwise(states)]


def check_order(store: PartitionStore, order: Any) -> None:
    """Check that an order is one of the store's partitions.

    Raises:
        ValueError: it is not; the message names both numbers.
    """
    p = getattr(order, "num_partitions", None)
    largest = int(order.states.max()) + 1 if order.states.numel() else 0
    if largest > store.num_partitions or p not in (None, store.num_partitions):
        raise ValueError(
            f"the order has {p or largest} partitions, but the store has {store.num_partitions}; make the order with "
            "the store's num_partitions, or build the store with that of the order"
        )

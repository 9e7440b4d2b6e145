"""`Exchange`: the all-to-all exchange of rows before a layer of a cooperative batch."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_tensors, check_type, check_vector
from workbench.core.shared_storage import TensorRecord
from workbench.kernels.threads import run_tasks


@dataclass(frozen=True, eq=False, repr=False)
class Exchange(TensorRecord):
    """The rows that one process sends and receives before one layer of a cooperative batch.

    Args:
        send_index: int64 [Σ send_counts], local ids of the rows to send, grouped by receiver.
        send_counts: number of rows to send, per process.
        receive_counts: number of rows to receive, per process; their sum is the size of the halo.
        halo_ids: int64 [Σ receive_counts], raw-graph ids of the received rows, grouped by sender.

    Raises:
        TypeError: if an index is not an int64 tensor.
        ValueError: if counts are negative or do not match the lengths of the indices.
    """

    send_index: Tensor
    send_counts: tuple[int, ...]
    receive_counts: tuple[int, ...]
    halo_ids: Tensor

    def __post_init__(self) -> None:
        check_tensors(send_index=self.send_index, halo_ids=self.halo_ids)
        for name in ("send_counts", "receive_counts"):
            check_type(name, getattr(self, name), Sequence, "pass a tuple of whole numbers, one per process")
            for count in getattr(self, name):
                if type(count) is not int or count < 0:  # one of many ranks' counts
                    check_at_least(f"a number of {name}", count, 0)
        check_vector("send_index", self.send_index, sum(self.send_counts), (torch.int64,))
        check_vector("halo_ids", self.halo_ids, sum(self.receive_counts), (torch.int64,))
        if len(self.send_counts) != len(self.receive_counts):
            raise ValueError(
                f"{len(self.send_counts)} send counts but {len(self.receive_counts)} receive counts; pass one of each "
                "per process"
            )

    def validate(self, num_owned: int) -> "Exchange":
        """Check every index and return the exchange.

        Args:
            num_owned: number of rows that this process owns in the layer of the exchange.

        Raises:
            IndexError: if a row to send is not owned, or a node id is negative.
        """
        check_ids("send_index", self.send_index, num_owned)
        check_ids("halo_ids", self.halo_ids, INT64_MAX)
        return self

    def _tensors(self) -> dict[str, Tensor | None]:
        return {"send_index": self.send_index, "halo_ids": self.halo_ids}

    def __repr__(self) -> str:
        return f"Exchange(send {list(self.send_counts)}, receive {list(self.receive_counts)} rows per process)"


def refuse_halo(
    exchanges: Sequence[Exchange] | None, action: str, remedy: str = "do so before making the batch cooperative"
) -> None:
    """Reject a cooperative batch in an operation that only a batch without halo supports.

    Args:
        exchanges: the batch's exchanges, None for a batch without halo.
        remedy: what to do instead.
    """
    if exchanges is not None:
        raise ValueError(
            f"the batch has {len(exchanges)} exchanges: its blocks read rows of other processes, so it can't be "
            f"{action} in one process; {remedy}"
        )


ID_BYTES = 8
"""Bytes of a node id that is sent to another rank."""

LENGTH_BYTES = 8
"""Bytes by which a transport announces the length of each vector to its receiver."""

T = TypeVar("T")

AllToAll = Generator[list[Tensor], list[Tensor], T]
"""Yields one int64 vector per rank, its own empty; is sent what every rank yielded for it; returns a T."""


_FEW_ROWS = 1 << 14
"""Rows exchanged below which ranks run one after the other: most of that time the interpreter has its lock."""


def run_in_lockstep(ranks: Sequence[AllToAll[T]]) -> list[T]:
    """Run the computations of all ranks in one process, in several threads once they exchange much.

    Args:
        ranks: one generator per rank; all yield equally often. Between two exchanges each runs in one thread.

    Returns:
        What they return, by rank.

    >>> import torch
    >>> def rank(number):
    ...     received = yield [torch.tensor([10 * number + other]) for other in range(2)]
    ...     return [int(vector) for vector in received]
    >>> run_in_lockstep([rank(0), rank(1)])
    [[0, 10], [1, 11]]
    """
    received: Sequence[list[Tensor] | None] = [None] * len(ranks)
    yielded, results = [list[Tensor]()] * len(ranks), dict[int, T]()

    def advance(rank: int) -> None:
        try:
            yielded[rank] = list(ranks[rank].send(received[rank]))  # pyright: ignore[reportArgumentType]
        except StopIteration as end:
            results[rank] = end.value

    while not results:
        tasks = [partial(advance, rank) for rank in range(len(ranks))]
        if sum(len(vector) for vectors in received for vector in vectors or ()) >= _FEW_ROWS:
            run_tasks(tasks)
        else:
            for task in tasks:
                task()
        received = [list(vectors) for vectors in zip(*yielded, strict=True)]
    return [results[rank] for rank in range(len(ranks))]

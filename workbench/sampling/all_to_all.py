"""`AllToAll`: a computation of one rank that leaves its communication to the caller."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from torch import Tensor

LENGTH_BYTES = 8
"""Bytes by which a transport announces the length of each vector to its receiver."""

T = TypeVar("T")
AllToAll = Generator[list[Tensor], list[Tensor], T]
"""Yields one int64 vector per rank, its own empty; is sent what every rank yielded for it; returns a T."""


def run_in_lockstep(ranks: Sequence[AllToAll[T]]) -> list[T]:
    """Run the computations of all ranks in one process, and exchange what they yield.

    Args:
        ranks: one generator per rank; all yield equally often.

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
    while True:
        yielded, results = [], []
        for rank, vectors in zip(ranks, received, strict=True):
            try:
                yielded.append(rank.send(vectors))  # pyright: ignore[reportArgumentType]
            except StopIteration as end:
                results.append(end.value)
        if results:
            return results
        received = [list(vectors) for vectors in zip(*yielded, strict=True)]

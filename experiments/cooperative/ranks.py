"""Global batches of several ranks: who owns which node, and how the ranks sample."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

import workbench as wb
from workbench.core.randomness import Purpose, permutation, stream

Ownership = Literal["random", "metis", "contiguous"]
Minibatching = Literal["independent", "cooperative"]

METHODS: Mapping[Ownership, str] = {"random": "random", "metis": "metis", "contiguous": "range"}
"""Methods of `partition_graph`."""

BATCHES: Mapping[Minibatching, Callable[..., list[wb.MiniBatch]]] = {
    "independent": wb.cooperative.independent_batches,
    "cooperative": wb.cooperative.batches,
}


def owners(graph: wb.Graph, num_ranks: int, ownership: Ownership, seed: int) -> Tensor:
    """The rank that owns each node, int32 on the graph's device."""
    owner = wb.partition_graph(graph.to("cpu"), num_ranks, method=METHODS[ownership], seed=seed)
    return owner.to(graph.device, torch.int32)


def global_batch(train: Tensor, size: int, seed: int, number: int) -> Tensor:
    """A uniform subset of the training nodes; one of another number is independent of it."""
    order = permutation(stream(seed, Purpose.SHUFFLE, number), len(train))
    return train[order[:size].to(train.device)]


def rank_batches(minibatching: Minibatching, *args: Any, **options: Any) -> list[wb.MiniBatch]:
    """The batches of all ranks, sampled cooperatively or independently; other arguments as of `cooperative.batches`."""
    return BATCHES[minibatching](*args, **options)

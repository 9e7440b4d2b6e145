"""`macrobatches`: mini-batches sampled in windows of B, their features fetched once per group of F and cut out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, gather_numbers
from workbench.features.protocols import check_store
from workbench.features.sources import as_store
from workbench.features.stage import stage, windows
from workbench.nn.inputs import Inputs
from workbench.sampling.batches import Batches, EpochOrder, repeat_warner
from workbench.sampling.sampler import Sampler, check_graph, check_sampler

Item = tuple[int, MiniBatch, Any]
"""Step, mini-batch, and the staged rows that it reads."""


def macrobatches(
    graph: Graph,
    seeds: Tensor,
    *,
    sampler: Sampler,
    store: Any,
    batch_size: int,
    size: int,
    group_size: int | None = None,
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    group: Group = None,
) -> Batches[Item]:
    """Sample mini-batches in windows of B and fetch the features of F of them at once, epoch by epoch.

        loader = wb.macrobatches(graph, train_ids, sampler=sampler, store=x, batch_size=1024, size=22)
        for step, mb, rows in loader:
            wb.train_step(model, mb, rows, y, loss_fn, optimizer)

    Batches, steps and epochs are those of `workbench.batches`; the rows are those of the store. With a
    `MacrobatchSampler` and `OwnedRows`, ranks sample a window with one relay per hop, and fetch the features of a group
    with one more. The call and the loop are then collective. Ranks with fewer mini-batches than others join with empty
    ones, so that all ranks take the same number of steps (`workbench.cooperative_step` accepts them).

    Args:
        graph: the graph to sample from, the part of this rank for a `MacrobatchSampler`.
        seeds: int64 or int32 [n], training node ids of this rank, each once, possibly none.
        sampler: any sampler; one with `sample_window` samples a window at once.
        store: features by raw-graph id: a tensor, an array or a store (of disk or host memory, or `OwnedRows`), or
            `AggregatedRows` or `Inputs` of two of them, features and aggregates. They must not change during a window.
        batch_size: seeds per mini-batch, at least 1.
        size: B, mini-batches per window, at least 1.
        group_size: F, mini-batches whose rows are fetched together and in memory at a time, 1 to `size`; None: `size`.
        epoch: number of the only epoch, from 0; None: a new epoch per loop.
        shuffle: permute the seeds in every epoch.
        drop_last: drop the last mini-batch if it is smaller.
        seed: seed of the permutations, a 64-bit integer.
        group: the ranks; None for all. A process without a process group is the only one.

    Returns:
        `Batches` of (step, mini-batch, rows): `rows` serves the mini-batches of one group by raw-graph id.

    Raises:
        TypeError: ids of another dtype, or a store of another type.
        ValueError: duplicate seeds, or a size out of range; raised by the call.
        IndexError: a seed out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: BatchGNN, section 3, "Macrobatch sampling": B and F of its Figure 1.
    """
    check_graph(graph)
    check_sampler(sampler)
    check_at_least("size", size, 1)
    check_at_least("group_size", size if group_size is None else group_size, 1, most=size)
    seeds = check_ids("seeds", seeds, graph.num_nodes, unique=True)
    order = EpochOrder(len(seeds), batch_size, shuffle, drop_last, seed)
    order = RankOrder(order, int(max(gather_numbers(len(order), group))))
    warner = repeat_warner(graph, order, sampler, seeds) if shuffle else None
    window = partial(_sample_window, graph, seeds, sampler)
    items = partial(_items, window, _stores(store), size, group_size or size)
    return Batches(order, items, epoch=epoch, on_epoch=warner)


@dataclass(frozen=True)
class RankOrder:
    """The order of one rank's epoch, followed by empty mini-batches up to the number that any rank has.

    Args:
        own: order of this rank's seeds.
        num_batches: mini-batches per epoch, the same on all ranks, so that steps have the same numbers.
    """

    own: EpochOrder
    num_batches: int

    @property
    def count(self) -> int:
        return self.own.count

    @property
    def batch_size(self) -> int:
        return self.own.batch_size

    def __len__(self) -> int:
        return self.num_batches

    def positions(self, epoch: int, skip: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Yield (step, positions of the batch's seeds), as `EpochOrder.positions`."""
        own = self.own.positions(epoch, min(skip, len(self.own)))
        none = torch.empty(0, dtype=torch.int64)
        for step in range(epoch * self.num_batches + skip, (epoch + 1) * self.num_batches):
            yield step, next(own, (step, none))[1]


def _items(
    window: Callable[[Sequence[int], Sequence[Tensor]], list[MiniBatch]],
    store: Any,
    size: int,
    group_size: int,
    positions: Iterator[tuple[int, Tensor]],
) -> Iterator[Item]:
    """Sample window after window, fetch the rows of group after group, and yield mini-batch after mini-batch."""
    for pairs in windows(positions, size=size):
        steps, chosen = zip(*pairs, strict=True)
        batches = window(steps, chosen)
        for group in windows(zip(steps, batches, strict=True), size=group_size):
            rows = _staged(store, group)
            for step, mb in group:
                yield step, mb, rows
            del rows  # before the next group's are fetched


def _sample_window(
    graph: Graph, seeds: Tensor, sampler: Any, steps: Sequence[int], positions: Sequence[Tensor]
) -> list[MiniBatch]:
    ids = [seeds[chosen.to(seeds.device)] for chosen in positions]
    if hasattr(sampler, "sample_window"):
        return sampler.sample_window(graph, ids, steps=steps)
    return [sampler.sample(graph, one, step=step) for one, step in zip(ids, steps, strict=True)]


def _stores(store: Any) -> Any:
    if isinstance(store, Inputs):
        return Inputs(_stores(store.x), None if store.aggregated is None else _stores(store.aggregated))
    store = as_store(store, "store")
    check_store("store", store)
    return store


def _staged(store: Any, group: list[tuple[int, MiniBatch]]) -> Any:
    if isinstance(store, Inputs):
        return Inputs(stage(store.x, group), None if store.aggregated is None else stage(store.aggregated, group))
    return stage(store, group)

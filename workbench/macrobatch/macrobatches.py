"""`MacrobatchSampler`: ranks sample windows of their own mini-batches together, with one relay per hop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, exchange_ids, gather_numbers
from workbench.distributed.owned import OwnedSampler
from workbench.distributed.progress import in_phase
from workbench.features.memory_rows import as_store, check_covers
from workbench.features.protocols import check_store
from workbench.features.stage import stage, windows
from workbench.macrobatch.relay import check_relayable, sample_relayed
from workbench.nn.losses import Inputs
from workbench.sampling.batches import Batches, EpochOrder, repeat_warner
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Sampler, check_graph, check_sampler


class MacrobatchSampler(OwnedSampler):
    """Samples mini-batches of each rank's own from a graph that is divided over the ranks, a window of them at once.

        owned = wb.sampling.OwnedGraph.of(graph, owner, rank, size)
        sampler = wb.macrobatch.MacrobatchSampler(wb.NeighborSampler([5, 10, 15], replace=True), owned)
        loader = wb.macrobatch.batches(owned.graph, mine, sampler=sampler, store=store, batch_size=1024, size=22)
        for step, mb, rows in loader: …

    In every hop, one all-to-all asks the owners for the rows of all mini-batches, and one returns them: as many relays
    as layers, whatever the size of the window. Each mini-batch equals the one that `sampler` draws from the whole graph
    in one process, bit for bit. `sample` and `sample_window` are collective. To overlap them with training
    (`workbench.prefetch`), pass a group of its own, `torch.distributed.new_group()`: collectives of two threads must
    not share one.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`).
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts what other ranks send, as "rank": "ids", the nodes that they ask for; "edges", the rows drawn
            for this rank; "relays" and the bytes of their headers.

    Raises:
        ValueError: the rows of `sampler` depend on each other or on rows of other nodes, or `owned` belongs to another
            rank.

    Source: BatchGNN, section 3, "Macrobatch sampling".
    """

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        check_relayable(owned, sampler)
        super().__init__(sampler, owned, group, traffic=traffic)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample one mini-batch of this rank; collective. Arguments and errors as for `sample_window`."""
        (mb,) = self.sample_window(graph, [seeds], steps=[step], exclude_edges=[exclude_edges])
        return mb

    def sample_window(
        self,
        graph: Graph,
        seeds: Sequence[Tensor],
        *,
        steps: Sequence[int],
        exclude_edges: Sequence[Tensor | None] | None = None,
    ) -> list[MiniBatch]:
        """Sample a window of this rank's mini-batches; collective: every rank calls it, possibly with none.

        Args:
            graph: `owned.graph`.
            seeds: int64 or int32 node ids of each mini-batch, each once, of any rank.
            steps: number of each mini-batch, which selects its random variates.
            exclude_edges: int64 or int32, per mini-batch, raw-graph edge ids that must not be drawn, or None.

        Returns:
            The mini-batches, without exchanges.

        Raises:
            ValueError: another graph, duplicate seeds, or lists of different lengths.
            TypeError: ids of another dtype.
            IndexError: an id out of range.
        """
        self._check(graph)
        options: dict[str, Any] = {"steps": steps, "exclude_edges": exclude_edges, "traffic": self._traffic}
        with in_phase("sampling"):
            relay = sample_relayed(self._owned, seeds, sampler=self._sampler, **options)
            try:
                messages = next(relay)
                while True:
                    for phase in ("request", "answer"):
                        messages = relay.send(exchange_ids(messages, self._group, phase=phase))
            except StopIteration as done:
                return done.value


Item = tuple[int, MiniBatch, Any]
"""Step, mini-batch, and the staged rows that it reads."""


def batches(
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

        loader = wb.macrobatch.batches(graph, train_ids, sampler=sampler, store=x, batch_size=1024, size=22)
        for step, mb, rows in loader:
            wb.train_step(model, mb, rows, y, loss_fn, optimizer)

    Batches, steps and epochs are those of `workbench.batches`; the rows are those of the store. With a
    `MacrobatchSampler` and `OwnedRows`, ranks sample a window with one relay per hop, and fetch the features of a group
    with one more. The call and the loop are then collective. Ranks with fewer mini-batches than others join with empty
    ones, so that all ranks take the same number of steps (`workbench.cooperative.train_step` accepts them).

    Args:
        graph: the graph to sample from, the part of this rank for a `MacrobatchSampler`.
        seeds: int64 or int32 [n], training node ids of this rank, each once, possibly none.
        sampler: any sampler; one with `sample_window` samples a window at once.
        store: features by raw-graph id: a tensor, an array or a store (of disk or host memory, or `OwnedRows`), or
            `AggregatedRows` or `Inputs` of two of them, features and aggregates. They must not change during a window.
        batch_size: seeds per mini-batch, at least 1.
        size: B, mini-batches per window, at least 1.
        group_size: F, mini-batches whose rows are fetched together, 1 to `size`; None: `size`. While a group's are
            fetched, a loop still has those of the one before.
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
        IndexError: a seed out of range, or a store with fewer rows than the graph has nodes.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: BatchGNN, section 3, "Macrobatch sampling": B and F of its Figure 1.
    """
    check_graph(graph)
    check_sampler(sampler)
    store = _checked_store("store", store, graph)
    check_at_least("size", size, 1)
    check_at_least("group_size", size if group_size is None else group_size, 1, most=size)
    seeds = check_ids("seeds", seeds, graph.num_nodes, unique=True)
    order = EpochOrder(len(seeds), batch_size, shuffle, drop_last, seed)
    order = RankOrder(order, int(max(gather_numbers(len(order), group))))
    warner = repeat_warner(graph, order, sampler, seeds) if shuffle else None
    window = partial(_sample_window, graph, seeds, sampler)
    items = partial(_items, window, store, size, group_size or size)
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
        waiting = deque(zip(steps, window(steps, chosen), strict=True))
        while waiting:
            group = [waiting.popleft() for _ in range(min(group_size, len(waiting)))]
            rows = _staged(store, group)
            for step, mb in group:
                yield step, mb, rows
            del group, mb, rows  # before others are sampled and fetched


def _sample_window(
    graph: Graph, seeds: Tensor, sampler: Any, steps: Sequence[int], positions: Sequence[Tensor]
) -> list[MiniBatch]:
    ids = [seeds[chosen.to(seeds.device)] for chosen in positions]
    if hasattr(sampler, "sample_window"):
        return sampler.sample_window(graph, ids, steps=steps)
    return [sampler.sample(graph, one, step=step) for one, step in zip(ids, steps, strict=True)]


def _checked_store(name: str, store: Any, graph: Graph) -> Any:
    if isinstance(store, Inputs):
        x, aggregated = _checked_store(f"{name}.x", store.x, graph), store.aggregated
        return Inputs(x, None if aggregated is None else _checked_store(f"{name}.aggregated", aggregated, graph))
    store = as_store(store, name)
    check_store(name, store)
    check_covers(name, store, torch.arange(graph.num_nodes)[-1:])
    return store


def _staged(store: Any, group: list[tuple[int, MiniBatch]]) -> Any:
    if isinstance(store, Inputs):
        return Inputs(stage(store.x, group), None if store.aggregated is None else stage(store.aggregated, group))
    return stage(store, group)

"""`buffer_batches`: node classification from disk, batches of the training nodes that are in the buffer (MariusGNN)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.meter.stopwatch import Phase, unmeasured
from workbench.outofcore.node_order import NodeOrder
from workbench.outofcore.state_batches import BatchCut, StateBatches, StateEpoch, orders_of, store_of
from workbench.sampling.repeated_epochs import repeat_warner
from workbench.sampling.sampler import Sampler, check_sampler

_REMEDY = "pass wb.node_order(p, c, k), lambda epoch: wb.node_order(p, c, k, epoch=epoch), or call buffer_edge_batches"


def buffer_batches(
    buffer: Any,
    order: NodeOrder | Callable[[int], NodeOrder],
    ids: Tensor,
    *,
    sampler: Sampler,
    batch_size: int,
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    sample_ahead: int = 0,
    phase: Phase = unmeasured,
) -> StateBatches[tuple[Any, int, MiniBatch]]:
    """Sample mini-batches of node ids while partitions pass through a buffer, epoch by epoch.

    Create the object once; each loop over it is a new epoch:

        loader = wb.buffer_batches(buffer, order, train_ids, sampler=sampler, batch_size=1000)
        for epoch in range(10):
            for state, step, batch in loader:
                wb.train_step(model, batch, state.rows, y, cross_entropy, optimizer)

    Every node is trained once per epoch, in a random state of those with its partition, and its neighbours are drawn
    from the edges in the buffer alone. With all partitions in the buffer, batches and steps are those of
    `workbench.batches` on the store's graph. Orders over all partitions (`wb.node_order(p, c, p)`) give batches of any
    nodes, to evaluate a model.

    A state's rows are in memory until the loop asks for the next batch, so don't pass the object to `wb.prefetch`; to
    sample ahead, set `sample_ahead`.

    Args:
        buffer: the `PartitionBuffer`.
        order: of the epoch, or a function from an epoch's number to its order, so that epochs differ.
        ids: int64 or int32 [n], training nodes, each once, as ids of the store; their partitions are those of training
            nodes in the order.
        sampler: has `sample(graph, seeds, step=…)`.
        batch_size: seeds per batch, at least 1; the last one of a state may be smaller.
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the ids in every epoch.
        drop_last: drop the last batch of a state if it is smaller.
        seed: seed of the permutations and of the nodes' states, a 64-bit integer.
        sample_ahead: number of batches of a state that a background thread samples ahead; 0: none.
        phase: entered around what the loop waits for: "fill" (the first state), "load" (every other), "sample" (each
            batch) and "flush" (the end of the buffer's epoch).

    Returns:
        `StateBatches` of (state of the buffer, step, batch).

    Raises:
        TypeError: ids of another dtype, or an order of another type.
        ValueError: duplicate ids, ids of partitions without training nodes, or a number out of range.
        IndexError: an id out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.3.
    """
    check_sampler(sampler)
    store = store_of(buffer)
    ids = check_ids("ids", ids, store.num_nodes, unique=True).cpu()
    partition, cut = ids // store.partition_rows, BatchCut(batch_size, shuffle, drop_last, seed)
    orders = orders_of(order, NodeOrder, _REMEDY)
    _check_trained(ids, partition, orders(0))

    def work(order: NodeOrder, epoch: int) -> StateEpoch[tuple[Any, int, MiniBatch]]:
        at = order.states_of(ids, partition, seed=seed, epoch=epoch)
        counts = at.bincount(minlength=order.num_states).tolist()
        sequence = permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids)) if shuffle else torch.arange(len(ids))
        seeds = ids[sequence[at[sequence].argsort(stable=True)]].split(counts)

        def sampler_of(state: Any) -> Callable[[int, slice], tuple[Any, int, MiniBatch]]:
            of_state = seeds[state.number]
            return lambda step, chosen: (state, step, state.sample(sampler, of_state[chosen], step=step))

        return StateEpoch(counts, sampler_of)

    warner = repeat_warner(buffer, cut, sampler, ids) if shuffle else None
    options: dict[str, Any] = {"epoch": epoch, "sample_ahead": sample_ahead, "phase": phase}
    return StateBatches(buffer, orders, work, cut, on_epoch=warner, **options)


def _check_trained(ids: Tensor, partition: Tensor, order: NodeOrder) -> None:
    """Check that an order visits the partitions of all nodes."""
    visited = len(order.first)
    if len(ids) and int(partition.max()) >= visited:
        worst = int(partition.argmax())
        raise ValueError(
            f"ids contains {int(ids[worst])}, which is in partition {int(partition[worst])}, but only the first "
            f"{visited} have training nodes in the order; pass num_train_partitions={int(partition.max()) + 1} to "
            "wb.node_order"
        )

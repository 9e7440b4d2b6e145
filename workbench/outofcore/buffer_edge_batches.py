"""`buffer_edge_batches`: link prediction from disk, batches of the edges trained in each state (MariusGNN)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import Negatives
from workbench.meter.stopwatch import Phase, unmeasured
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.buffer_state import takes_any_ids
from workbench.outofcore.state_batches import BatchCut, StateBatches, StateEpoch, orders_of, store_of
from workbench.sampling.edge_loader import PairSampling
from workbench.sampling.repeated_epochs import repeat_warner
from workbench.sampling.sampler import Sampler

PairBatch = tuple[Any, int, EdgeBatch, MiniBatch]

_REMEDY = "pass wb.comet_order(p, c), lambda epoch: wb.comet_order(p, c, epoch=epoch), or call buffer_batches"


def buffer_edge_batches(
    buffer: Any,
    order: BucketOrder | Callable[[int], BucketOrder],
    *,
    sampler: Sampler | None,
    batch_size: int,
    negatives: Negatives | None = None,
    exclude: str = "both",
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
    sample_ahead: int = 0,
    phase: Phase = unmeasured,
) -> StateBatches[PairBatch]:
    """Sample batches of a store's edges while partitions pass through a buffer, epoch by epoch.

    Create the object once; each loop over it is a new epoch, as for `workbench.buffer_batches`. Every edge is trained
    once per epoch, in the state of its bucket; its neighbours and its negatives are nodes and edges in the buffer. With
    all partitions in the buffer, batches and steps are those of `workbench.edge_batches` on the store's graph and
    edges. A state's rows are in memory until the loop asks for the next batch, so don't pass the object to
    `wb.prefetch`; to sample ahead, set `sample_ahead`.

    Args:
        buffer: the `PartitionBuffer`.
        order: of the epoch, or a function from an epoch's number to its order, so that epochs differ.
        sampler: has `sample(graph, seeds, step=…, exclude_edges=…)`; None: batches without blocks, for decoders alone.
        batch_size: pairs per batch, at least 1; the last one of a state may be smaller.
        negatives: how to draw negatives, from the nodes and edges in the buffer; None: no negatives.
        exclude: edges that are not sampled, as for `workbench.edge_batches`.
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the edges of every state in every epoch.
        drop_last: drop the last batch of a state if it is smaller.
        seed: seed of the permutations, a 64-bit integer.
        sample_ahead: number of batches of a state that a background thread samples ahead; 0: none.
        phase: entered around what the loop waits for: "fill" (the first state), "load" (every other), "sample" (each
            batch) and "flush" (the end of the buffer's epoch).

    Returns:
        `StateBatches` of (state of the buffer, step, pairs with negatives, the sampled batch).

    Raises:
        TypeError: an order or negatives of another type.
        ValueError: an option or a number out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.1.
    """
    drawing, cut = PairSampling(sampler, negatives, exclude), BatchCut(batch_size, shuffle, drop_last, seed)
    store = store_of(buffer)

    def work(order: BucketOrder, epoch: int) -> StateEpoch[PairBatch]:
        edges = torch.zeros(order.num_states, dtype=torch.int64)
        edges.index_add_(0, order.state_of_bucket.flatten().long(), store.bucket_edges.flatten())
        counts = edges.tolist()

        def sampler_of(state: Any) -> Callable[[int, slice], PairBatch]:
            return _sampler_of(state, drawing, _sequence(counts[state.number], state.number, epoch, cut))

        return StateEpoch(counts, sampler_of)

    warner = repeat_warner(buffer, cut, sampler, negatives, exclude) if shuffle else None
    orders = orders_of(order, BucketOrder, _REMEDY)
    options: dict[str, Any] = {"epoch": epoch, "sample_ahead": sample_ahead, "phase": phase}
    return StateBatches(buffer, orders, work, cut, on_epoch=warner, **options)


def _sequence(count: int, state: int, epoch: int, cut: BatchCut) -> Tensor:
    """The order in which a state trains its edges; of the first state, that of an epoch in memory."""
    return permutation(stream(cut.seed, Purpose.SHUFFLE, epoch, state), count) if cut.shuffle else torch.arange(count)


def _sampler_of(state: Any, drawing: PairSampling, sequence: Tensor) -> Callable[[int, slice], PairBatch]:
    """How a state's batches are drawn: if the sampler permits, in compact ids, from a graph as small as the buffer."""
    if drawing.sampler is not None and not takes_any_ids(drawing.sampler):
        edges, nodes = state.edges(), state.ids.to_store(torch.arange(state.ids.num_nodes))
        return lambda step, chosen: (state, step, *_drawn(drawing, state.graph, edges[sequence[chosen]], step, nodes))
    ids, edges = state.ids, state.edges()
    for end in edges[:, :2].unbind(1):
        end.copy_(ids.of("edges", end))

    def sample(step: int, chosen: slice) -> PairBatch:
        graph = state.compact_graph if drawing.reads_edges else ids.num_nodes  # to build a graph takes time
        pairs, mb = _drawn(drawing, graph, edges[sequence[chosen]], step)
        seeds, node_ids = ids.to_store(pairs.seeds), ids.to_store(mb.node_ids)
        return state, step, replace(pairs, seeds=seeds), replace(mb, node_ids=node_ids)

    return sample


def _drawn(
    drawing: PairSampling, graph: Graph | int, picked: Tensor, step: int, nodes: Tensor | None = None
) -> tuple[EdgeBatch, MiniBatch]:
    relation = picked[:, 2] if picked.shape[1] == 3 else None
    return drawing.sample(graph, picked[:, 0], picked[:, 1], relation, step=step, nodes=nodes)

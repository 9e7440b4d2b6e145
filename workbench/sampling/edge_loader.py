"""`edge_batches`: an epoch of link prediction, as pairs with negatives and the sampled batch of their nodes."""

from collections.abc import Iterator
from types import NoneType

from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    check_choice,
    check_ids,
    check_type,
    check_vector,
)
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import Negatives
from workbench.sampling.loader import epoch_slices
from workbench.sampling.sampler import Sampler

_EXCLUSIONS = ("none", "targets", "both")


def edge_batches(
    graph: Graph,
    pairs: Tensor,
    *,
    sampler: Sampler | None,
    batch_size: int,
    relation: Tensor | None = None,
    negatives: Negatives | None = None,
    exclude: str = "both",
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> Iterator[tuple[int, EdgeBatch, MiniBatch]]:
    """Sample one epoch of batches of node pairs.

    The order depends on (seed, epoch) alone. Steps are numbered through all epochs, so that no two batches of a run
    over the same number of pairs share random variates.

    Args:
        graph: the graph to sample from.
        pairs: int64 or int32 [2, n], sources and destinations of the positive pairs (`data.link_split.train_edge`, or
            `kg.train[:, [0, 2]].T`).
        sampler: has `sample(graph, seeds, step=…, exclude_edges=…)`; None: batches without blocks, for decoders alone.
        batch_size: pairs per batch, at least 1.
        relation: integer [n], relation of each pair (`kg.train[:, 1]`).
        negatives: how to draw negatives, from the nodes and edges of the graph; None: no negatives.
        exclude: edges that are not sampled, so that targets don't leak: "both" (all edges between the pairs of the
            batch, of any type, in both directions), "targets" (only in the pairs' direction) or "none".
        epoch: number of the epoch, from 0.
        shuffle: permute the pairs in every epoch.
        drop_last: drop the last batch if it is smaller.
        seed: seed of the permutations, a 64-bit integer.

    Yields:
        (step, pairs with negatives, the sampled batch): the seeds of both are the same, in the same order.

    Raises:
        TypeError: ids of another dtype.
        ValueError: pairs of another shape, or `batch_size` or `epoch` below its minimum; raised by the call, not by the
            first batch, as all errors here.
        IndexError: an id out of range.
    """
    check_choice("exclude", exclude, _EXCLUSIONS)
    check_type("graph", graph, Graph, "pass the Graph to sample from")
    check_type("negatives", negatives, (Negatives, NoneType), "pass wb.Negatives(count) or None")
    if sampler is not None and not callable(getattr(sampler, "sample", None)):
        raise TypeError(f"sampler is {sampler!r}; pass a sampler, such as wb.NeighborSampler([10]), or None")
    check_type("pairs", pairs, Tensor, "pass a tensor [2, n]: torch.stack((src, dst))")
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"pairs have shape {tuple(pairs.shape)}; pass [2, n]: torch.stack((src, dst))")
    src, dst = (check_ids(name, ids, graph.num_nodes) for name, ids in zip(("src", "dst"), pairs, strict=True))
    check_vector("relation", relation, len(src), ID_DTYPES)
    slices = epoch_slices(len(src), batch_size, epoch=epoch, shuffle=shuffle, drop_last=drop_last, seed=seed)

    def generate() -> Iterator[tuple[int, EdgeBatch, MiniBatch]]:
        for step, positions in slices:
            chosen = positions.to(src.device)
            of_pairs = None if relation is None else relation[chosen]
            if negatives is None:
                batch = EdgeBatch.from_pairs(src[chosen], dst[chosen], relation=of_pairs)
            else:
                batch = negatives.draw(graph, src[chosen], dst[chosen], relation=of_pairs, step=step)
            yield step, batch, _sampled(graph, batch, sampler, exclude, step)

    return generate()


def _sampled(graph: Graph, batch: EdgeBatch, sampler: Sampler | None, exclude: str, step: int) -> MiniBatch:
    if sampler is None:
        return MiniBatch(batch.seeds, (), step=step)
    targets = None if exclude == "none" else batch.target_edges(graph, reverse=exclude == "both")
    return sampler.sample(graph, batch.seeds, step=step, exclude_edges=targets)

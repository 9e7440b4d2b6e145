"""`edge_batches`: an epoch of link prediction, as pairs with negatives and the sampled batch of their nodes."""

from dataclasses import dataclass
from types import NoneType

from torch import Tensor

from workbench.core.errors import check_choice, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.links.edge_batch import EdgeBatch
from workbench.links.negatives import Negatives, check_relation
from workbench.sampling.batches import Batches, EpochOrder, one_by_one, repeat_warner
from workbench.sampling.sampler import Sampler, check_graph, check_sampler

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
    epoch: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int = 0,
) -> Batches[tuple[int, EdgeBatch, MiniBatch]]:
    """Sample batches of node pairs, epoch by epoch.

    Create the object once; each loop over it is a new epoch, as for `workbench.batches`. The order depends on
    (seed, epoch) alone. Steps are numbered through all epochs, so that no two batches of a run over the same number of
    pairs share random variates.

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
        epoch: number of the only epoch, from 0: every loop sees the same batches. None: a new epoch per loop.
        shuffle: permute the pairs in every epoch.
        drop_last: drop the last batch if it is smaller.
        seed: seed of the permutations, a 64-bit integer.

    Returns:
        `Batches` of (step, pairs with negatives, the sampled batch): the seeds of both are the same, in the same order.

    Raises:
        TypeError: ids of another dtype.
        ValueError: pairs of another shape, or `batch_size` or `epoch` below its minimum; raised by the call, not by the
            first batch, as all errors here.
        IndexError: an id out of range.

    Warns:
        RuntimeWarning: the third object with the same arguments is iterated from epoch 0.
    """
    check_graph(graph)
    options = PairSampling(sampler, negatives, exclude)
    check_type("pairs", pairs, Tensor, "pass a tensor [2, n]: torch.stack((src, dst))")
    if pairs.dim() != 2 or pairs.shape[0] != 2:
        raise ValueError(f"pairs have shape {tuple(pairs.shape)}; pass [2, n]: torch.stack((src, dst))")
    src, dst = (check_ids(f"pairs[{row}]", ids, graph.num_nodes) for row, ids in enumerate(pairs))
    relation = check_relation(relation, len(src))
    order = EpochOrder(len(src), batch_size, shuffle, drop_last, seed)

    def sample(step: int, positions: Tensor) -> tuple[int, EdgeBatch, MiniBatch]:
        chosen = positions.to(src.device)
        of_pairs = None if relation is None else relation[chosen]
        return step, *options.sample(graph, src[chosen], dst[chosen], of_pairs, step=step)

    warner = repeat_warner(graph, order, sampler, src, dst, relation, negatives, exclude) if shuffle else None
    return Batches(order, one_by_one(sample), epoch=epoch, on_epoch=warner)


@dataclass(frozen=True)
class PairSampling:
    """How batches of pairs are drawn; the arguments are those of `workbench.edge_batches`."""

    sampler: Sampler | None
    negatives: Negatives | None = None
    exclude: str = "both"

    def __post_init__(self) -> None:
        check_choice("exclude", self.exclude, _EXCLUSIONS)
        check_type("negatives", self.negatives, (Negatives, NoneType), "pass wb.links.Negatives(count) or None")
        if self.sampler is not None:
            check_sampler(self.sampler)

    @property
    def reads_edges(self) -> bool:
        """Whether `sample` needs the graph; False: its number of nodes is enough."""
        return self.sampler is not None or (self.negatives is not None and self.negatives.reads_edges)

    def sample(
        self,
        graph: Graph | int,
        src: Tensor,
        dst: Tensor,
        relation: Tensor | None,
        *,
        step: int,
        nodes: Tensor | None = None,
    ) -> tuple[EdgeBatch, MiniBatch]:
        """Draw the negatives of some pairs, and sample the batch of all their nodes.

        Args:
            graph: the graph to sample from, or its number of nodes if `reads_edges` is False.
            src: int64 [n], raw-graph ids of the pairs.
            dst: int64 [n], likewise.
            relation: integer [n], or None.
            nodes: int64 [any], the nodes to draw uniform negatives from; None: all nodes.
        """
        if self.negatives is None:
            pairs = EdgeBatch.from_pairs(src, dst, relation=relation)
        else:
            pairs = self.negatives.draw(graph, src, dst, relation=relation, nodes=nodes, step=step)
        if self.sampler is None:
            return pairs, MiniBatch(pairs.seeds, (), step=step)
        assert isinstance(graph, Graph)
        targets = None if self.exclude == "none" else pairs.target_edges(graph, reverse=self.exclude == "both")
        return pairs, self.sampler.sample(graph, pairs.seeds, step=step, exclude_edges=targets)

"""`CooperativeSampler`: every rank samples the rows that it owns of one global batch."""

from torch import Tensor

from workbench.cooperative.sampling import sample_owned
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.distributed.group import Group
from workbench.distributed.owned_sampler import OwnedSampler
from workbench.distributed.progress import in_phase
from workbench.distributed.row_exchange import exchange_ids
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Sampler, require_row_independence


class CooperativeSampler(OwnedSampler):
    """Samples a global batch on all ranks together: each draws the in-edges of its own nodes, and asks the owners.

        owned = wb.OwnedGraph.of(graph, owner, rank, size)
        sampler = wb.CooperativeSampler(wb.LaborSampler([10, 10, 10]), owned)
        for step, mb in wb.batches(owned.graph, data.train_idx, sampler=sampler, batch_size=ranks * 1024): …

    Every rank passes the same seeds; the union of the ranks' batches is the batch that one process would sample, bit
    for bit. `sample` is collective. To overlap it with training (`workbench.prefetch`), pass a group of its own,
    `torch.distributed.new_group()`: collectives of two threads must not share one.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`).
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts the ids that other ranks ask for, as "rank".

    Raises:
        ValueError: the rows of `sampler` depend on each other, or `owned` belongs to another rank.

    Source: Cooperative Minibatching in GNNs, section 3.1 and Algorithm 1.
    """

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        require_row_independence(sampler, "cooperative sampling")
        super().__init__(sampler, owned, group, traffic=traffic)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample this rank's part of a batch; collective.

        Args:
            graph: `owned.graph`.
            seeds: int64 or int32, the seeds of the *global* batch, the same on all ranks; or, of each rank, its own
                seeds alone.
            step: number of the batch, the same on all ranks.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn.

        Returns:
            A batch with `exchanges`, whose nodes this rank owns; possibly without seeds.

        Raises:
            ValueError: another graph, or seeds that occur twice.
            TypeError: ids of another dtype.
            IndexError: an id out of range.
        """
        self._check(graph)
        with in_phase("sampling"):
            steps = sample_owned(self._owned, seeds, sampler=self._sampler, step=step, exclude_edges=exclude_edges)
            try:
                asked = next(steps)
                while True:
                    asked = steps.send(exchange_ids(asked, self._group, self._traffic))
            except StopIteration as done:
                return done.value

"""`CooperativeSampler`: every rank samples the rows that it owns of one global batch."""

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.distributed.group import Group, get_rank, get_world_size
from workbench.distributed.progress import in_phase
from workbench.distributed.row_exchange import exchange_ids
from workbench.sampling.cooperative import sample_owned
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Drawn, Sampler, require_row_independence


class CooperativeSampler(Sampler):
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

    rows_are_independent = True

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        rank, size = get_rank(group), get_world_size(group)
        if (owned.rank, owned.num_ranks) != (rank, size):
            raise ValueError(
                f"owned is the graph of rank {owned.rank} of {owned.num_ranks}, but this is rank {rank} of {size}; "
                f"pass OwnedGraph.of(graph, owner, {rank}, {size})"
            )
        require_row_independence(sampler, "cooperative sampling")
        self.num_layers = sampler.num_layers
        self._sampler, self._owned, self._group, self._traffic = sampler, owned, group, traffic

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges of nodes that this rank owns; arguments as for `Sampler.draw`."""
        self._check(graph)
        return self._owned.draw(self._sampler, nodes, layer=layer, step=step, exclude_edges=exclude_edges)

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

    def _check(self, graph: Graph) -> None:
        if graph is not self._owned.graph:
            raise ValueError("a cooperative sampler samples from the graph it was made with; pass owned.graph")

    def __repr__(self) -> str:
        return f"CooperativeSampler({self._sampler!r}, rank {self._owned.rank} of {get_world_size(self._group)})"

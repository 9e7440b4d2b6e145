"""`OwnedSampler`: what samplers share that all ranks call together, each on the graph of the nodes it owns."""

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.distributed.group import Group, get_rank, get_world_size
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Drawn, Sampler


class OwnedSampler(Sampler):
    """Draws rows that this rank owns; the batches of its subclasses are collective.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`).
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts what other ranks send, as "rank".
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
        self.num_layers = sampler.num_layers
        self._sampler, self._owned, self._group, self._traffic = sampler, owned, group, traffic

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges of nodes that this rank owns; arguments as for `Sampler.draw`."""
        self._check(graph)
        return self._owned.draw(self._sampler, nodes, layer=layer, step=step, exclude_edges=exclude_edges)

    def _check(self, graph: Graph) -> None:
        if graph is not self._owned.graph:
            raise ValueError(f"{type(self).__name__} samples from the graph it was made with; pass owned.graph")

    def __repr__(self) -> str:
        size = get_world_size(self._group)
        return f"{type(self).__name__}({self._sampler!r}, rank {self._owned.rank} of {size})"

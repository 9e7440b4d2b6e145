"""Random-walk sampling: the nodes that short random walks with restarts visit most become a node's neighbours.

Ying et al.: "Graph convolutional neural networks for web-scale recommender systems" (PinSAGE), KDD 2018; as a recursive
sampler: appendix A.1.3 of Balin et al.: "Cooperative minibatching in graph neural networks".
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real

from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_at_least, check_seed, check_type
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose
from workbench.core.variates import Dependence, check_dependence, variates
from workbench.sampling.all_to_all import AllToAll
from workbench.sampling.candidates import candidates, excluded_positions, row_offsets
from workbench.sampling.excluding import ExcludingSampler
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.owned_walks import most_visited_owned
from workbench.sampling.sampler import Drawn, check_draw
from workbench.sampling.visits import Neighbors, pack_rows
from workbench.sampling.walks import Walks, most_visited

_MAX_LAYERS, _MAX_VISITS = 1000, 2**20
_BYTES_PER_STEP = 10 * 8  # of walks over several ranks, which take all steps of a layer at once
_BYTES_PER_NEIGHBOR = 2 * (8 + 4)  # a source and its count, before and after the rows are packed


@dataclass(frozen=True)
class RandomWalkSampler(ExcludingSampler):
    """Random-walk sampler: the nodes that a node's random walks visit most become its neighbours, layer by layer.

    A walk's first step goes to a random in-neighbour of its node v. Every later step restarts with
    `restart_probability`, which means that it goes to a random in-neighbour of v again, and otherwise goes to a random
    in-neighbour of the current node; at a node without in-edges it restarts. All steps count as visits, those to v
    itself too, as in DGL's `PinSAGESampler` (whose walks *end* with that probability, which is another distribution).
    Of nodes visited equally often the one visited first, walk by walk, precedes. A row lists its neighbours in this
    order; nodes without in-edges have none.

    Every step is uniform over the in-edges, whatever their weights and types: a neighbour is not an edge of the graph,
    so the blocks have no edge ids and no edge types.

    Args:
        fanouts: neighbours per node in every layer, **input layer first**; fewer if fewer nodes are visited.
        num_walks: walks per node.
        walk_length: steps per walk.
        restart_probability: probability in [0, 1] that a step after the first restarts.
        weighted: whether the blocks have edge weights: the visits of the neighbours, scaled to sum to their number per
            row, so that a weighted mean over a row is PinSAGE's importance pooling.
        edge_ids: must be false, because a neighbour is not an edge.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`, so that walks change slowly from batch to batch; None:
            independent batches. A smoothed walk keeps a step while both of its variates stay near.

    Raises:
        TypeError: fanouts that are no sequence, or another dependence.
        ValueError: an option out of range, or `edge_ids`.

    >>> import torch, workbench as wb
    >>> cycle = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), num_nodes=3)
    >>> wb.RandomWalkSampler([2]).sample(cycle, torch.tensor([0])).node_ids
    tensor([0, 2, 1])
    """

    fanouts: Sequence[int]
    _: KW_ONLY
    num_walks: int = 100
    walk_length: int = 3
    restart_probability: float = 0.5
    weighted: bool = True
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = True
    reads_other_rows = True
    sources_are_new = True

    def __post_init__(self) -> None:
        check_type("fanouts", self.fanouts, Sequence, "pass one per layer, input layer first: [10, 10]")
        object.__setattr__(self, "fanouts", tuple(self.fanouts))
        check_at_least("the number of fanouts (one per layer)", len(self.fanouts), 1, most=_MAX_LAYERS)
        for layer, fanout in enumerate(self.fanouts):
            check_at_least(f"fanouts[{layer}]", fanout, 1)
        check_at_least("num_walks", self.num_walks, 1, most=_MAX_VISITS)
        check_at_least("walk_length", self.walk_length, 1, most=_MAX_VISITS // self.num_walks)
        _check_probability(self.restart_probability)
        check_seed(self.seed)
        check_dependence(self.dependence)
        if self.edge_ids:
            raise ValueError(
                "edge_ids is set, but a neighbour that random walks reach is not an edge of the graph; omit edge_ids, "
                "or use NeighborSampler"
            )

    @property
    def num_layers(self) -> int:
        """Number of layers: one per fanout."""
        return len(self.fanouts)

    def _draw(self, graph: Graph, excluded: Tensor | None, nodes: Tensor, *, layer: int, step: int) -> Drawn:
        """Draw rows of int64 [n] nodes on the graph's device without steps over some CSR positions, which ascend."""
        fanout, walks = self._fanout(layer, len(nodes)), self._walks(layer, step)
        return self._packed(most_visited(graph, candidates(graph, nodes, excluded), walks, fanout))

    def draw_owned(
        self, owned: OwnedGraph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> AllToAll[Drawn]:
        """Draw the rows of nodes of one rank; the owners of the nodes that walks reach choose their next steps.

        Args:
            owned: the rank's part of the graph.
            nodes: int64 or int32 [n], nodes of the rank.
            layer: number of the layer, 0 for the input layer.
            step: number of the batch.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be walked over, of any rank.

        Returns:
            A generator for the caller to exchange what it yields, which returns the rows that `draw` gives.

        Raises:
            IndexError: a node of another rank.
            CapacityError: the walks need more memory than is available.
        """
        nodes = owned.check_owned("nodes", check_draw(self, owned.graph, nodes, layer=layer, step=step))
        excluded = excluded_positions(owned.graph, owned.own_edges(exclude_edges))
        visits = self.num_walks * self.walk_length * len(nodes)
        check_fits(f"{visits} steps of walks", _BYTES_PER_STEP * visits, "use more ranks, or fewer seeds")
        fanout, walks = self._fanout(layer, len(nodes)), self._walks(layer, step)
        return self._packed((yield from most_visited_owned(owned, nodes, excluded, walks, fanout)))

    def _fanout(self, layer: int, num_nodes: int) -> int:
        """Return the neighbours per row, at most the visits, after checking that they fit into memory."""
        fanout = min(self.fanouts[layer], self.num_walks * self.walk_length)
        needed = _BYTES_PER_NEIGHBOR * fanout * num_nodes
        check_fits(f"{fanout} neighbours of {num_nodes} nodes", needed, "use smaller fanouts, or fewer seeds")
        return fanout

    def _walks(self, layer: int, step: int) -> Walks:
        drawn = variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence)
        return Walks(drawn, self.num_walks, self.walk_length, float(self.restart_probability))

    def _packed(self, found: Neighbors) -> Drawn:
        indptr = row_offsets(found.kept)
        sources, weight = pack_rows(found, indptr, weighted=self.weighted)
        return Drawn(indptr, sources, weight=weight)


def _check_probability(value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"restart_probability is {value!r}; it must be a probability from 0 to 1")

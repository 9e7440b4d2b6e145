"""Neighbour sampling: draw up to `fanout` in-neighbours of every node, layer by layer.

Hamilton, Ying, Leskovec: "Inductive representation learning on large graphs", NeurIPS 2017.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_fits, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Dependence, Purpose, Variates, check_dependence, is_mixed, variates
from workbench.sampling.sampler import (
    MAX_LAYERS,
    Candidates,
    Drawn,
    ExcludingSampler,
    Fanout,
    check_graph,
    checked_fanouts,
)
from workbench.sampling.typed import draw_by_type
from workbench.sampling.uniform import draw_uniform
from workbench.sampling.weighted import draw_smallest, draw_weighted

_BYTES_PER_DRAW = 4 + 8  # a source and its position


@dataclass(frozen=True)
class NeighborSampler(ExcludingSampler):
    """Neighbour sampler: draws up to `fanout` in-neighbours of every node per layer, from the seeds to the inputs.

    A node's draw depends on (seed, step, layer, node) alone: it is the same for any number of threads, on any device,
    for any order of the seeds, and from any graph that contains the node's whole row.

    Args:
        fanouts: neighbours to draw per layer, **input layer first**, as in DGL; -1: all. PyG's `num_neighbors` has the
            reverse order, seeds first: `NeighborLoader(num_neighbors=[25, 10])` is `NeighborSampler([10, 25])`. A
            mapping draws that many edges of every type, in ascending order of the types: `{0: 10, 1: -1, 2: 0}`. It
            must name every type that occurs.
        replace: draw with replacement; nodes without in-edges get none.
        weighted: draw with probabilities proportional to the graph's `edge_weight` (never edges of weight 0). The
            blocks then have no weights. With `replace` the plain mean over drawn edges estimates the weighted mean;
            without, it does not, because a row drawn completely counts every edge once.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `wb.Smoothed(kappa)` or `wb.Nested(kappa)`: consecutive batches draw mostly the same neighbours of a
            node, so that a cache finds more of their features. `MiniBatch.step` stays the number of the batch. Batches
            of `Smoothed` read one variate per in-edge of a node, with `replace` one per in-edge and draw. None:
            independent batches.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1 (nor 0 in a mapping), or a seed that is not a
            64-bit integer.
        TypeError: a fanout that is neither an integer nor a mapping of integers, or another dependence.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> wb.NeighborSampler([1, 1]).sample(path, torch.tensor([3])).node_ids
    tensor([3, 2, 1])
    """

    fanouts: Sequence[Fanout]
    _: KW_ONLY
    replace: bool = False
    weighted: bool = False
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = True
    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", checked_fanouts(self.fanouts))
        check_seed(self.seed)
        check_dependence(self.dependence)

    def _draw(self, graph: Graph, rows: Candidates, *, layer: int, step: int) -> Drawn:
        return self.draw_from(graph, rows, self.fanouts[layer], layer=layer, step=step)

    def draw_from(
        self, graph: Graph, rows: Candidates, fanout: Fanout | Tensor, *, layer: int = 0, step: int = 0
    ) -> Drawn:
        """Draw from candidates with a fanout of the caller's, for samplers that are made of this one.

        Args:
            graph: the graph to sample from.
            rows: the candidates.
            fanout: edges to draw, for all rows or int64 [n], or by type; -1: all.
            layer: selects the random variates, with the step.
            step: number of the batch.
        """
        drawn_from = variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence)
        draw = partial(self._draw_rows, graph, drawn_from)
        drawn = draw(rows, fanout) if isinstance(fanout, int | Tensor) else draw_by_type(graph, rows, fanout, draw)
        if self.weighted or graph.edge_weight is None:
            return drawn
        return drawn._replace(weight=graph.edge_weight[drawn.positions])

    def _draw_rows(self, graph: Graph, drawn_from: Variates, rows: Candidates, fanout: int | Tensor) -> Drawn:
        if self.replace:
            _check_memory(rows, fanout)
        if self.weighted:
            return draw_weighted(graph, rows, fanout, replace=self.replace, variates=drawn_from)
        if is_mixed(self.dependence):  # in every batch of a group, or the first one would share few edges with others
            return draw_smallest(graph, rows, fanout, replace=self.replace, variates=drawn_from)
        positions = self.edge_ids or graph.edge_weight is not None or graph.edge_type is not None
        key = drawn_from.key
        return draw_uniform(rows, graph.indices, fanout, replace=self.replace, key=key, positions=positions)


def _check_memory(rows: Candidates, fanout: int | Tensor) -> None:
    """Check that draws with replacement, which the number of edges does not bound, fit into memory."""
    count = len(rows.nodes)
    draws = fanout * count if isinstance(fanout, int) else int(fanout[rows.degrees > 0].clamp(min=0).double().sum())
    what = f"drawing {draws} neighbours of {count} nodes (or groups of one type) with replacement"
    check_fits(what, _BYTES_PER_DRAW * draws, "use smaller fanouts, or replace=False")


def FullNeighborSampler(num_layers: int, *, edge_ids: bool = False) -> NeighborSampler:
    """Create a sampler that keeps all in-neighbours in every layer.

    A batch of many seeds grows to most of the graph within two or three layers. To evaluate a model of this library,
    call `workbench.full_neighbour_logits`, which gives the same outputs layer by layer in bounded memory.

    Args:
        num_layers: number of layers.
        edge_ids: whether the blocks contain raw-graph edge ids.

    Returns:
        A `NeighborSampler` with fanouts -1.

    Raises:
        ValueError: `num_layers` is not in 1 to 1000.
    """
    check_at_least("num_layers", num_layers, 1, most=MAX_LAYERS)
    return NeighborSampler([-1] * num_layers, edge_ids=edge_ids)


def induced_edges(graph: Graph, nodes: Tensor) -> int:
    """Count the edges between some nodes: those of the subgraph that they induce.

    Args:
        graph: the graph.
        nodes: int64 or int32 [n], node ids, each once.

    Returns:
        The number of edges, each direction counted.

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate nodes.
        IndexError: an id out of range.

    Source: Cooperative Minibatching, section 3.3.

    >>> path = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> induced_edges(path, torch.tensor([3, 0, 1, 2])), induced_edges(path, torch.tensor([0, 2, 3]))
    (3, 1)
    """
    check_graph(graph)
    nodes = check_ids("nodes", nodes, graph.num_nodes, unique=True).to(graph.device)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    chosen[nodes] = True
    return int(chosen[FullNeighborSampler(1).draw(graph, nodes, layer=0).sources].sum())

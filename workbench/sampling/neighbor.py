"""Neighbour sampling: draw up to `fanout` in-neighbours of every node, layer by layer.

Hamilton, Ying, Leskovec: "Inductive representation learning on large graphs", NeurIPS 2017.
"""

import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_at_least, check_seed, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, stream
from workbench.sampling.multilayer import Drawn, candidates, excluded_positions, sample_layers
from workbench.sampling.uniform import draw_uniform
from workbench.sampling.weighted import draw_weighted

_MAX_FANOUT, _MAX_LAYERS = 2**62, 1000
_BYTES_PER_DRAW = 4 + 8  # a source and its position


@dataclass(frozen=True)
class NeighborSampler:
    """Neighbour sampler: draws up to `fanout` in-neighbours of every node per layer, from the seeds to the inputs.

    A node's draw depends on (seed, step, layer, node) alone: it is the same for any number of threads, on any device
    and for any order of the seeds.

    Args:
        fanouts: neighbours to draw per layer, input layer first; -1: all.
        replace: draw with replacement; nodes without in-edges get none.
        weighted: draw with probabilities proportional to the graph's `edge_weight` (never edges of weight 0). The
            blocks then have no weights. With `replace` the plain mean over drawn edges estimates the weighted mean;
            without, it does not, because a row drawn completely counts every edge once.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1, or a seed that is not a 64-bit integer.
        TypeError: a fanout that is not an integer.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> wb.NeighborSampler([1, 1]).sample(path, torch.tensor([3])).node_ids
    tensor([3, 2, 1])
    """

    fanouts: Sequence[int]
    _: KW_ONLY
    replace: bool = False
    weighted: bool = False
    edge_ids: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", _as_integers(self.fanouts))
        check_seed(self.seed)
        invalid = [fanout for fanout in self.fanouts if not (fanout == -1 or 1 <= fanout <= _MAX_FANOUT)]
        if invalid or not 1 <= len(self.fanouts) <= _MAX_LAYERS:
            raise ValueError(
                f"fanouts are {list(self.fanouts[:9])}; pass one per layer (1 to {_MAX_LAYERS} layers), each at least "
                f"1 (and at most {_MAX_FANOUT}), or -1 for all"
            )

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds.

        Args:
            graph: the graph to sample from; the batch is created on its device.
            seeds: int64 or int32 node ids, each once.
            step: number of the batch; every step draws other neighbours.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn (target edges of link prediction
                and their reverses).

        Returns:
            The batch.

        Raises:
            TypeError: ids of another dtype.
            ValueError: duplicate seeds, or weights that are missing, negative or not finite.
            IndexError: an id out of range.
            CapacityError: drawing with replacement needs more memory than is available.
        """
        check_type(
            "graph", graph, Graph, "pass a Graph (graph_from_dgl and graph_from_pyg convert other libraries' graphs)"
        )
        check_seed(step, "step")
        excluded = excluded_positions(graph, exclude_edges)
        edge_weight = None if self.weighted else graph.edge_weight
        positions = self.edge_ids or edge_weight is not None or graph.edge_type is not None

        def draw(layer: int, nodes: Tensor) -> Drawn:
            rows = candidates(graph, nodes, excluded)
            key = stream(self.seed, Purpose.SAMPLING, step, layer)
            fanout = self.fanouts[layer]
            if self.replace and fanout > 0:
                what = f"drawing {fanout} neighbours of each of {len(nodes)} nodes with replacement"
                check_fits(what, _BYTES_PER_DRAW * fanout * len(nodes), "use smaller fanouts, or replace=False")
            if self.weighted:
                return draw_weighted(graph, rows, fanout, replace=self.replace, key=key)
            return draw_uniform(rows, graph.indices, fanout, replace=self.replace, key=key, positions=positions)

        return sample_layers(
            graph, seeds, len(self.fanouts), draw, step=step, edge_ids=self.edge_ids, edge_weight=edge_weight
        )


def FullNeighborSampler(num_layers: int, *, edge_ids: bool = False) -> NeighborSampler:
    """Create a sampler that keeps all in-neighbours in every layer.

    Args:
        num_layers: number of layers.
        edge_ids: whether the blocks contain raw-graph edge ids.

    Returns:
        A `NeighborSampler` with fanouts -1.

    Raises:
        ValueError: `num_layers` is not in 1 to 1000.
    """
    check_at_least("num_layers", num_layers, 1, most=_MAX_LAYERS)
    return NeighborSampler([-1] * num_layers, edge_ids=edge_ids)


def _type_names(fanouts: Any) -> str:
    """List the types of the fanouts, which their values don't show: 10.0 may be a float or a tensor."""
    values = fanouts if isinstance(fanouts, list | tuple) else [fanouts]
    return ", ".join(dict.fromkeys(type(value).__name__ for value in values))


def _as_integers(fanouts: Any) -> tuple[int, ...]:
    try:
        if isinstance(fanouts, str) or any(isinstance(fanout, bool) for fanout in fanouts):
            raise TypeError
        return tuple(operator.index(fanout) for fanout in fanouts)
    except TypeError:
        raise TypeError(
            f"fanouts are {fanouts!r} ({_type_names(fanouts)}); pass a list of integers, input layer first: [10, 25], "
            "or -1 for all neighbours"
        ) from None

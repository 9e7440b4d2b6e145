"""Neighbour sampling: for every node met, up to `fanout` of its in-neighbours.

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
from workbench.sampling.layers import Drawn, candidates, excluded_positions, sample_layers
from workbench.sampling.race import draw_weighted
from workbench.sampling.subset import draw_uniform

_MOST, _MOST_LAYERS = 2**62, 1000
_BYTES_PER_DRAW = 4 + 8  # a source and what picks it


def _kinds(fanouts: Any) -> str:
    """What cannot be read off the values: 10.0 may be a float or a tensor."""
    values = fanouts if isinstance(fanouts, list | tuple) else [fanouts]
    return ", ".join(dict.fromkeys(type(value).__name__ for value in values))


def _whole_numbers(fanouts: Any) -> tuple[int, ...]:
    try:
        if isinstance(fanouts, str) or any(isinstance(fanout, bool) for fanout in fanouts):
            raise TypeError
        return tuple(operator.index(fanout) for fanout in fanouts)
    except TypeError:
        raise TypeError(
            f"fanouts are {fanouts!r} ({_kinds(fanouts)}); pass a list of whole numbers, input layer first: [10, 25], "
            "or -1 for all neighbours"
        ) from None


@dataclass(frozen=True)
class NeighborSampler:
    """Draws a fixed number of in-neighbours of every node, layer by layer from the seeds inwards.

    A node's draw depends on (seed, step, layer, node) alone: it is the same for any number of threads, any device and
    any order of the seeds.

    Args:
        fanouts: neighbours to draw in each layer, input layer first; -1: all.
        replace: draw with replacement; nodes without in-edges stay without.
        weighted: draw in proportion to the graph's `edge_weight` (edges of weight 0 never). The blocks then carry no
            weights. With `replace` a plain mean over the drawn edges estimates the weighted mean; without, it does not:
            rows kept whole count each edge alike.
        edge_ids: whether the blocks carry raw-graph edge ids.
        seed: any whole number of 64 bits.

    Raises:
        ValueError: no fanouts, one that is neither positive nor -1, or a seed that is no whole number.
        TypeError: a fanout that is not a whole number.

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
        object.__setattr__(self, "fanouts", _whole_numbers(self.fanouts))
        check_seed(self.seed)
        wrong = [fanout for fanout in self.fanouts if not (fanout == -1 or 1 <= fanout <= _MOST)]
        if wrong or not 1 <= len(self.fanouts) <= _MOST_LAYERS:
            raise ValueError(
                f"fanouts are {list(self.fanouts[:9])}; give one per layer (1 to {_MOST_LAYERS} layers), each at least "
                f"1 (and at most {_MOST}), or -1 for all"
            )

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds.

        Args:
            graph: to sample from; the batch is made on its device.
            seeds: int64 or int32 node ids, each once.
            step: number of the batch; another step draws other neighbours.
            exclude_edges: raw-graph edge ids that must not be drawn (targets of link prediction, and their reverses).

        Raises:
            TypeError, ValueError, IndexError: ids of another dtype, twice, or out of range; weights that are missing,
                negative or not finite.
        """
        check_type(
            "graph", graph, Graph, "pass a Graph (graph_from_dgl and graph_from_pyg make one of other libraries')"
        )
        check_seed(step, "step")
        excluded = excluded_positions(graph, exclude_edges)
        carried = None if self.weighted else graph.edge_weight
        positions = self.edge_ids or carried is not None or graph.edge_type is not None

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
            graph, seeds, len(self.fanouts), draw, step=step, edge_ids=self.edge_ids, edge_weight=carried
        )


def FullNeighborSampler(num_layers: int, *, edge_ids: bool = False) -> NeighborSampler:
    """A sampler that keeps all in-neighbours in every layer.

    Args:
        num_layers: layers.
        edge_ids: whether the blocks carry raw-graph edge ids.

    Raises:
        ValueError: fewer than one layer, or more than 1000.
    """
    check_at_least("num_layers", num_layers, 1, most=_MOST_LAYERS)
    return NeighborSampler([-1] * num_layers, edge_ids=edge_ids)

"""LADIES: layer-dependent importance sampling, which draws a fixed number of nodes for a whole layer.

Zou et al.: "Layer-dependent importance sampling for training deep and large graph convolutional networks", NeurIPS
2019.
"""

import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose
from workbench.core.variates import Dependence, check_dependence, variates
from workbench.sampling.candidates import candidates
from workbench.sampling.excluding import ExcludingSampler
from workbench.sampling.fanouts import MAX_LAYERS
from workbench.sampling.inverse_weights import WEIGHTS
from workbench.sampling.labor import apply_edge_weight
from workbench.sampling.ladies_draw import IMPORTANCE, draw_layer_wise
from workbench.sampling.levels import Levels, check_factors
from workbench.sampling.sampler import Drawn


@dataclass(frozen=True, eq=False)
class LadiesSampler(ExcludingSampler):
    """LADIES sampler: draws up to n distinct nodes per layer, and all edges from them to the layer above.

    The candidates are the in-neighbours of all nodes of the layer above. They are drawn one after the other without
    replacement, each with probability proportional to its importance p_t among those that remain, times its factor.
    Nodes of the layer above stay sources of the block, as in every batch, but their edges are kept only if they are
    drawn. If there are at most n candidates, all edges are kept.

    Args:
        num_nodes: nodes to draw per layer, **input layer first**; -1: all.
        importance: p_t. "edges": the number of edges from t to the layer above, as in the data-placement paper's
            implementation; "squared": Σ 1 / d_s² over those edges, d_s the in-edges of the destination: the squared
            norm of the column of the row-normalised adjacency matrix, as in LADIES.
        factors: float32 or float64 [num_nodes], by which p_t is multiplied (`wb.locality_factors`): locality-aware
            sampling; None: 1.
        weights: the blocks' `edge_weight`. "mean", "sum": inverse inclusion probabilities, given the arrival time of
            the first candidate that is not drawn, with which the mean over the edges drawn, or the sum, is an unbiased
            estimate of that over all in-neighbours. "ratio": the same with mean 1 in every row, with less variance and
            a bias. "published": 1 / p_t with mean 1 in every row, LADIES' own, with a bias.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`: the variates of consecutive batches depend on each other;
            None: independent batches.

    A node's row depends on the other nodes of its layer (`rows_are_independent` is False). The weights are multiplied
    by the graph's `edge_weight`, if it has any.

    Raises:
        ValueError: no layers, a number of nodes that is neither positive nor -1, an unknown importance or weights,
            factors out of range, or a seed that is not a 64-bit integer.
        TypeError: a number of nodes that is not an integer, factors of another type, or another `dependence`.

    Source: Zou et al., "Layer-dependent importance sampling for training deep and large graph convolutional networks",
    NeurIPS 2019; inclusion probabilities: Cohen, Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.

    >>> import torch, workbench as wb
    >>> star = wb.Graph.from_edges([2, 3, 4, 2, 2], [0, 0, 0, 1, 1], num_nodes=5)
    >>> batch = wb.LadiesSampler([1]).sample(star, torch.tensor([0, 1]))
    >>> batch.num_inputs  # the seeds and one node
    3
    """

    num_nodes: Sequence[int]
    _: KW_ONLY
    importance: str = "edges"
    factors: Tensor | None = None
    weights: str = "mean"
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = False
    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_nodes", _checked_numbers(self.num_nodes))
        check_choice("importance", self.importance, IMPORTANCE)
        check_choice("weights", self.weights, (*WEIGHTS, "published"))
        if self.factors is not None:
            check_factors(self.factors)
        check_seed(self.seed)
        check_dependence(self.dependence)

    @property
    def num_layers(self) -> int:
        """Number of layers: one per number of nodes."""
        return len(self.num_nodes)

    @cached_property
    def _levels(self) -> Levels | None:
        return None if self.factors is None else Levels.of(self.factors)

    def _draw(self, graph: Graph, excluded: Tensor | None, nodes: Tensor, *, layer: int, step: int) -> Drawn:
        """Draw in-edges of int64 [n] nodes on the graph's device, except at some CSR positions, which ascend."""
        drawn = draw_layer_wise(
            graph.indices,
            candidates(graph, nodes, excluded),
            self.num_nodes[layer],
            num_nodes=graph.num_nodes,
            levels=None if self._levels is None else self._levels.on(graph),
            importance=self.importance,
            weights=self.weights,
            variates=variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence),
        )
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)


def _checked_numbers(numbers: Sequence[int]) -> tuple[int, ...]:
    try:
        checked = tuple(operator.index(number) for number in numbers)
    except TypeError:
        raise TypeError(
            f"num_nodes is {numbers!r}; pass a list of integers, nodes to draw per layer, input layer first: [512, 512]"
        ) from None
    check_at_least("number of layers", len(checked), 1, most=MAX_LAYERS)
    for number in checked:
        if number != -1:
            check_at_least("num_nodes", number, 1)
    return checked

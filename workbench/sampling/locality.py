"""Locality-aware sampling: neighbours whose rows a device has buffered are drawn more often, without bias.

Song, Jiang: "Rethinking graph data placement for graph neural network training on multiple GPUs".
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial

from torch import Tensor

from workbench.core.errors import check_choice, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose
from workbench.core.variates import Dependence, check_dependence, variates
from workbench.sampling.candidates import candidates
from workbench.sampling.excluding import ExcludingSampler
from workbench.sampling.fanouts import Fanout, checked_fanouts
from workbench.sampling.inverse_weights import WEIGHTS
from workbench.sampling.labor import apply_edge_weight
from workbench.sampling.levels import Levels, check_factors
from workbench.sampling.locality_biased import draw_local_biased
from workbench.sampling.locality_draw import draw_local
from workbench.sampling.sampler import Drawn
from workbench.sampling.typed import draw_by_type


@dataclass(frozen=True, eq=False)
class LocalitySampler(ExcludingSampler):
    """Locality-aware sampler: draws in-neighbours with probabilities proportional to a factor per node.

    A node of more than k in-edges, for fanout k, keeps the edge from t with probability P_t = min(1, c · φ_t), φ_t the
    factor of t, independently of the others (Poisson sampling). c makes the expected number of edges k. A row of at
    most k edges is kept whole. All destinations of a layer share one variate per source, as those of `LaborSampler`: if
    all factors are equal, the edges are those of LABOR-0.

    Args:
        fanouts: neighbours to draw per layer, **input layer first**; -1: all. A mapping from edge type to number draws
            every type by itself.
        factors: float32 or float64 [num_nodes], φ: at most 256 different values, 2⁻²⁰ to 2²⁰. `wb.locality_factors`
            computes them from the ids of a device's buffer.
        weights: the blocks' `edge_weight`, proportional to 1 / P_t in every row. "mean": Σ weight · h / (edges drawn)
            is an unbiased estimate of the mean over all in-neighbours; "sum": Σ weight · h is one of the sum; "ratio":
            the weights have mean 1 in every row, which estimates the mean with less variance and a bias of order 1 / k.
        biased: the paper's form instead: exactly min(k, in-edges) successive draws without replacement, each
            proportional to the remaining factors, without weights.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`: the variates of consecutive batches depend on each other;
            None: independent batches.

    The weights are multiplied by the graph's `edge_weight`, if it has any.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1, factors out of range or too many different
            ones, unknown `weights`, or a seed that is not a 64-bit integer.
        TypeError: a fanout that is neither an integer nor a mapping of integers, factors of another type, or another
            `dependence`.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs", whose
    draws are biased; weights by inverse inclusion probabilities: Horvitz, Thompson, JASA 47(260), 1952.

    >>> import torch, workbench as wb
    >>> star = wb.Graph.from_edges([1, 2, 3, 4], [0, 0, 0, 0])
    >>> factors = wb.locality_factors(star, torch.tensor([2]), factor=1000)  # row 2 is buffered
    >>> batch = wb.LocalitySampler([1], factors).sample(star, torch.tensor([0]))
    >>> batch.node_ids, batch.blocks[0].edge_weight
    (tensor([0, 2]), tensor([0.2508]))
    """

    fanouts: Sequence[Fanout]
    factors: Tensor
    _: KW_ONLY
    weights: str = "mean"
    biased: bool = False
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = True
    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", checked_fanouts(self.fanouts))
        check_factors(self.factors)
        check_choice("weights", self.weights, WEIGHTS)
        check_seed(self.seed)
        check_dependence(self.dependence)

    @property
    def num_layers(self) -> int:
        """Number of layers: one per fanout."""
        return len(self.fanouts)

    @cached_property
    def _levels(self) -> Levels:
        return Levels.of(self.factors)

    def _draw(self, graph: Graph, excluded: Tensor | None, nodes: Tensor, *, layer: int, step: int) -> Drawn:
        """Draw in-edges of int64 [n] nodes on the graph's device, except at some CSR positions, which ascend."""
        levels, fanout = self._levels.on(graph), self.fanouts[layer]
        drawn_from = variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence)
        rows = candidates(graph, nodes, excluded)
        if self.biased:
            draw = partial(draw_local_biased, graph.indices, levels, drawn_from)
        else:
            positions = self.edge_ids or graph.edge_weight is not None or graph.edge_type is not None
            draw = partial(draw_local, graph.indices, levels, drawn_from, weights=self.weights, positions=positions)
        drawn = draw(rows, fanout) if isinstance(fanout, int) else draw_by_type(graph, rows, fanout, draw)
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)

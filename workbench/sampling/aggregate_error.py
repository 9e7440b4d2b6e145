"""`aggregate_error`: bias and variance of a sampler's estimates of mean aggregates, by repeated draws."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_finite
from workbench.core.graph import Graph
from workbench.sampling.drawn import Drawn
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.sampling.sampler import Sampler, check_graph, check_sampler


@dataclass(frozen=True, eq=False)
class AggregateError:
    """Estimates of aggregates beside the exact ones.

    Args:
        exact: float64 [num_nodes, width], means over all in-neighbours.
        mean: float64 [num_nodes, width], means of the estimates.
        variance: float64 [num_nodes, width], unbiased sample variances of an estimate.
        draws: number of estimates.
    """

    exact: Tensor
    mean: Tensor
    variance: Tensor
    draws: int

    @cached_property
    def total_variance(self) -> float:
        """Variance of an estimate, summed over the width, averaged over the nodes."""
        return float(self.variance.sum(1).mean())

    @cached_property
    def squared_bias(self) -> float:
        """Squared bias of an estimate, summed and averaged likewise, without the share that the finite number of draws
        contributes; an unbiased sampler's is 0 up to chance, and may be below it.
        """
        return float(((self.mean - self.exact).square() - self.variance / self.draws).sum(1).mean())

    @property
    def deviations(self) -> Tensor:
        """float64 [num_nodes, width], (mean − exact) in standard errors; 0 where the estimates are exact."""
        apart, error = self.mean - self.exact, (self.variance / self.draws).sqrt()
        tiny = 1e-7 * (1 + self.exact.abs())  # weights are float32
        return torch.where(apart.abs() <= tiny, 0.0, apart / error)


def aggregate_error(
    graph: Graph, nodes: Tensor, x: Tensor, *, sampler: Sampler, draws: int = 100, layer: int = 0
) -> AggregateError:
    """Estimate mean aggregates of some nodes again and again, each time with other neighbours.

    The estimate is what a layer with mean aggregation computes: Σ edge weight · x / (edges drawn), 0 without edges.

    Args:
        graph: the graph to sample from.
        nodes: int64 or int32 [n], destinations, which are sampled together, as in one batch.
        x: floating point [graph.num_nodes, width], features.
        sampler: any sampler whose neighbours are edges of the graph.
        draws: number of batches, steps 0, 1, ….
        layer: of the sampler.

    Returns:
        Exact aggregates, means and variances.

    Raises:
        TypeError: an argument of another type.
        ValueError: fewer than 2 draws, or `x` of another length.

    >>> star = Graph.from_edges([1, 2, 3], [0, 0, 0])
    >>> import workbench as wb
    >>> x = torch.tensor([[0.0], [1.0], [2.0], [6.0]])
    >>> found = aggregate_error(star, torch.tensor([0]), x, sampler=wb.NeighborSampler([1]), draws=1000)
    >>> found.exact.item(), round(found.mean.item(), 1)  # of 1, 2 and 6
    (3.0, 3.0)
    """
    check_graph(graph)
    check_sampler(sampler)
    check_at_least("draws", draws, 2)
    check_features(graph, x)
    x = x.to(graph.device, torch.float64)
    exact = mean_aggregate(FullNeighborSampler(1).draw(graph, nodes, layer=0), x)
    first, second = torch.zeros_like(exact), torch.zeros_like(exact)
    for step in range(draws):  # of the differences from the exact values, which are small
        apart = mean_aggregate(sampler.draw(graph, nodes, layer=layer, step=step), x) - exact
        first += apart
        second += apart.square()
    mean = first / draws
    variance = (second - draws * mean.square()).clamp(min=0) / (draws - 1)
    return AggregateError(exact, exact + mean, variance, draws)


def check_features(graph: Graph, x: Tensor) -> None:
    """Check that features have one row per node.

    Raises:
        ValueError: they have another shape, or contain NaN or infinity.
    """
    if x.dim() != 2 or x.shape[0] != graph.num_nodes:
        raise ValueError(f"x has shape {tuple(x.shape)}; pass one row per node, [{graph.num_nodes}, width]")
    check_finite("x", x)


def mean_aggregate(drawn: Drawn, x: Tensor) -> Tensor:
    """Compute what a layer with mean aggregation computes: Σ edge weight · x / (edges drawn), 0 without edges.

    Args:
        drawn: rows of a sampler.
        x: float64 [num_nodes, width].

    Returns:
        float64 [rows, width].
    """
    counts = drawn.indptr.diff()
    row = torch.repeat_interleave(torch.arange(len(counts), device=x.device), counts)
    terms = x[drawn.sources.long()]
    if drawn.weight is not None:
        terms = terms * drawn.weight.double()[:, None]
    sums = torch.zeros(len(counts), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, row, terms)
    return sums / counts.clamp(min=1)[:, None]

"""`aggregate_error`: bias and variance of a sampler's estimates of mean aggregates, by repeated draws."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_finite
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream, uniform
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.sampling.sampler import Drawn, Sampler, check_graph, check_sampler


@dataclass(frozen=True, eq=False)
class AggregateError:
    """Estimates of aggregates beside the exact ones.

    Args:
        exact: float64 [num_nodes, width], means over all in-neighbours.
        mean: float64 [num_nodes, width], means of the estimates.
        variance: float64 [num_nodes, width], unbiased sample variances of an estimate.
        draws: number of estimates.
        scale: largest magnitude of a feature; estimates within the rounding of float32 weights are exact.
    """

    exact: Tensor
    mean: Tensor
    variance: Tensor
    draws: int
    scale: float

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
        tiny = 1e-7 * (self.scale + self.exact.abs())  # weights are float32
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
    return AggregateError(exact, exact + mean, variance, draws, _largest(x))


def check_features(graph: Graph, x: Tensor) -> None:
    """Check that features have one row per node.

    Raises:
        ValueError: they have another shape, or contain NaN or infinity.
    """
    if x.dim() != 2 or x.shape[0] != graph.num_nodes:
        raise ValueError(f"x has shape {tuple(x.shape)}; pass one row per node, [{graph.num_nodes}, width]")
    check_finite("x", x)


def mean_aggregate(drawn: Drawn, x: Tensor) -> Tensor:
    """Compute float64 [rows, width], a layer's mean aggregate: Σ edge weight · x / (edges drawn), 0 without edges."""
    counts = drawn.indptr.diff()
    row = torch.repeat_interleave(torch.arange(len(counts), device=x.device), counts)
    terms = x[drawn.sources.long()]
    if drawn.weight is not None:
        terms = terms * drawn.weight.double()[:, None]
    sums = torch.zeros(len(counts), x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, row, terms)
    return sums / counts.clamp(min=1)[:, None]


MOST_SIGMAS = 37.0
"""Larger values cannot be told apart: their probability under no bias is below the least float64."""

_ROUNDING = 1e-6  # of a sum, relative to its largest terms; weights are float32


def bias_sigma(
    graph: Graph,
    nodes: Tensor,
    x: Tensor,
    *,
    sampler: Sampler,
    draws: int = 400,
    projections: int = 8,
    layer: int = 0,
    seed: int = 0,
) -> float:
    """Test whether a sampler's estimates of mean aggregates are unbiased, over all nodes and features at once.

    The errors of a draw, a matrix of nodes and features, are summed once as they are, and otherwise with random signs
    per node along random directions of the features. The means of these projections over the draws are compared with 0
    by Hotelling's T². A test per node would be wrong where a weight is rare: an edge that is drawn once in a million
    times, or missed as rarely, adds to the expected value and not to the variance of a few hundred draws. In a
    projection such nodes have little weight.

    Args:
        graph: the graph to sample from.
        nodes: int64 or int32 [n], destinations, which are sampled together, as in one batch.
        x: floating point [graph.num_nodes, width], features.
        sampler: any sampler whose neighbours are edges of the graph; weights as for `aggregate_error`.
        draws: number of batches, steps 0, 1, …; more than twice the projections.
        projections: number of projections; all but the first are random.
        layer: of the sampler.
        seed: of the projections.

    Returns:
        The p-value as a two-sided deviation of a normal variate in standard deviations, from 0 to 37. An unbiased
        sampler's exceeds 4 with a probability of 6e-5.

    Raises:
        TypeError: an argument of another type.
        ValueError: too few draws, no projections, or `x` of another length.

    Source: Hotelling, "The generalization of Student's ratio", Annals of Mathematical Statistics 2(3), 1931.

    >>> star = Graph.from_edges([1, 2, 3], [0, 0, 0])
    >>> import workbench as wb
    >>> x = torch.tensor([[0.0], [1.0], [2.0], [6.0]])
    >>> bias_sigma(star, torch.tensor([0]), x, sampler=wb.NeighborSampler([1])) < 4
    True
    """
    check_graph(graph)
    check_sampler(sampler)
    check_at_least("projections", projections, 1)
    check_at_least("draws", draws, 2 * projections + 1)
    check_features(graph, x)
    x = x.to(graph.device, torch.float64)
    directions = _random((x.shape[1], projections), seed, 0).to(x)
    signs = _random((len(nodes), projections), seed, 1).sign().to(x)
    directions[:, 0], signs[:, 0] = 1.0, 1.0
    x = x @ directions / max(1, x.shape[1]) ** 0.5
    exact = mean_aggregate(FullNeighborSampler(1).draw(graph, nodes, layer=0), x)
    errors = torch.stack(
        [
            ((mean_aggregate(sampler.draw(graph, nodes, layer=layer, step=step), x) - exact) * signs).sum(0)
            for step in range(draws)
        ]
    )
    return _sigmas(errors.cpu(), _ROUNDING * (_largest(x) + float(exact.abs().sum())))


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _random(shape: tuple[int, int], seed: int, number: int) -> Tensor:
    """float64, independent, symmetric around 0."""
    return uniform(stream(seed, Purpose.FEATURES, number), torch.arange(shape[0] * shape[1])).view(shape) - 0.5


def _sigmas(errors: Tensor, rounding: float) -> float:
    """Hotelling's T² of [draws, projections] in the directions in which the draws differ."""
    from scipy.stats import f, norm

    draws, mean = len(errors), errors.mean(0)
    values, vectors = torch.linalg.eigh(errors.T.cov())
    varied = values > max(rounding**2, float(values.max()) * 1e-12)
    along, number = vectors.T @ mean, int(varied.sum())
    if float(along[~varied].abs().sum()) > rounding:
        return MOST_SIGMAS  # the same error in every draw
    if not number:
        return 0.0
    squared = float(draws * (along[varied].square() / values[varied]).sum())
    p = float(f.sf(squared * (draws - number) / (number * (draws - 1)), number, draws - number))
    return min(MOST_SIGMAS, float(norm.isf(p / 2)))

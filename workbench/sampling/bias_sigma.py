"""`bias_sigma`: a test of whether a sampler's estimates of mean aggregates are unbiased."""

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream, uniform
from workbench.sampling.aggregate_error import check_features, mean_aggregate
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.sampling.sampler import Sampler, check_graph, check_sampler

MOST_SIGMAS = 37.0
"""Larger values cannot be told apart: their probability under no bias is below the least float64."""
_ROUNDING = 1e-6  # of sums of terms of magnitude 1; weights are float32


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
    return _sigmas(errors.cpu(), _ROUNDING * float(1 + exact.abs().sum()))


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

"""Specification of a stand-in: the original's published statistics, and targets for the generator."""

import math
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import derive_key

Splits = tuple[int, int, int]


@dataclass(frozen=True)
class Published:
    """Statistics of the original with their source; None: not published there, so the target is our choice.

    Args:
        source: the source of every number.
        nodes: number of nodes; entities of a knowledge graph.
        edges: number of stored edges; triples of all splits of a knowledge graph.
        features: number of channels.
        classes: number of classes or labels; relations of a knowledge graph.
        splits: numbers of training, validation and test nodes (triples).
        largest_degree: most neighbours of a node in the undirected graph.
        degree_quantiles: pairs (share of nodes, degree) of the undirected graph.
        clustering: mean local clustering coefficient of the undirected graph, 0 for nodes with fewer than 2 neighbours.
        reciprocity: share of edges whose reverse exists.
        homophily: share of edges between nodes of the same class.
    """

    source: str
    nodes: int
    edges: int
    features: int | None = None
    classes: int | None = None
    splits: Splits | None = None
    largest_degree: int | None = None
    degree_quantiles: tuple[tuple[float, int], ...] | None = None
    clustering: float | None = None
    reciprocity: float | None = None
    homophily: float | None = None


@dataclass(frozen=True)
class Tolerance:
    """Tolerances of a stand-in's targets; nodes, features, classes and splits must be met exactly.

    Args:
        edges: relative tolerance of the number of edges, after duplicates are merged.
        degree: relative tolerance of degree quantiles and the largest degree, in addition to ± 1.
        clustering: absolute tolerance.
        reciprocity: absolute tolerance.
        homophily: absolute tolerance.
    """

    edges: float = 0.01
    degree: float = 0.05
    clustering: float = 0.03
    reciprocity: float = 0.005
    homophily: float = 0.05


@dataclass(frozen=True)
class DegreeLaw:
    """The degree distribution of the full graph.

    Args:
        knots: pairs (degree, share of nodes with at most that degree), both ascending; the last one is the largest
            degree, with share 1.
        population: number of nodes of the full graph.
    """

    knots: tuple[tuple[int, float], ...]
    population: int

    @property
    def largest(self) -> int:
        """The largest degree of the full graph."""
        return self.knots[-1][0]

    @classmethod
    def lognormal(cls, *, mean: float, sigma: float, population: int) -> "DegreeLaw":
        """Create a discretized log-normal distribution, whose largest degree is the quantile 1 - 1 / population.

        Args:
            mean: mean degree.
            sigma: standard deviation of the degree's logarithm.

        Source: Kolda, Pinar, Plantenga, Seshadhri (SIAM J. Sci. Comput. 2014), who fit it for BTER.
        """
        mu = math.log(mean) - sigma**2 / 2
        largest = round(math.exp(mu + sigma * _NORMAL.inv_cdf(1 - 1 / population)))
        degrees = sorted({round(largest ** (i / _KNOTS)) for i in range(_KNOTS)} - {largest})
        shares = [_NORMAL.cdf((math.log(degree + 0.5) - mu) / sigma) for degree in degrees]
        return cls((*zip(degrees, shares, strict=True), (largest, 1.0)), population)

    @classmethod
    def counted(cls, at_most: tuple[tuple[int, int], ...]) -> "DegreeLaw":
        """Create the distribution of a real graph from its cumulative degree counts.

        Args:
            at_most: pairs (degree, number of nodes with at most that degree), both ascending; the last one counts all
                nodes.
        """
        population = at_most[-1][1]
        return cls(tuple((degree, count / population) for degree, count in at_most), population)

    def ranked(self, count: int) -> np.ndarray:
        """Compute the degrees at evenly spaced ranks, not yet rounded: float64 [count], ascending.

        Between knots the logarithm of the degree is linear in that of the share of nodes above, as in a power law. A
        sample of fewer nodes than the population has the same quantiles; its largest degree is that of the middle of
        the top population / count ranks.
        """
        step = self.population / count
        above = np.arange(count - 1, -1, -1) * step + (step - 1) / 2
        degrees = [degree + 0.5 for degree, _ in self.knots]
        shares = [1 - share for _, share in self.knots]
        # A node exceeds a knot's degree if fewer nodes are above it than above the knot: hence half a degree more.
        degrees[-1], shares[-1] = float(self.largest), 0.0
        if shares[0] < 1:
            degrees, shares = [degrees[0] / 5 if degrees[0] < 1 else 0.5, *degrees], [1.0, *shares]
        floor = 1 / self.population
        rising = np.log(np.array(shares[::-1]) + floor)
        return np.exp(np.interp(np.log(above / self.population + floor), rising, np.log(degrees[::-1])))


@dataclass(frozen=True)
class GraphShape:
    """Targets of an undirected graph's structure.

    Args:
        degrees: the degree distribution.
        clustering: target of the mean local clustering coefficient.
        homophily: target of the share of edges between nodes of the same class; blocks alone give about ∛clustering.
        class_skew: class c has a share of the nodes proportional to (1 + c)^-skew.
        largest_block: nodes in the largest affinity block; nodes of higher degree have less clustering.
        chance_clustering: part of `clustering` that arises outside blocks, from small classes and large degrees.
    """

    degrees: DegreeLaw
    clustering: float
    homophily: float
    class_skew: float = 0.7
    largest_block: int = 256
    chance_clustering: float = 0.0

    @property
    def block_clustering(self) -> float:
        """The part of `clustering` that affinity blocks must provide."""
        return self.clustering - self.chance_clustering


@dataclass(frozen=True)
class Authorship:
    """Authors and institutions of a heterogeneous stand-in.

    Args:
        authors: number of nodes of type 1.
        institutions: number of nodes of type 2.
        writes: number of edges author → paper, of type 1.
        affiliations: number of edges author → institution, of type 2.
        papers_per_author: degree distribution of authors.
        authors_per_paper: degree distribution of papers.
        authors_per_institution: degree distribution of institutions.
    """

    authors: int
    institutions: int
    writes: int
    affiliations: int
    papers_per_author: DegreeLaw
    authors_per_paper: DegreeLaw
    authors_per_institution: DegreeLaw


@dataclass(frozen=True)
class StandIn:
    """A stand-in for node classification.

    Args:
        name: `synthetic-` and the original's name.
        nodes: number of nodes of the full graph; papers of a heterogeneous one.
        edges: number of stored edges among them; both directions of an undirected graph count.
        features: number of channels.
        classes: number of classes, or of labels with `multi_label`.
        splits: numbers of training, validation and test nodes.
        shape: targets of the undirected graph's structure.
        signal: length of a class's mean feature, relative to noise of variance 1 per channel.
        published: statistics of the original.
        reciprocity: share of edges whose reverse exists; 1: undirected, below: citations.
        default_scale: scale that is built by default.
        multi_label: nodes have several labels.
        only_split_labelled: nodes outside the split have label -1.
        feature_dtype: dtype of the features.
        tolerance: tolerances of the targets.
        authors: authors and institutions of a heterogeneous graph; None: the graph is homogeneous.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    splits: Splits
    shape: GraphShape
    signal: float
    published: Published
    reciprocity: float = 1.0
    default_scale: float = 1.0
    multi_label: bool = False
    only_split_labelled: bool = False
    feature_dtype: torch.dtype = torch.float32
    tolerance: Tolerance = field(default_factory=Tolerance)
    authors: Authorship | None = None

    @property
    def directed(self) -> bool:
        return self.reciprocity < 1


@dataclass(frozen=True)
class KnowledgeStandIn:
    """A stand-in for link prediction on a knowledge graph.

    Args:
        name: `synthetic-` and the original's name.
        entities: number of entities of the full graph.
        relations: number of relations at every scale.
        splits: numbers of training, validation and test triples.
        heads: distribution of how often an entity is a head.
        tails: distribution of how often an entity is a tail.
        relation_counts: distribution of triples over relations.
        published: statistics of the original.
        default_scale: scale that is built by default.
        tolerance: tolerances of the targets.
    """

    name: str
    entities: int
    relations: int
    splits: Splits
    heads: DegreeLaw
    tails: DegreeLaw
    relation_counts: DegreeLaw
    published: Published
    default_scale: float = 1.0
    tolerance: Tolerance = field(default_factory=Tolerance)


def scaled(count: int, scale: float) -> int:
    """Scale a count and round it, to at least 1."""
    return max(1, round(count * scale))


def scaled_splits(splits: Splits, scale: float, limit: int) -> Splits:
    """Scale the sizes of a split; cumulative sizes are rounded, so that a split of all nodes remains one.

    Args:
        splits: sizes at scale 1.
    """
    ends, total = [], 0
    for part in splits:
        total += part
        ends.append(min(limit, round(total * scale)))
    return ends[0], ends[1] - ends[0], ends[2] - ends[1]


class Draw(IntEnum):
    """Purpose of a random stream."""

    CLASS = 1
    NODE_ID = 2
    BLOCK = 3
    SAME_CLASS = 4
    FREE = 5
    SHARE = 6
    TIME = 7
    RECIPROCITY = 8
    SPLIT = 9
    CENTRE = 10
    NOISE = 11
    LABEL = 12
    AUTHOR = 13
    INSTITUTION = 14
    ENTITY = 15
    RELATION = 16
    SWITCH = 17


def key_of(name: str, seed: int, draw: Draw, *more: int) -> int:
    """Derive the key of a random stream.

    Args:
        more: further numbers that distinguish streams of the same purpose.

    Returns:
        The key, for the hash functions of `workbench.kernels.hash`.

    >>> key_of("a", 0, Draw.TIME) != key_of("b", 0, Draw.TIME)
    True
    """
    return derive_key(seed, zlib.crc32(name.encode()), draw, *more)


_KNOTS = 64

_NORMAL = NormalDist()

# Bound of a node's neighbours, as a share of all nodes: beyond, simple edges run out before its degree is met.
_MAX_SHARE = 0.25


def _rounded(raw: np.ndarray, factor: float, min_degree: int, max_degree: int) -> np.ndarray:
    return np.clip(np.floor(raw * factor + 0.5), min_degree, max_degree).astype(np.int64)


def _fit(raw: np.ndarray, total: int, min_degree: int, max_degree: int) -> np.ndarray:
    """Scale the degrees by bisection until they sum to at most `total`, and hardly less."""
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if _rounded(raw, middle, min_degree, max_degree).sum() > total:
            high = middle
        else:
            low = middle
    return _rounded(raw, low, min_degree, max_degree)


def _largest(law: DegreeLaw, nodes: int, total: int, max_neighbours: int | None) -> int:
    at_rank = round(float(law.ranked(nodes)[-1]))
    if max_neighbours is None:
        return at_rank
    simple = max(law.largest * math.sqrt(nodes / law.population), math.sqrt(total))
    return min(at_rank, round(simple), int(_MAX_SHARE * max_neighbours))


def degree_sequence(
    law: DegreeLaw, nodes: int, total: int, *, min_degree: int = 1, max_neighbours: int | None
) -> Tensor:
    """Compute degrees that follow a distribution and sum to `total`: int64 [nodes], ascending.

    Args:
        total: sum of the degrees; those of the distribution are scaled by a common factor to meet it.
        min_degree: smallest degree.
        max_neighbours: number of possible neighbours of a node: no degree exceeds a quarter of it, nor both √total and
            √(nodes / population) times the distribution's largest degree, because simple graphs can't meet more. None:
            no such bound.
    """
    raw = law.ranked(nodes)
    max_degree = _largest(law, nodes, total, max_neighbours)
    if not min_degree * nodes <= total <= max_degree * nodes // 2:
        raise ValueError(
            f"{nodes} nodes with a mean degree of {total / nodes:.1f} require larger degrees than {max_degree}, the "
            "limit for a simple graph; pass a larger scale"
        )
    if min_degree * (nodes - 1) + max_degree > total:
        raise ValueError(
            f"{nodes} nodes with a mean degree of {total / nodes:.1f} are too few for a largest degree of "
            f"{max_degree}; pass a larger scale"
        )
    degrees = _fit(raw[:-1], total - max_degree, min_degree, max_degree)
    missing = total - max_degree - int(degrees.sum())
    below = np.flatnonzero(degrees < max_degree)
    degrees[below[np.linspace(0, len(below) - 1, missing).astype(np.int64)]] += 1
    return torch.from_numpy(np.append(np.sort(degrees), max_degree))

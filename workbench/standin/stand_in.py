"""Specification of a stand-in: the original's published statistics, and targets for the generator."""

import zlib
from dataclasses import dataclass, field
from enum import IntEnum

import torch

from workbench.kernels.hash import derive_key
from workbench.standin.degree_law import DegreeLaw

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

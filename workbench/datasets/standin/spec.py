"""What a stand-in copies: the original's published figures, and the targets that the generator must meet."""

from dataclasses import dataclass, field

import torch

from workbench.datasets.standin.degrees import DegreeLaw

Splits = tuple[int, int, int]


@dataclass(frozen=True)
class Published:
    """Figures of the original with their source; None: not published there, so that the target is a choice made here.

    Args:
        source: where each figure comes from.
        nodes: of the graph; entities of a knowledge graph.
        edges: stored; triples of all splits of a knowledge graph.
        features: channels.
        classes: classes or labels; relations of a knowledge graph.
        splits: training, validation, test nodes (triples).
        largest_degree: neighbours in the undirected graph.
        degree_quantiles: pairs (share of nodes, degree) of the undirected graph.
        clustering: mean local clustering coefficient of the undirected graph, 0 for nodes with fewer than 2 neighbours.
        reciprocity: share of edges whose reverse exists.
        homophily: share of edges that join nodes of one class.
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
    """How far a stand-in may be from its targets; nodes, features, classes and splits must be met exactly.

    Args:
        edges: relative, after duplicates are merged.
        degree: relative, of quantiles and of the largest degree, beside one neighbour more or less.
        clustering: absolute.
        reciprocity: absolute.
        homophily: absolute.
    """

    edges: float = 0.01
    degree: float = 0.05
    clustering: float = 0.03
    reciprocity: float = 0.005
    homophily: float = 0.05


@dataclass(frozen=True)
class Recipe:
    """Shape of an undirected graph.

    Args:
        degrees: how degrees are distributed.
        clustering: target of the mean local clustering coefficient.
        homophily: target of the share of edges that join nodes of one class; blocks alone give about ∛clustering.
        class_skew: class c has a share in proportion to (1 + c)^−skew of the nodes.
        largest_block: nodes in the largest affinity block; nodes of higher degree cluster less.
        chance_clustering: part of `clustering` that arises without blocks, where classes are small and degrees large.
    """

    degrees: DegreeLaw
    clustering: float
    homophily: float
    class_skew: float = 0.7
    largest_block: int = 256
    chance_clustering: float = 0.0

    @property
    def block_clustering(self) -> float:
        """Part of `clustering` that affinity blocks must give."""
        return self.clustering - self.chance_clustering


@dataclass(frozen=True)
class AuthorParts:
    """What joins the papers of a typed stand-in: who writes them, and where.

    Args:
        authors: nodes of type 1.
        institutions: nodes of type 2.
        writes: edges author → paper, of type 1.
        affiliations: edges author → institution, of type 2.
        papers_per_author: distribution.
        authors_per_paper: distribution.
        authors_per_institution: distribution.
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
        name: `synthetic-` and the original's.
        nodes: of the full graph; papers of a typed one.
        edges: stored edges among them; both directions of an undirected graph count.
        features: channels.
        classes: classes, or labels with `multi_label`.
        splits: training, validation, test nodes.
        recipe: of the undirected graph.
        signal: length of a class's mean feature, where each channel has noise of variance 1.
        published: figures of the original.
        reciprocity: share of edges whose reverse exists; 1: undirected, else citations.
        default_scale: size built unless one is asked for.
        multi_label: several labels a node.
        only_split_labelled: nodes outside the split have label −1.
        feature_dtype: of the features.
        tolerance: of the targets.
        authors: of a typed graph.
    """

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    splits: Splits
    recipe: Recipe
    signal: float
    published: Published
    reciprocity: float = 1.0
    default_scale: float = 1.0
    multi_label: bool = False
    only_split_labelled: bool = False
    feature_dtype: torch.dtype = torch.float32
    tolerance: Tolerance = field(default_factory=Tolerance)
    authors: AuthorParts | None = None

    @property
    def directed(self) -> bool:
        return self.reciprocity < 1


@dataclass(frozen=True)
class KnowledgeStandIn:
    """A stand-in for link prediction on a knowledge graph.

    Args:
        name: `synthetic-` and the original's.
        entities: of the full graph.
        relations: at every scale.
        splits: training, validation, test triples.
        heads: distribution of how often an entity is a head.
        tails: distribution of how often an entity is a tail.
        relation_counts: distribution of triples over relations.
        published: figures of the original.
        default_scale: size built unless one is asked for.
        tolerance: of the targets.
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
    """A count at a scale, at least 1."""
    return max(1, round(count * scale))


def scaled_splits(splits: Splits, scale: float, limit: int) -> Splits:
    """Sizes of the parts at a scale: their ends are rounded, so that parts that cover all nodes still do.

    Args:
        splits: full sizes.
        scale: in (0, 1].
        limit: nodes there are.
    """
    ends, total = [], 0
    for part in splits:
        total += part
        ends.append(min(limit, round(total * scale)))
    return ends[0], ends[1] - ends[0], ends[2] - ends[1]

"""Statistics of any graph (degrees, clustering, reciprocity, homophily), and of a stand-in next to its targets."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import check_at_least, check_vector
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges
from workbench.kernels.transpose import symmetric_rows
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.bipartite import CITES, entity_degrees
from workbench.standin.build import find_standin, paper_degrees
from workbench.standin.stand_in import KnowledgeStandIn, Published, StandIn, scaled, scaled_splits

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class Clustering:
    """A mean local clustering coefficient.

    Args:
        mean: mean over all nodes; a node with fewer than two neighbours has coefficient 0.
        standard_error: standard error of the mean; 0 if all nodes were counted.
        num_nodes: number of nodes in the sample.
    """

    mean: float
    standard_error: float
    num_nodes: int


def clustering(graph: Graph, *, num_nodes: int | None = None, seed: int = 0) -> Clustering:
    """Estimate the mean local clustering coefficient of a graph's undirected simple version.

    Args:
        num_nodes: size of the sample; None: all nodes if that is fast, else 2,000 to 20,000, fewer in dense graphs.

    Returns:
        The mean and its standard error.
    """
    if num_nodes is not None:
        check_at_least("num_nodes", num_nodes, 1)
    return mean_clustering(simple_undirected(graph), num_nodes, seed)


def degree_quantiles(degrees: Tensor, shares: Sequence[float] = QUANTILES) -> tuple[tuple[float, int], ...]:
    """Compute degree quantiles: the smallest degree that at least a given share of the nodes does not exceed.

    Args:
        degrees: int64 [any].
        shares: the shares, in (0, 1].

    Returns:
        Pairs (share, degree); none without nodes.

    >>> import torch
    >>> degree_quantiles(torch.tensor([3, 1, 1, 9]), [0.5, 0.75])
    ((0.5, 1), (0.75, 3))
    """
    ordered, count = degrees.sort().values, len(degrees)
    return tuple((q, int(ordered[max(0, math.ceil(q * count - 1e-9) - 1)])) for q in shares) if count else ()


def homophily(graph: Graph, y: Tensor) -> float | None:
    """Compute the edge homophily: the share of edges between labelled nodes whose ends have the same class.

    Args:
        y: int64 [num_nodes], -1 for unlabelled; or floating, if nodes have several labels.

    Returns:
        The share; None if nodes have several labels, or no edge joins labelled nodes.

    Source: Zhu et al. (NeurIPS 2020).
    """
    if y.is_floating_point():
        return None
    check_vector("y", y, graph.num_nodes, (torch.int64,))
    same, labelled = (torch.zeros(graph.num_nodes, dtype=torch.int64) for _ in range(2))
    p, i, labels, a, b = (t.numpy() for t in (graph.indptr, graph.indices, y, same, labelled))
    parallel_edges(lambda lo, hi: _count_same(p, i, labels, lo, hi, a, b), graph.indptr)
    return int(same.sum()) / int(labelled.sum()) if int(labelled.sum()) else None


def reciprocity(graph: Graph) -> float | None:
    """Compute the share of edges whose reverse exists, not counting self loops.

    Returns:
        The share; None without edges.
    """
    ordered = _sorted(graph)
    return _num_mutual(ordered) / ordered.num_edges if ordered.num_edges else None


@dataclass(frozen=True)
class GraphStatistics:
    """Statistics of a graph; degrees and clustering are those of its undirected simple version.

    Args:
        num_nodes: number of nodes.
        num_edges: number of stored edges.
        mean_degree: mean number of neighbours.
        largest_degree: largest number of neighbours.
        degree_quantiles: pairs (share of nodes, degree): the smallest degree that this share does not exceed.
        clustering: mean local clustering coefficient.
        reciprocity: share of edges whose reverse exists, not counting self loops; None without edges.
        homophily: share of edges between labelled nodes whose ends have the same class; None if it is undefined.
    """

    num_nodes: int
    num_edges: int
    mean_degree: float
    largest_degree: int
    degree_quantiles: tuple[tuple[float, int], ...]
    clustering: Clustering
    reciprocity: float | None
    homophily: float | None


def graph_statistics(graph: Graph, y: Tensor | None = None, *, seed: int = 0) -> GraphStatistics:
    """Measure a graph.

    Args:
        y: int64 [num_nodes], classes, -1 for unlabelled; or floating, if nodes have several labels; None: no labels.
    """
    simple = simple_undirected(graph)
    degrees = simple.in_degrees()
    return GraphStatistics(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        mean_degree=simple.num_edges / max(1, graph.num_nodes),
        largest_degree=int(degrees.max()) if graph.num_nodes else 0,
        degree_quantiles=degree_quantiles(degrees),
        clustering=mean_clustering(simple, None, seed),
        reciprocity=(1.0 if simple.num_edges else None) if simple is graph else reciprocity(graph),
        homophily=None if y is None else homophily(graph, y),
    )


def simple_undirected(graph: Graph) -> Graph:
    """Convert a graph to its undirected simple version.

    Returns:
        Both directions of every edge, without self loops and duplicates, rows ascending; `graph` itself if it is that.
    """
    if _is_simple(graph) and _num_mutual(graph) == graph.num_edges:
        return graph
    rows = _rows_of(graph)
    proper = rows != graph.indices
    csr = symmetric_rows(rows[proper], graph.indices[proper], None, graph.num_nodes)
    return Graph(csr.indptr, csr.indices)


def _is_simple(graph: Graph) -> bool:
    """Check that there are no self loops and duplicates, and that rows are ascending."""
    bad = torch.zeros(graph.num_nodes, dtype=torch.bool)
    p, i, b = graph.indptr.numpy(), graph.indices.numpy(), bad.numpy()
    parallel_edges(lambda lo, hi: _mark_unsorted(p, i, lo, hi, b), graph.indptr)
    return not bool(bad.any())


def _num_mutual(graph: Graph) -> int:
    mutual = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, m = graph.indptr.numpy(), graph.indices.numpy(), mutual.numpy()
    parallel_edges(lambda lo, hi: _count_mutual(p, i, lo, hi, m), graph.indptr)
    return int(mutual.sum())


def _sorted(graph: Graph) -> Graph:
    """Sort the rows and drop self loops, but not duplicates."""
    if _is_simple(graph):
        return graph
    rows, columns = _rows_of(graph).long(), graph.indices.long()
    proper = rows != columns
    keys = torch.sort(rows[proper] * graph.num_nodes + columns[proper]).values
    rows = torch.div(keys, graph.num_nodes, rounding_mode="floor")
    counts = torch.bincount(rows, minlength=graph.num_nodes)
    return Graph(offsets(counts), (keys - rows * graph.num_nodes).to(graph.indices.dtype))


def _rows_of(graph: Graph) -> Tensor:
    return torch.arange(graph.num_nodes, dtype=graph.indices.dtype).repeat_interleave(graph.in_degrees())


@compiled
def lower_bound(values, lo, hi, target):
    """Return the first position in [lo, hi) whose value is at least `target` (binary search)."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] < target:
            lo = middle + 1
        else:
            hi = middle
    return lo


@compiled
def _mark_unsorted(indptr, indices, lo, hi, bad):
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            bad[row] |= indices[e] == row or (e > indptr[row] and indices[e - 1] >= indices[e])


@compiled
def _contains(values, lo, hi, target):
    position = lower_bound(values, lo, hi, target)
    return position < hi and values[position] == target


@compiled
def _count_mutual(indptr, indices, lo, hi, mutual):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            mutual[v] += u != v and _contains(indices, indptr[u], indptr[u + 1], v)


@compiled
def _count_same(indptr, indices, y, lo, hi, same, labelled):
    for v in range(lo, hi):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            labelled[v] += y[indices[e]] >= 0
            same[v] += y[indices[e]] == y[v]


_MAX_MERGE_RATIO = 16  # of two lists' lengths up to which a merge beats binary searches

# Operations (sum of squared degrees) up to which all nodes are counted, and bounds of a sample's size.
_EXACT_COST, _MIN_SAMPLE, _MAX_SAMPLE = 2_000_000_000, 2_000, 20_000


def mean_clustering(simple: Graph, num_nodes: int | None, seed: int) -> Clustering:
    """Do as `clustering` does, for a graph that is undirected and simple already.

    Args:
        num_nodes: size of the sample; None: chosen by the cost.

    Returns:
        The mean and its standard error.
    """
    population = simple.num_nodes
    if not population:
        return Clustering(0.0, 0.0, 0)
    sample = num_nodes or _sample_size(simple)
    if sample >= population:
        return Clustering(float(local_clustering(simple, torch.arange(population)).mean()), 0.0, population)
    values = local_clustering(simple, permutation(seed, population)[:sample].sort().values)
    deviation = float(values.std()) if sample > 1 else math.nan
    return Clustering(float(values.mean()), deviation * math.sqrt((1 - sample / population) / sample), sample)


def _sample_size(simple: Graph) -> int:
    cost = float((simple.in_degrees().double() ** 2).sum())
    if cost <= _EXACT_COST:
        return simple.num_nodes
    return min(max(int(_EXACT_COST / (cost / simple.num_nodes)), _MIN_SAMPLE), _MAX_SAMPLE)


def local_clustering(graph: Graph, nodes: Tensor) -> Tensor:
    """Compute local clustering coefficients: the share of the pairs of a node's neighbours that are joined.

    Args:
        nodes: int64 [n], ids.

    Returns:
        float64 [n]; 0 for nodes with fewer than two neighbours.
    """
    out = torch.empty(len(nodes), dtype=torch.float64)
    p, i, ids, o = graph.indptr.numpy(), graph.indices.numpy(), nodes.numpy(), out.numpy()
    degrees = graph.in_degrees()[nodes]
    parallel_edges(lambda lo, hi: _coefficients(p, i, ids, lo, hi, o), offsets(degrees * degrees), 16)
    return out


@compiled
def _coefficients(indptr, indices, nodes, lo, hi, out):
    for i in range(lo, hi):
        v = nodes[i]
        degree = indptr[v + 1] - indptr[v]
        closed = 0
        for e in range(indptr[v], indptr[v + 1]):
            closed += _count_common(indptr, indices, v, indices[e])
        out[i] = closed / (degree * (degree - 1)) if degree > 1 else 0.0


@compiled
def _count_common(indptr, indices, v, u):
    """Count the common neighbours of v and u, by merging their ascending rows or searching the longer one."""
    a, a_end, b, b_end = indptr[v], indptr[v + 1], indptr[u], indptr[u + 1]
    if b_end - b < a_end - a:
        a, a_end, b, b_end = b, b_end, a, a_end
    count = 0
    search = b_end - b > _MAX_MERGE_RATIO * (a_end - a)
    while a < a_end and b < b_end:
        if search:
            b = lower_bound(indices, b, b_end, indices[a])
            count += b < b_end and indices[b] == indices[a]
            a += 1
        else:
            x, y = indices[a], indices[b]
            count += x == y
            a += x <= y
            b += y <= x
    return count


class Comparison(NamedTuple):
    """One statistic of a stand-in and its target.

    Args:
        name: name of the statistic.
        published: value of the original at full size; None: no reliable source published it.
        target: target at the scale of the stand-in.
        tolerance: how far `achieved` may be from `target`.
        achieved: value of the stand-in.
    """

    name: str
    published: float | None
    target: float
    tolerance: float
    achieved: float

    @property
    def met(self) -> bool:
        return abs(self.achieved - self.target) <= self.tolerance


def compare(data: Dataset | KnowledgeGraph, *, scale: float | None = None) -> list[Comparison]:
    """Compare a stand-in with all its targets; in a heterogeneous graph, degrees and clustering are those of papers.

    Args:
        data: a result of `build_standin`.
        scale: the scale at which it was built; None: the default.

    Returns:
        One comparison per statistic.

    Raises:
        ValueError: the data set is not a stand-in.
    """
    spec, size = find_standin(data.name, scale)
    if isinstance(spec, KnowledgeStandIn):
        assert isinstance(data, KnowledgeGraph)
        return list(_triples(spec, size, data))
    assert isinstance(data, Dataset)
    return [*_sizes(spec, size, data), *_shape(spec, size, data)]


def _sizes(spec: StandIn, scale: float, data: Dataset) -> Iterator[Comparison]:
    original, nodes, edges = spec.published, scaled(spec.nodes, scale), scaled(spec.edges, scale)
    papers = nodes
    if spec.authors is not None:
        nodes += scaled(spec.authors.authors, scale) + scaled(spec.authors.institutions, scale)
        edges += scaled(spec.authors.writes, scale) + scaled(spec.authors.affiliations, scale)
    yield Comparison("nodes", original.nodes, nodes, 0, data.graph.num_nodes)
    yield Comparison("edges", original.edges, edges, spec.tolerance.edges * edges, data.graph.num_edges)
    yield Comparison("features", original.features, spec.features, 0, data.num_features)
    yield Comparison("classes", original.classes, spec.classes, 0, data.num_classes)
    parts = (data.train_idx, data.val_idx, data.test_idx)
    yield from _split(original, scaled_splits(spec.splits, scale, papers), tuple(map(len, parts)))


def _split(original: Published, targets: tuple[int, ...], achieved: tuple[int, ...]) -> Iterator[Comparison]:
    for name, published, target, count in zip(
        ("train", "val", "test"), original.splits or (None,) * 3, targets, achieved, strict=True
    ):
        yield Comparison(name, published, target, 0, count)


def _shape(spec: StandIn, scale: float, data: Dataset) -> Iterator[Comparison]:
    original, shape, tolerance = spec.published, spec.shape, spec.tolerance
    papers = scaled(spec.nodes, scale)
    graph, y = (data.graph, data.y) if spec.authors is None else (_papers(data.graph, papers), data.y[:papers])
    measured = graph_statistics(graph, y)
    targets = paper_degrees(spec, scale)
    quantiles = dict(original.degree_quantiles or ())
    for (share, achieved), (_, target) in zip(measured.degree_quantiles, degree_quantiles(targets), strict=True):
        slack = 1 + tolerance.degree * target
        yield Comparison(f"degree, {share:.0%} of nodes", quantiles.get(share), target, slack, achieved)
    largest = int(targets[-1])
    yield Comparison(
        "largest degree", original.largest_degree, largest, 1 + tolerance.degree * largest, measured.largest_degree
    )
    margin = tolerance.clustering + 2 * measured.clustering.standard_error
    yield Comparison("clustering", original.clustering, shape.clustering, margin, measured.clustering.mean)
    if measured.reciprocity is not None:
        yield Comparison(
            "reciprocity", original.reciprocity, spec.reciprocity, tolerance.reciprocity, measured.reciprocity
        )
    if measured.homophily is not None and not spec.only_split_labelled:
        yield Comparison("homophily", original.homophily, shape.homophily, tolerance.homophily, measured.homophily)


def _papers(graph: Graph, papers: int) -> Graph:
    """Extract the citation graph of the papers, which have the first ids."""
    assert graph.edge_type is not None
    rows = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees())
    cites = graph.edge_type == CITES
    counts = torch.bincount(rows[cites], minlength=papers)
    return Graph(offsets(counts), graph.indices[cites])


def _triples(spec: KnowledgeStandIn, scale: float, data: KnowledgeGraph) -> Iterator[Comparison]:
    original, parts = spec.published, (data.train, data.valid, data.test)
    triples, total = torch.cat(parts), scaled(sum(spec.splits), scale)
    yield Comparison("entities", original.nodes, scaled(spec.entities, scale), 0, data.num_entities)
    yield Comparison("relations", original.classes, spec.relations, 0, data.num_relations)
    yield Comparison("triples", original.edges, total, spec.tolerance.edges * total, len(torch.unique(triples, dim=0)))
    yield from (
        row._replace(tolerance=spec.tolerance.edges * row.target)
        for row in _split(original, scaled_splits(spec.splits, scale, total), tuple(map(len, parts)))
    )
    for role, column, degrees in zip(("head", "tail"), (0, 2), entity_degrees(spec, scale), strict=True):
        yield from _roles(spec, role, degrees, torch.bincount(triples[:, column], minlength=data.num_entities))


def _roles(spec: KnowledgeStandIn, role: str, targets: Tensor, achieved: Tensor) -> Iterator[Comparison]:
    for (share, target), (_, measured) in zip(degree_quantiles(targets), degree_quantiles(achieved), strict=True):
        slack = 1 + spec.tolerance.degree * target
        yield Comparison(f"times {role}, {share:.0%} of entities", None, target, slack, measured)
    largest = int(targets.max())
    slack = 1 + spec.tolerance.degree * largest
    counted = spec.published.largest_degree is not None  # the degrees of the original are those of the law
    published = (spec.heads if role == "head" else spec.tails).largest if counted else None
    yield Comparison(f"times {role}, largest", published, largest, slack, int(achieved.max()))

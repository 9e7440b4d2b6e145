"""Comparison of a generated stand-in with its targets."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.kernels.csr import offsets
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.build import paper_degrees
from workbench.standin.graph_statistics import degree_quantiles, graph_statistics
from workbench.standin.required_space import find_standin
from workbench.standin.stand_in import KnowledgeStandIn, Published, StandIn, scaled, scaled_splits
from workbench.standin.triples import entity_degrees
from workbench.standin.typed import CITES


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

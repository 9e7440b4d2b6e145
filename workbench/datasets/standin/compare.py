"""A stand-in's targets, their tolerances, and what was achieved."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.knowledge import KnowledgeGraph
from workbench.datasets.measure import degree_quantiles, graph_figures
from workbench.datasets.standin.build import paper_degrees
from workbench.datasets.standin.room import find
from workbench.datasets.standin.spec import KnowledgeStandIn, Published, StandIn, scaled, scaled_splits
from workbench.datasets.standin.triples import entity_degrees
from workbench.datasets.standin.typed import CITES
from workbench.kernels.csr import offsets


class Figure(NamedTuple):
    """One figure of a stand-in.

    Args:
        name: of the figure.
        published: of the original at its full size; None: not published where this project could stand behind it.
        target: at the scale of the stand-in.
        tolerance: how far `achieved` may be from `target`.
        achieved: by the stand-in.
    """

    name: str
    published: float | None
    target: float
    tolerance: float
    achieved: float

    @property
    def met(self) -> bool:
        return abs(self.achieved - self.target) <= self.tolerance


def compare(data: Dataset | KnowledgeGraph, *, scale: float | None = None) -> list[Figure]:
    """Every target of a stand-in beside what it achieved; of a typed graph, clustering and degrees of the papers.

    Args:
        data: as `build_standin` returned it.
        scale: it was built at; None: the default.

    Raises:
        ValueError: no stand-in.
    """
    spec, size = find(data.name, scale)
    if isinstance(spec, KnowledgeStandIn):
        assert isinstance(data, KnowledgeGraph)
        return list(_triples(spec, size, data))
    assert isinstance(data, Dataset)
    return [*_sizes(spec, size, data), *_shape(spec, size, data)]


def _sizes(spec: StandIn, scale: float, data: Dataset) -> Iterator[Figure]:
    original, nodes, edges = spec.published, scaled(spec.nodes, scale), scaled(spec.edges, scale)
    papers = nodes
    if spec.authors is not None:
        nodes += scaled(spec.authors.authors, scale) + scaled(spec.authors.institutions, scale)
        edges += scaled(spec.authors.writes, scale) + scaled(spec.authors.affiliations, scale)
    yield Figure("nodes", original.nodes, nodes, 0, data.graph.num_nodes)
    yield Figure("edges", original.edges, edges, spec.tolerance.edges * edges, data.graph.num_edges)
    yield Figure("features", original.features, spec.features, 0, data.num_features)
    yield Figure("classes", original.classes, spec.classes, 0, data.num_classes)
    parts = (data.train_idx, data.val_idx, data.test_idx)
    yield from _split(original, scaled_splits(spec.splits, scale, papers), tuple(map(len, parts)))


def _split(original: Published, targets: tuple[int, ...], achieved: tuple[int, ...]) -> Iterator[Figure]:
    for name, published, target, count in zip(
        ("train", "val", "test"), original.splits or (None,) * 3, targets, achieved, strict=True
    ):
        yield Figure(name, published, target, 0, count)


def _shape(spec: StandIn, scale: float, data: Dataset) -> Iterator[Figure]:
    original, recipe, tolerance = spec.published, spec.recipe, spec.tolerance
    papers = scaled(spec.nodes, scale)
    graph, y = (data.graph, data.y) if spec.authors is None else (_papers(data.graph, papers), data.y[:papers])
    found = graph_figures(graph, y)
    targets = paper_degrees(spec, scale)
    quantiles = dict(original.degree_quantiles or ())
    for (share, achieved), (_, target) in zip(found.degree_quantiles, degree_quantiles(targets), strict=True):
        slack = 1 + tolerance.degree * target
        yield Figure(f"degree, {share:.0%} of nodes", quantiles.get(share), target, slack, achieved)
    most = int(targets[-1])
    yield Figure("largest degree", original.largest_degree, most, 1 + tolerance.degree * most, found.largest_degree)
    near = tolerance.clustering + 2 * found.clustering.standard_error
    yield Figure("clustering", original.clustering, recipe.clustering, near, found.clustering.mean)
    if found.reciprocity is not None:
        yield Figure("reciprocity", original.reciprocity, spec.reciprocity, tolerance.reciprocity, found.reciprocity)
    if found.homophily is not None and not spec.only_split_labelled:
        yield Figure("homophily", original.homophily, recipe.homophily, tolerance.homophily, found.homophily)


def _papers(graph: Graph, papers: int) -> Graph:
    """The citations among the papers, which have the first ids."""
    assert graph.edge_type is not None
    rows = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees())
    cites = graph.edge_type == CITES
    counts = torch.bincount(rows[cites], minlength=papers)
    return Graph(offsets(counts), graph.indices[cites])


def _triples(spec: KnowledgeStandIn, scale: float, data: KnowledgeGraph) -> Iterator[Figure]:
    original, parts = spec.published, (data.train, data.valid, data.test)
    triples, total = torch.cat(parts), scaled(sum(spec.splits), scale)
    yield Figure("entities", original.nodes, scaled(spec.entities, scale), 0, data.num_entities)
    yield Figure("relations", original.classes, spec.relations, 0, data.num_relations)
    yield Figure("triples", original.edges, total, spec.tolerance.edges * total, len(torch.unique(triples, dim=0)))
    yield from (
        figure._replace(tolerance=spec.tolerance.edges * figure.target)
        for figure in _split(original, scaled_splits(spec.splits, scale, total), tuple(map(len, parts)))
    )
    for role, column, degrees in zip(("head", "tail"), (0, 2), entity_degrees(spec, scale), strict=True):
        yield from _roles(spec, role, degrees, torch.bincount(triples[:, column], minlength=data.num_entities))


def _roles(spec: KnowledgeStandIn, role: str, targets: Tensor, achieved: Tensor) -> Iterator[Figure]:
    for (share, target), (_, found) in zip(degree_quantiles(targets), degree_quantiles(achieved), strict=True):
        slack = 1 + spec.tolerance.degree * target
        yield Figure(f"times {role}, {share:.0%} of entities", None, target, slack, found)
    most = int(targets.max())
    slack = 1 + spec.tolerance.degree * most
    published = (spec.heads if role == "head" else spec.tails).largest
    yield Figure(f"times {role}, largest", published, most, slack, int(achieved.max()))

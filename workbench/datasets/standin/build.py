"""Building a stand-in by name."""

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.knowledge import KnowledgeGraph
from workbench.datasets.standin.citation import citations, dates, pairs_of
from workbench.datasets.standin.classes import features, multi_labels, split_nodes
from workbench.datasets.standin.degrees import degree_sequence
from workbench.datasets.standin.room import check_room, find
from workbench.datasets.standin.spec import StandIn, scaled, scaled_splits
from workbench.datasets.standin.streams import Draw, key_of
from workbench.datasets.standin.topology import arrange, node_classes, undirected_graph
from workbench.datasets.standin.triples import knowledge_graph
from workbench.datasets.standin.typed import typed_graph


def build_standin(name: str, *, scale: float | None = None, seed: int = 0) -> Dataset | KnowledgeGraph:
    """Generate a stand-in: a pure function of (name, scale, seed), whatever the number of threads.

    Nodes, edges and splits scale, the mean degree and the quantiles of degrees stay; the largest degree falls to that
    of the top 1 / scale nodes, and about with √scale. Classes get smaller and degrees don't: below about 10,000 nodes,
    or a hundred times the mean degree, homophily falls and clustering rises. Node ids are in random order (those of a
    typed graph within a type).

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.
        seed: any whole number.

    Raises:
        CapacityError: it would need more memory than is free.
        ValueError: an unknown name, or a scale outside (0, 1] or too small for the mean degree.
    """
    spec, size = find(name, scale)
    check_room(name, size)
    return _build_nodes(spec, size, seed) if isinstance(spec, StandIn) else knowledge_graph(spec, size, seed)


def paper_degrees(spec: StandIn, scale: float) -> Tensor:
    """int64 [nodes], ascending: neighbours that nodes (papers, of a typed graph) are to have, in any direction."""
    pairs = pairs_of(scaled(spec.edges, scale), spec.reciprocity)
    nodes = scaled(spec.nodes, scale)
    return degree_sequence(spec.recipe.degrees, nodes, 2 * pairs, neighbours=nodes - 1)


def _wired(spec: StandIn, scale: float, seed: int) -> tuple[Graph, Tensor, Tensor | None]:
    """The graph, the class of every node, and dates where there are citations."""
    name, recipe = spec.name, spec.recipe
    wiring = arrange(name, seed, paper_degrees(spec, scale), spec.classes, recipe.class_skew)
    graph, classes = undirected_graph(name, seed, wiring, recipe), node_classes(wiring)
    if not spec.directed:
        return graph, classes, None
    date = dates(name, seed, graph)
    return citations(graph, date, spec.reciprocity, key_of(name, seed, Draw.RECIPROCITY)), classes, date


def _labels(spec: StandIn, seed: int, classes: Tensor, nodes: int, labelled: Tensor) -> Tensor:
    """Labels of all nodes: of those that have a class, or of those of the split only."""
    if spec.multi_label:
        return multi_labels(spec.name, seed, classes, spec.classes)
    if not spec.only_split_labelled:
        return classes
    y = torch.full((nodes,), -1)
    y[labelled] = classes[labelled]
    return y


def _build_nodes(spec: StandIn, scale: float, seed: int) -> Dataset:
    graph, classes, date = _wired(spec, scale, seed)
    sizes = scaled_splits(spec.splits, scale, len(classes))
    train, val, test = split_nodes(spec.name, seed, len(classes), sizes, date)
    if spec.authors is not None:
        graph, classes = typed_graph(spec, graph, classes, seed, scale)
    x = features(spec, seed, classes)
    y = _labels(spec, seed, classes, graph.num_nodes, torch.cat([train, val, test]))
    return Dataset.build(
        graph,
        x,
        y,
        train_idx=train,
        val_idx=val,
        test_idx=test,
        num_classes=spec.classes,
        name=spec.name,
        split=f"seeded:{seed}",
    )

"""Builds stand-ins by name."""

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.citation import citations, dates, num_pairs
from workbench.standin.classes import features, multi_labels, split_nodes
from workbench.standin.degree_law import degree_sequence
from workbench.standin.required_space import check_capacity, find_standin
from workbench.standin.stand_in import StandIn, scaled, scaled_splits
from workbench.standin.streams import Draw, key_of
from workbench.standin.topology import assign_classes, node_classes, undirected_graph
from workbench.standin.triples import knowledge_graph
from workbench.standin.typed import typed_graph


def build_standin(name: str, *, scale: float | None = None, seed: int = 0) -> Dataset | KnowledgeGraph:
    """Generate a stand-in: a pure function of (name, scale, seed), for any number of threads.

    Nodes, edges and splits are scaled; mean degree and degree quantiles are not. The largest degree decreases to that
    of the top 1 / scale nodes, about with √scale. Classes get smaller at constant degree: below about 10,000 nodes, or
    a hundred times the mean degree, homophily decreases and clustering increases. Node ids are in random order (within
    their type in a heterogeneous graph).

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.
        seed: a 64-bit integer.

    Returns:
        The data set, or the knowledge graph.

    Raises:
        CapacityError: it would need more memory than is available.
        ValueError: an unknown name, or a scale outside (0, 1] or too small for the mean degree.
    """
    spec, size = find_standin(name, scale)
    check_capacity(name, size)
    return _build_nodes(spec, size, seed) if isinstance(spec, StandIn) else knowledge_graph(spec, size, seed)


def paper_degrees(spec: StandIn, scale: float) -> Tensor:
    """Compute the target degrees of the undirected graph (of papers, if heterogeneous): int64 [nodes], ascending."""
    pairs = num_pairs(scaled(spec.edges, scale), spec.reciprocity)
    nodes = scaled(spec.nodes, scale)
    return degree_sequence(spec.shape.degrees, nodes, 2 * pairs, max_neighbours=nodes - 1)


def _generate_graph(spec: StandIn, scale: float, seed: int) -> tuple[Graph, Tensor, Tensor | None]:
    """Return the graph, the class of every node, and the dates of a citation graph."""
    name, shape = spec.name, spec.shape
    order = assign_classes(name, seed, paper_degrees(spec, scale), spec.classes, shape.class_skew)
    graph, classes = undirected_graph(name, seed, order, shape), node_classes(order)
    if not spec.directed:
        return graph, classes, None
    date = dates(name, seed, graph)
    return citations(graph, date, spec.reciprocity, key_of(name, seed, Draw.RECIPROCITY)), classes, date


def _labels(spec: StandIn, seed: int, classes: Tensor, nodes: int, labelled: Tensor) -> Tensor:
    """Return the labels of all nodes, or only of the split's nodes if the original has no others."""
    if spec.multi_label:
        return multi_labels(spec.name, seed, classes, spec.classes)
    if not spec.only_split_labelled:
        return classes
    y = torch.full((nodes,), -1)
    y[labelled] = classes[labelled]
    return y


def _build_nodes(spec: StandIn, scale: float, seed: int) -> Dataset:
    graph, classes, date = _generate_graph(spec, scale, seed)
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

"""Builds stand-ins by name."""

import os
import shutil
from pathlib import Path

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError, available_bytes, check_choice, check_seed
from workbench.core.graph import Graph
from workbench.core.units import format_bytes
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.standin.bipartite import knowledge_graph, typed_graph
from workbench.standin.catalog import STANDINS
from workbench.standin.classes import citations, dates, features, multi_labels, num_pairs, split_nodes
from workbench.standin.stand_in import Draw, KnowledgeStandIn, StandIn, degree_sequence, key_of, scaled, scaled_splits
from workbench.standin.topology import assign_classes, node_classes, undirected_graph


def build_standin(name: str, *, scale: float | None = None, seed: int = 0) -> Dataset | KnowledgeGraph:
    """Generate a stand-in: a pure function of (name, scale, seed), for any number of threads.

    Nodes, edges and splits are scaled; mean degree and degree quantiles are not. The largest degree decreases to that
    of the top 1 / scale nodes, about with √scale. Classes get smaller at constant degree: below about 10,000 nodes, or
    a hundred times the mean degree, homophily decreases and clustering increases. Node ids are in random order (within
    their type in a heterogeneous graph).

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.
        seed: a whole number in [-2**63, 2**63).

    Returns:
        The data set, or the knowledge graph.

    Raises:
        CapacityError: it would need more memory than is available.
        ValueError: an unknown name, a scale outside (0, 1] or too small for the degrees, or another seed.
    """
    spec, size = find_standin(name, scale)
    seed = check_seed(seed)
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


# The edge list (two int32), both directions of it and the merged rows (int32 each), and stubs.
_BYTES_PER_PAIR, _BYTES_PER_TYPED_EDGE, _BYTES_PER_NODE, _BYTES_PER_TRIPLE = 32, 64, 80, 120

_FIXED_BYTES = 256 << 20

# Memory that the allocator keeps after it is freed, and that two rounds of edges hold at the same time.
_SLACK = 1.15


def find_standin(name: str, scale: float | None) -> tuple[StandIn | KnowledgeStandIn, float]:
    """Look up a stand-in and the scale to build it at."""
    check_choice("stand-in", name, STANDINS)
    spec = STANDINS[name]
    size = spec.default_scale if scale is None else scale
    if not 0 < size <= 1:
        raise ValueError(f"scale is {scale}; it must be in (0, 1], where 1 is the size of the original")
    return spec, float(size)


def required_bytes(name: str, scale: float | None = None) -> tuple[int, int]:
    """Estimate the peak memory of building a stand-in and its size on disk.

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.

    Returns:
        Bytes of memory (an upper bound) and bytes on disk.

    Raises:
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find_standin(name, scale)
    if isinstance(spec, KnowledgeStandIn):
        triples = scaled(sum(spec.splits), size)
        return _FIXED_BYTES + _BYTES_PER_TRIPLE * triples, 24 * triples
    nodes, edges, typed = scaled(spec.nodes, size), scaled(spec.edges, size), 0
    pairs = edges if spec.directed else edges // 2
    if spec.authors is not None:
        typed = scaled(spec.authors.writes + spec.authors.affiliations, size)
        nodes += scaled(spec.authors.authors + spec.authors.institutions, size)
        typed += edges
    label_bytes = 4 * spec.classes if spec.multi_label else 8
    width = spec.feature_dtype.itemsize
    features = nodes * spec.features * width
    graph = 8 * nodes + 4 * max(edges, typed) + (typed + nodes if typed else 0)
    result = features + graph + nodes * label_bytes + 8 * scaled(sum(spec.splits), size)
    building = _BYTES_PER_PAIR * pairs + _BYTES_PER_TYPED_EDGE * typed + _BYTES_PER_NODE * nodes
    return _FIXED_BYTES + round(_SLACK * max(building, result + _BYTES_PER_NODE * nodes)), result


def check_capacity(name: str, scale: float | None = None, folder: str | os.PathLike[str] | None = None) -> None:
    """Refuse a stand-in that exceeds the free memory or disk space.

    Args:
        folder: folder in which the result will be stored; None: it won't be.

    Raises:
        CapacityError: with the required and the free bytes.
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find_standin(name, scale)
    memory, disk = required_bytes(name, size)
    requirements = [("memory", memory, available_bytes())]
    if folder is not None:
        place = Path(folder).absolute()
        existing = next(path for path in (place, *place.parents) if path.exists())
        requirements.append(("disk", disk, shutil.disk_usage(existing).free))
    for what, required, free in requirements:
        if required > free:
            raise CapacityError(
                f"{name} at scale {size:g} requires {format_bytes(required)} of {what}, but {format_bytes(free)} are "
                f"free; pass a smaller scale (its default is {spec.default_scale:g})"
            )

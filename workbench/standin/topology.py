"""Undirected graphs with given degrees, clustering and homophily: affinity blocks, then class-aware stub matching.

BTER (Seshadhri, Kolda, Pinar 2012) with two changes: edges between blocks prefer nodes of the same class
(degree-corrected stochastic block model; Karrer, Newman 2011), and are drawn by matching stubs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.kernels.csr import offsets
from workbench.standin.blocks import block_density, block_pairs, cut_blocks
from workbench.standin.matching import match_stubs, random_subset
from workbench.standin.node_pairs import Pairs, between_classes, concatenate, pairs_of_graph, relabel, simple_graph
from workbench.standin.stand_in import GraphShape
from workbench.standin.streams import Draw, key_of

# Two nodes with d and e of a class's m stubs are matched about d e / m times. With at most this many times √m stubs
# each this is well below one (the structural cut-off of Boguñá, Pastor-Satorras, Vespignani, Eur. Phys. J. B 2004).
_CUT_OFF = 0.4
# Switched edges have ends of at most this many times the mean degree, which are seldom neighbours of hubs.
_LOW_DEGREE = 4.0
_MAX_MISSING = 0.002  # share of the degrees that may be missing
_ROUNDS = 6


class ClassOrder(NamedTuple):
    """The nodes in order of class, then degree: their degrees, where classes begin, and the public id of each node."""

    degrees: Tensor
    class_starts: Tensor
    public_ids: Tensor


def class_sizes(nodes: int, classes: int, skew: float) -> Tensor:
    """Compute class sizes proportional to (1 + class)^-skew that sum to `nodes`: int64 [classes]."""
    weights = torch.arange(1, classes + 1, dtype=torch.float64) ** -skew
    ends = (weights.cumsum(0) / weights.sum() * nodes).round().long()
    return ends.diff(prepend=ends.new_zeros(1))


def assign_classes(name: str, seed: int, degrees: Tensor, classes: int, skew: float) -> ClassOrder:
    """Assign random classes and public ids, both independent of the degree.

    Args:
        name: name of the stand-in.
        seed: a 64-bit integer.
        degrees: int64 [nodes], ascending.
        classes: number of classes.
        skew: skew of the class sizes: class c has a share proportional to (1 + c)^-skew.

    Returns:
        The nodes in order of class.
    """
    nodes = len(degrees)
    starts = offsets(class_sizes(nodes, classes, skew))
    member = torch.empty(nodes, dtype=torch.int32)
    member[permutation(key_of(name, seed, Draw.CLASS), nodes)] = torch.arange(
        classes, dtype=torch.int32
    ).repeat_interleave(starts.diff())
    order = torch.argsort(member, stable=True)
    return ClassOrder(degrees[order], starts, permutation(key_of(name, seed, Draw.NODE_ID), nodes))


def node_classes(order: ClassOrder) -> Tensor:
    """Return the class of every node by public id: int64 [nodes]."""
    sizes = order.class_starts.diff()
    classes = torch.empty(len(order.degrees), dtype=torch.int64)
    classes[order.public_ids] = torch.arange(len(sizes)).repeat_interleave(sizes)
    return classes


def _same_class_share(homophily: float, degrees: Tensor, excess: Tensor, limit: Tensor, by_chance: float) -> float:
    """Find the share of the excess stubs to match within their class so that the graph reaches the homophily."""
    needed = homophily * float(degrees.sum()) - float((degrees - excess).sum())
    low, high = 0.0, 1.0
    for _ in range(30):
        share = (low + high) / 2
        same = float(torch.minimum(excess * share, limit).sum())
        if same + by_chance * (float(excess.sum()) - same) < needed:
            low = share
        else:
            high = share
    return high


def _split_excess(
    excess: Tensor, degrees: Tensor, class_starts: Tensor, homophily: float, key: int
) -> tuple[Tensor, Tensor]:
    """Split the excess stubs into those matched within the class and free ones, with stochastic rounding."""
    by_class = offsets(excess)[class_starts].diff().double()
    limit = (_CUT_OFF * by_class.sqrt()).long().repeat_interleave(class_starts.diff())
    by_chance = float(((by_class / by_class.sum().clamp(min=1)) ** 2).sum())
    share = _same_class_share(homophily, degrees, excess, limit, by_chance)
    wanted = excess * share + uniform(key, torch.arange(len(excess)))
    same = torch.minimum(torch.minimum(wanted.long(), limit), excess)
    return same, excess - same


def _in_degrees(pairs: Pairs, nodes: int) -> Tensor:
    return sum((torch.bincount(ends, minlength=nodes) for ends in pairs), torch.zeros(nodes, dtype=torch.int64))


def draw_pairs(name: str, seed: int, order: ClassOrder, shape: GraphShape) -> Pairs:
    """Draw the edges: affinity blocks, then the remaining stubs within classes and among all nodes.

    Args:
        name: name of the stand-in.
        seed: a 64-bit integer.
        order: degrees and classes of the nodes.
        shape: clustering and homophily to reach.

    Returns:
        Pairs of public ids that meet the degrees, except for self loops and duplicates.
    """
    degrees, class_starts, public_ids = order
    starts = cut_blocks(degrees, class_starts, shape.largest_block)
    blocks = block_pairs(starts, block_density(degrees, starts, shape.block_clustering), key_of(name, seed, Draw.BLOCK))
    excess = degrees - _in_degrees(blocks, len(degrees))
    same, free = _split_excess(excess, degrees, class_starts, shape.homophily, key_of(name, seed, Draw.SHARE))
    one_group = torch.tensor([0, len(degrees)])
    within = match_stubs(same, class_starts, key_of(name, seed, Draw.SAME_CLASS))
    across = match_stubs(free, one_group, key_of(name, seed, Draw.FREE))
    return relabel(concatenate([blocks, within, across]), public_ids.to(torch.int32))


def _switch_edges(pairs: Pairs, deficit: Pairs, classes: Tensor, low_degree: Tensor, key: int) -> Pairs:
    """Add an edge to both ends of every deficit pair: a random edge (a, b) is replaced by (left, a) and (right, b).

    Hubs miss most edges, and matching them with one another would only duplicate edges; switching keeps the degrees of
    a and b. Edges between classes are replaced, so that blocks and homophily remain, and preferably between nodes of
    low degree.
    """
    across = between_classes(pairs, classes, low_degree)
    if len(across) < len(deficit.left):
        across = between_classes(pairs, classes, torch.ones_like(low_degree))
    count = min(len(deficit.left), len(across))
    replaced = across[random_subset(len(across), count, key)]
    freed = pairs.right[replaced]
    pairs.right[replaced] = deficit.left[:count]
    return concatenate([pairs, Pairs(deficit.right[:count], freed)])


def undirected_graph(name: str, seed: int, order: ClassOrder, shape: GraphShape) -> Graph:
    """Generate a simple undirected graph that meets degrees, clustering and homophily.

    Dropping duplicates leaves nodes below their degree; edge switches repair that in a few rounds.

    Args:
        name: name of the stand-in.
        seed: a 64-bit integer.
        order: degrees and classes of the nodes.
        shape: clustering and homophily to reach.

    Returns:
        The graph, with both directions stored and ascending rows.
    """
    nodes, classes = len(order.degrees), node_classes(order)
    targets = torch.empty_like(order.degrees)
    targets[order.public_ids] = order.degrees
    low_degree = targets <= _LOW_DEGREE * targets.double().mean()
    graph = simple_graph(draw_pairs(name, seed, order, shape), nodes)
    for turn in range(1, _ROUNDS):
        missing = (targets - graph.in_degrees()).clamp(min=0)
        if int(missing.sum()) <= _MAX_MISSING * int(targets.sum()):
            break
        deficit = match_stubs(missing, torch.tensor([0, nodes]), key_of(name, seed, Draw.FREE, turn))
        pairs = pairs_of_graph(graph)
        del graph  # frees memory: it is as large as the pairs and as the next graph
        pairs = _switch_edges(pairs, deficit, classes, low_degree, key_of(name, seed, Draw.SWITCH, turn))
        graph = simple_graph(pairs, nodes)
    return graph

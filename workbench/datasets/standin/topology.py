"""Undirected graphs with given degrees, clustering and homophily: affinity blocks, then class-aware random matching.

BTER (Seshadhri, Kolda, Pinar 2012) with two changes: the edges between blocks join nodes of one class more often
(degree-corrected stochastic block model; Karrer, Newman 2011), and they match stubs instead of drawing ends.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.datasets.standin.blocks import block_density, block_pairs, cut_blocks
from workbench.datasets.standin.matching import match_stubs, random_subset
from workbench.datasets.standin.pairs import Pairs, joined, pairs_of_graph, renamed, simple_graph, where_apart
from workbench.datasets.standin.spec import Recipe
from workbench.datasets.standin.streams import Draw, key_of
from workbench.kernels.csr import offsets

# Two nodes with d and e of a class's m stubs are matched about d e / m times. With at most this many times √m stubs
# each that stays well below one (the structural cut-off of Boguñá, Pastor-Satorras, Vespignani, Eur. Phys. J. B 2004).
_CUT_OFF = 0.4
# Pairs that make way have ends of at most this many times the mean degree: hubs have them as neighbours seldom.
_MODEST = 4.0
_ENOUGH = 0.002
_ROUNDS = 6


class Wiring(NamedTuple):
    """Nodes in order of class, and of degree within a class, and the public id of each."""

    degrees: Tensor
    class_starts: Tensor
    public_ids: Tensor


def class_sizes(nodes: int, classes: int, skew: float) -> Tensor:
    """int64 [classes]: sizes in proportion to (1 + class)^−skew that sum to `nodes`."""
    weights = torch.arange(1, classes + 1, dtype=torch.float64) ** -skew
    ends = (weights.cumsum(0) / weights.sum() * nodes).round().long()
    return ends.diff(prepend=ends.new_zeros(1))


def arrange(name: str, seed: int, degrees: Tensor, classes: int, skew: float) -> Wiring:
    """Give the nodes classes regardless of their degree, and public ids regardless of both.

    Args:
        name: of the stand-in.
        seed: any whole number.
        degrees: int64 [nodes], ascending.
        classes: how many.
        skew: of their sizes.
    """
    nodes = len(degrees)
    starts = offsets(class_sizes(nodes, classes, skew))
    member = torch.empty(nodes, dtype=torch.int32)
    member[permutation(key_of(name, seed, Draw.CLASS), nodes)] = torch.arange(
        classes, dtype=torch.int32
    ).repeat_interleave(starts.diff())
    order = torch.argsort(member, stable=True)
    return Wiring(degrees[order], starts, permutation(key_of(name, seed, Draw.NODE_ID), nodes))


def node_classes(wiring: Wiring) -> Tensor:
    """int64 [nodes] by public id: class of every node."""
    sizes = wiring.class_starts.diff()
    classes = torch.empty(len(wiring.degrees), dtype=torch.int64)
    classes[wiring.public_ids] = torch.arange(len(sizes)).repeat_interleave(sizes)
    return classes


def _same_class_share(homophily: float, degrees: Tensor, excess: Tensor, limit: Tensor, by_chance: float) -> float:
    """Share of the excess stubs to match within their class, so that edges of blocks and free ones give the rest."""
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
    """Stubs matched within the class, and free ones; the fraction of a stub is rounded at random."""
    by_class = offsets(excess)[class_starts].diff().double()
    limit = (_CUT_OFF * by_class.sqrt()).long().repeat_interleave(class_starts.diff())
    by_chance = float(((by_class / by_class.sum().clamp(min=1)) ** 2).sum())
    share = _same_class_share(homophily, degrees, excess, limit, by_chance)
    wanted = excess * share + uniform(key, torch.arange(len(excess)))
    same = torch.minimum(torch.minimum(wanted.long(), limit), excess)
    return same, excess - same


def _in_degrees(pairs: Pairs, nodes: int) -> Tensor:
    return sum((torch.bincount(ends, minlength=nodes) for ends in pairs), torch.zeros(nodes, dtype=torch.int64))


def draw_pairs(name: str, seed: int, wiring: Wiring, recipe: Recipe) -> Pairs:
    """Pairs that meet the degrees but for self loops and repeats, in public ids."""
    degrees, class_starts, public_ids = wiring
    starts = cut_blocks(degrees, class_starts, recipe.largest_block)
    blocks = block_pairs(
        starts, block_density(degrees, starts, recipe.block_clustering), key_of(name, seed, Draw.BLOCK)
    )
    excess = degrees - _in_degrees(blocks, len(degrees))
    same, free = _split_excess(excess, degrees, class_starts, recipe.homophily, key_of(name, seed, Draw.SHARE))
    everyone = torch.tensor([0, len(degrees)])
    within = match_stubs(same, class_starts, key_of(name, seed, Draw.SAME_CLASS))
    across = match_stubs(free, everyone, key_of(name, seed, Draw.FREE))
    return renamed(joined([blocks, within, across]), public_ids.to(torch.int32))


def _switched(pairs: Pairs, lacking: Pairs, classes: Tensor, modest: Tensor, key: int) -> Pairs:
    """Give both ends of every lacking pair an edge: a random pair (a, b) makes way for (left, a) and (right, b).

    Hubs lack most, and matched with one another they would only repeat their edges; a switch keeps the degrees of a and
    b. Pairs of two classes make way, so that blocks and homophily stay, and of `modest` nodes while there are enough.
    """
    across = where_apart(pairs, classes, modest)
    if len(across) < len(lacking.left):
        across = where_apart(pairs, classes, torch.ones_like(modest))
    count = min(len(lacking.left), len(across))
    at = across[random_subset(len(across), count, key)]
    freed = pairs.right[at]
    pairs.right[at] = lacking.left[:count]
    return joined([pairs, Pairs(lacking.right[:count], freed)])


def undirected_graph(name: str, seed: int, wiring: Wiring, recipe: Recipe) -> Graph:
    """A graph without self loops and repeats, both directions stored, rows ascending.

    Where repeats cost edges, the nodes that lack some get them in exchange for others, until hardly any is missing.

    Args:
        name: of the stand-in.
        seed: any whole number.
        wiring: degrees and classes.
        recipe: clustering and homophily.
    """
    nodes, classes = len(wiring.degrees), node_classes(wiring)
    targets = torch.empty_like(wiring.degrees)
    targets[wiring.public_ids] = wiring.degrees
    modest = targets <= _MODEST * targets.double().mean()
    graph = simple_graph(draw_pairs(name, seed, wiring, recipe), nodes)
    for turn in range(1, _ROUNDS):
        missing = (targets - graph.in_degrees()).clamp(min=0)
        if int(missing.sum()) <= _ENOUGH * int(targets.sum()):
            break
        lacking = match_stubs(missing, torch.tensor([0, nodes]), key_of(name, seed, Draw.FREE, turn))
        pairs = pairs_of_graph(graph)
        del graph  # as large as the pairs and as the graph to come
        pairs = _switched(pairs, lacking, classes, modest, key_of(name, seed, Draw.SWITCH, turn))
        graph = simple_graph(pairs, nodes)
    return graph

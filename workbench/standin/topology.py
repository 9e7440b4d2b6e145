"""Undirected graphs with given degrees, clustering and homophily: affinity blocks, then class-aware stub matching.

BTER (Seshadhri, Kolda, Pinar 2012) with two changes: edges between blocks prefer nodes of the same class
(degree-corrected stochastic block model; Karrer, Newman 2011), and are drawn by matching stubs.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.kernels.transpose import symmetric_rows
from workbench.standin.stand_in import Draw, GraphShape, key_of

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
        degrees: int64 [nodes], ascending.
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


class Pairs(NamedTuple):
    """Unordered pairs of nodes: two int32 vectors of equal length."""

    left: Tensor
    right: Tensor


def _in_degrees(pairs: Pairs, nodes: int) -> Tensor:
    return sum((torch.bincount(ends, minlength=nodes) for ends in pairs), torch.zeros(nodes, dtype=torch.int64))


def draw_pairs(name: str, seed: int, order: ClassOrder, shape: GraphShape) -> Pairs:
    """Draw the edges: affinity blocks, then the remaining stubs within classes and among all nodes.

    Args:
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


_MATCHING_ROUNDS = 4

_MIN_PAIRS = 1 << 14


@compiled
def shuffled(key, index, count, low_bits, high_bits):
    """Map `index` by a pseudo-random bijection of [0, count).

    A Feistel network of alternating halves, iterated until the result is in range (cycle walking; Black, Rogaway,
    "Ciphers with arbitrary finite domains", CT-RSA 2002).
    """
    low_mask, high_mask = (np.int64(1) << low_bits) - 1, (np.int64(1) << high_bits) - 1
    while True:
        high, low = index >> low_bits, index & low_mask
        for turn in range(_MATCHING_ROUNDS):
            high = (high ^ np.int64(hash_index(key + 2 * turn, low))) & high_mask
            low = (low ^ np.int64(hash_index(key + 2 * turn + 1, high))) & low_mask
        index = (high << low_bits) | low
        if index < count:
            return index


@compiled
def _pair(owners, first, count, key, low_bits, high_bits, lo, hi, left, right):
    for pair in range(lo, hi):
        left[pair] = owners[first + shuffled(key, 2 * pair, count, low_bits, high_bits)]
        right[pair] = owners[first + shuffled(key, 2 * pair + 1, count, low_bits, high_bits)]


def halves(count: int) -> tuple[int, int]:
    """Return the bits of the low and the high half of numbers below `count`."""
    bits = max(2, (count - 1).bit_length())
    return bits // 2, bits - bits // 2


def match_stubs(stubs: Tensor, group_starts: Tensor, key: int) -> Pairs:
    """Match the stubs of every group of nodes at random; self loops and duplicates occur, an odd stub remains.

    Args:
        stubs: int64 [nodes], number of stubs per node.
        group_starts: int64 [groups + 1], where every group of nodes begins.

    Returns:
        The pairs, group after group.
    """
    owners = torch.arange(len(stubs), dtype=torch.int32).repeat_interleave(stubs)
    bounds = offsets(stubs)[group_starts].tolist()
    total = sum((end - first) // 2 for first, end in pairwise(bounds))
    left, right = (torch.empty(total, dtype=torch.int32) for _ in range(2))
    o, at = owners.numpy(), 0
    for group, (first, end) in enumerate(pairwise(bounds)):
        count, pairs = end - first, (end - first) // 2
        low, high = halves(count)
        group_key = int(np.int64(key) ^ np.int64(group << 32))
        a, b = left[at : at + pairs].numpy(), right[at : at + pairs].numpy()

        def kernel(lo: int, hi: int, first=first, count=count, key=group_key, low=low, high=high, a=a, b=b) -> None:
            _pair(o, first, count, key, low, high, lo, hi, a, b)

        parallel_rows(kernel, pairs, _MIN_PAIRS)
        at += pairs
    return Pairs(left, right)


@compiled
def _choose(key, count, low_bits, high_bits, lo, hi, chosen):
    for i in range(lo, hi):
        chosen[i] = shuffled(key, i, count, low_bits, high_bits)


def random_subset(count: int, size: int, key: int) -> Tensor:
    """Draw distinct numbers below `count`: int64 [size].

    Args:
        count: exclusive upper bound.
        size: how many numbers to draw, at most `count`.
    """
    low, high = halves(count)
    chosen = torch.empty(size, dtype=torch.int64)
    c = chosen.numpy()
    parallel_rows(lambda lo, hi: _choose(key, count, low, high, lo, hi, c), size, _MIN_PAIRS)
    return chosen


@compiled
def _cut(degrees, class_starts, max_size, starts):
    """Write where blocks begin and return their number; a first node of degree d opens a block of d + 1 nodes."""
    count = 0
    for c in range(len(class_starts) - 1):
        at, end = class_starts[c], class_starts[c + 1]
        while at < end:
            starts[count] = at
            count += 1
            size = min(degrees[at] + 1, max_size) if degrees[at] > 1 else 1
            at = min(at + size, end)
    return count


def cut_blocks(degrees: Tensor, class_starts: Tensor, max_size: int) -> Tensor:
    """Cut the nodes into affinity blocks; a node of degree 1 is a block by itself.

    Args:
        degrees: int64 [nodes], ascending within every class.
        class_starts: int64 [classes + 1].

    Returns:
        int64 [blocks + 1], where blocks begin.
    """
    starts = torch.empty(len(degrees) + 1, dtype=torch.int64)
    count = _cut(degrees.numpy(), class_starts.numpy(), max_size, starts.numpy())
    starts[count] = len(degrees)
    return starts[: count + 1].clone()


def block_density(degrees: Tensor, starts: Tensor, clustering: float) -> float:
    """Compute the edge probability ρ within blocks that yields a mean local clustering coefficient.

    A node of degree d in a block of b nodes closes (b - 1)(b - 2) ρ³ / (d (d - 1)) of its pairs, not counting triangles
    with edges outside blocks.

    Args:
        degrees: int64 [nodes].
        starts: int64 [blocks + 1], where blocks begin.

    Returns:
        ρ.
    """
    sizes = starts.diff().repeat_interleave(starts.diff()).double()
    d = degrees.double()
    complete = float(((sizes - 1) * (sizes - 2) / (d * (d - 1)).clamp(min=1)).mean())
    if clustering > complete:
        raise ValueError(
            f"clustering is {clustering}, but complete blocks within such small classes reach only {complete:.3f}; "
            "pass a larger scale"
        )
    return (clustering / complete) ** (1 / 3)


@compiled
def _count_pairs(starts, density, key, lo, hi, counts):
    for block in range(lo, hi):
        size, block_key = starts[block + 1] - starts[block], hash_index(key, starts[block])
        for pair in range(size * (size - 1) // 2):
            counts[block] += unit_interval(hash_index(block_key, pair)) < density


@compiled
def _write_pairs(starts, density, key, lo, hi, slots, left, right):
    for block in range(lo, hi):
        first, slot = starts[block], slots[block]
        size, block_key = starts[block + 1] - first, hash_index(key, first)
        pair = 0
        for i in range(1, size):
            for j in range(i):
                if unit_interval(hash_index(block_key, pair)) < density:
                    left[slot], right[slot] = first + i, first + j
                    slot += 1
                pair += 1


def block_pairs(starts: Tensor, density: float, key: int) -> Pairs:
    """Draw every pair within a block with equal probability (an Erdős-Rényi graph per block).

    Args:
        starts: int64 [blocks + 1], where blocks begin.
    """
    sizes = starts.diff()
    work = offsets(sizes * (sizes - 1) // 2)
    counts = torch.zeros(len(sizes), dtype=torch.int64)
    s, c = starts.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count_pairs(s, density, key, lo, hi, c), work)
    slots = offsets(counts)
    left, right = (torch.empty(int(slots[-1]), dtype=torch.int32) for _ in range(2))
    p, a, b = slots.numpy(), left.numpy(), right.numpy()
    parallel_edges(lambda lo, hi: _write_pairs(s, density, key, lo, hi, p, a, b), work)
    return Pairs(left, right)


def concatenate(parts: list[Pairs]) -> Pairs:
    """Concatenate lists of pairs."""
    return Pairs(torch.cat([part.left for part in parts]), torch.cat([part.right for part in parts]))


@compiled
def _relabel(ids, new_ids, lo, hi):
    for i in range(lo, hi):
        ids[i] = new_ids[ids[i]]


def relabel(pairs: Pairs, new_ids: Tensor) -> Pairs:
    """Replace node v by `new_ids[v]`, in place.

    Args:
        pairs: the pairs; modified.
        new_ids: int32 [nodes].

    Returns:
        `pairs`.
    """
    n = new_ids.numpy()
    for ids in (ends.numpy() for ends in pairs):
        parallel_rows(lambda lo, hi, ids=ids: _relabel(ids, n, lo, hi), len(ids))
    return pairs


def drop_self_loops(pairs: Pairs) -> Pairs:
    """Drop pairs of a node with itself, in place: the last pairs fill the gaps, which are few."""
    loops = (pairs.left == pairs.right).nonzero()[:, 0]
    count = len(pairs.left) - len(loops)
    gaps = loops[loops < count]
    moved = count + (pairs.left[count:] != pairs.right[count:]).nonzero()[:, 0]
    for ends in pairs:
        ends[gaps] = ends[moved]
    return Pairs(pairs.left[:count], pairs.right[:count])


def simple_graph(pairs: Pairs, nodes: int) -> Graph:
    """Build the undirected graph of some pairs: both directions, ascending rows, no self loops, no duplicates.

    Args:
        pairs: the pairs; modified.
    """
    pairs = drop_self_loops(pairs)
    csr = symmetric_rows(pairs.left, pairs.right, None, nodes)
    return Graph(csr.indptr, csr.indices)


@compiled
def _count_below(indptr, indices, lo, hi, counts):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            counts[v] += indices[e] < v


@compiled
def _write_below(indptr, indices, lo, hi, slots, left, right):
    for v in range(lo, hi):
        slot = slots[v]
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] < v:
                left[slot], right[slot] = v, indices[e]
                slot += 1


def pairs_of_graph(graph: Graph) -> Pairs:
    """List every edge of an undirected graph once, in one direction."""
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, c = graph.indptr.numpy(), graph.indices.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count_below(p, i, lo, hi, c), graph.indptr)
    slots = offsets(counts)
    left, right = (torch.empty(int(slots[-1]), dtype=torch.int32) for _ in range(2))
    s, a, b = slots.numpy(), left.numpy(), right.numpy()
    parallel_edges(lambda lo, hi: _write_below(p, i, lo, hi, s, a, b), graph.indptr)
    return Pairs(left, right)


@compiled
def _mark_between_classes(left, right, classes, allowed, lo, hi, found):
    for i in range(lo, hi):
        a, b = left[i], right[i]
        found[i] = classes[a] != classes[b] and allowed[a] and allowed[b]


def between_classes(pairs: Pairs, classes: Tensor, allowed: Tensor) -> Tensor:
    """Find the pairs of nodes of different classes that are both allowed: int64, positions in `pairs`.

    Args:
        classes: int64 [nodes].
        allowed: bool [nodes].
    """
    found = torch.empty(len(pairs.left), dtype=torch.bool)
    a, b, c, d, out = (t.numpy() for t in (*pairs, classes, allowed, found))
    parallel_rows(lambda lo, hi: _mark_between_classes(a, b, c, d, lo, hi, out), len(found))
    return found.nonzero()[:, 0]

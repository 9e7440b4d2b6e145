"""What a stand-in's nodes have: features that are weakly informative of the class, labels, splits and dates."""

import math

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import permutation, uniform
from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.standin.stand_in import Draw, StandIn, key_of

_CHUNK_ROWS = 1 << 14

_LABELS_PER_CLASS = 8  # frequent ones

_FREQUENT, _RARE = 0.7, 0.03  # probabilities of a label

_LOW, _S16, _S32, _S48 = (np.uint64(word) for word in (0xFFFF, 16, 32, 48))

_MEAN, _PER_DEVIATION = 2.0 * 65535, 1 / math.sqrt((2.0**32 - 1) / 3)


@compiled
def _near_normal(bits):
    """Standardized sum of four 16-bit uniform variates: nearly normal, and identical on every machine."""
    total = (bits & _LOW) + ((bits >> _S16) & _LOW) + ((bits >> _S32) & _LOW) + (bits >> _S48)
    return (float(total) - _MEAN) * _PER_DEVIATION


@compiled
def _fill(first, classes, centres, key, lo, hi, x):
    for row in range(lo, hi):
        row_key = hash_index(key, first + row)
        for f in range(x.shape[1]):
            x[row, f] = _near_normal(hash_index(row_key, f)) + centres[classes[row], f]


def _add_noise(first: int, classes: Tensor, centres: Tensor, key: int, x: Tensor) -> None:
    c, m, out = classes.numpy(), centres.numpy(), x.numpy()
    parallel_rows(lambda lo, hi: _fill(first, c, m, key, lo, hi, out), len(x))


def class_centres(name: str, seed: int, classes: int, width: int, signal: float) -> Tensor:
    """Draw a random direction of length `signal` for every class: float32 [classes, width]."""
    centres = torch.empty(classes, width)
    flat = torch.zeros(classes, dtype=torch.int64)
    _add_noise(0, flat, torch.zeros(1, width), key_of(name, seed, Draw.CENTRE), centres)
    return (centres.double() * (signal / centres.double().norm(dim=1, keepdim=True))).float()


def features(spec: StandIn, seed: int, classes: Tensor) -> Tensor:
    """Draw features: a class centre of length `spec.signal` plus noise of variance 1 per channel.

    The features of one node are weakly informative of its class, the mean over its neighbours strongly.

    Args:
        spec: the stand-in: width, classes, signal and dtype (float16 is rounded from float32).
        seed: a 64-bit integer.
        classes: int64 [nodes].

    Returns:
        `spec.feature_dtype` [nodes, spec.features].
    """
    centres = class_centres(spec.name, seed, spec.classes, spec.features, spec.signal)
    key = key_of(spec.name, seed, Draw.NOISE)
    x = torch.empty(len(classes), spec.features, dtype=spec.feature_dtype)
    if x.dtype == torch.float32:
        _add_noise(0, classes, centres, key, x)
        return x
    buffer = torch.empty(min(_CHUNK_ROWS, len(classes)), spec.features)
    for start in range(0, len(classes), _CHUNK_ROWS):
        rows = x[start : start + _CHUNK_ROWS]
        _add_noise(start, classes[start : start + len(rows)], centres, key, buffer[: len(rows)])
        rows.copy_(buffer[: len(rows)])
    return x


def multi_labels(name: str, seed: int, classes: Tensor, num_labels: int) -> Tensor:
    """Draw several labels per node: a class has a few labels that most of its nodes have; the others are rare.

    Args:
        classes: int64 [nodes].

    Returns:
        float32 [nodes, num_labels] of 0 and 1.
    """
    key = key_of(name, seed, Draw.LABEL)
    share = torch.full((num_labels, num_labels), _RARE, dtype=torch.float64)
    for c in range(num_labels):
        share[c, permutation(key + 1 + c, num_labels)[:_LABELS_PER_CLASS]] = _FREQUENT
    y = torch.empty(len(classes), num_labels)
    for start in range(0, len(classes), _CHUNK_ROWS):
        chunk = classes[start : start + _CHUNK_ROWS]
        ids = (torch.arange(start, start + len(chunk)) * num_labels)[:, None] + torch.arange(num_labels)
        y[start : start + len(chunk)] = (uniform(key, ids) < share[chunk]).float()
    return y


def split_nodes(
    name: str, seed: int, nodes: int, sizes: tuple[int, int, int], date: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw training, validation and test nodes at random, and split them by date if there are dates.

    Args:
        sizes: numbers of training, validation and test nodes.
        date: int32 [nodes], rank by date: training nodes are the oldest, test nodes the newest; None: random split.

    Returns:
        int64 ids of the three parts, ascending.
    """
    chosen = permutation(key_of(name, seed, Draw.SPLIT), nodes)[: sum(sizes)]
    if date is not None:
        chosen = chosen[torch.argsort(date[chosen])]
    train, val, test = (part.sort().values for part in chosen.split(list(sizes)))
    return train, val, test


# In ogbn-arxiv a third of a node's edges are in-edges, whatever its degree, up to a few times the mean degree; beyond,
# the share rises to nearly 1 within two decades. Dates that decrease with the logarithm of the degree reproduce that.
_YOUNG_DEGREES = 3.0

_AGE_PER_FACTOR_OF_TWO = 0.35


def dates(name: str, seed: int, graph: Graph) -> Tensor:
    """Rank the nodes by random date; nodes of high degree tend to be old.

    Args:
        graph: an undirected graph with both directions stored.

    Returns:
        int32 [nodes], 0 is the oldest.
    """
    mean = graph.num_edges / graph.num_nodes
    degrees = graph.in_degrees().double()
    age = _AGE_PER_FACTOR_OF_TWO * torch.log2(degrees.clamp(min=1) / (_YOUNG_DEGREES * mean)).clamp(min=0)
    born = uniform(key_of(name, seed, Draw.TIME), torch.arange(graph.num_nodes)) - age
    ranks = torch.empty(graph.num_nodes, dtype=torch.int32)
    ranks[torch.argsort(born, stable=True)] = torch.arange(graph.num_nodes, dtype=torch.int32)
    return ranks


@compiled
def _cites(u, v, date, mutual, key):
    """Decide whether u cites v: u is newer, or the pair is mutual."""
    low, high = (u, v) if u < v else (v, u)
    return date[u] > date[v] or unit_interval(hash_index(hash_index(key, low), high)) < mutual


@compiled
def _count(indptr, indices, date, mutual, key, lo, hi, counts):
    for v in range(lo, hi):
        for e in range(indptr[v], indptr[v + 1]):
            counts[v] += _cites(indices[e], v, date, mutual, key)


@compiled
def _write(indptr, indices, date, mutual, key, lo, hi, slots, out):
    for v in range(lo, hi):
        slot = slots[v]
        for e in range(indptr[v], indptr[v + 1]):
            if _cites(indices[e], v, date, mutual, key):
                out[slot] = indices[e]
                slot += 1


def citations(graph: Graph, date: Tensor, reciprocity: float, key: int) -> Graph:
    """Direct an undirected graph: the in-neighbours of a node are those that cite it.

    Args:
        graph: an undirected graph with both directions stored.
        date: int32 [nodes], rank of every node by date.
        reciprocity: share of the edges whose reverse exists too.
        key: key of the random stream that chooses mutual pairs.
    """
    mutual = reciprocity / (2 - reciprocity)  # probability per pair
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64)
    p, i, d, c = graph.indptr.numpy(), graph.indices.numpy(), date.numpy(), counts.numpy()
    parallel_edges(lambda lo, hi: _count(p, i, d, mutual, key, lo, hi, c), graph.indptr)
    indptr = offsets(counts)
    indices = torch.empty(int(indptr[-1]), dtype=torch.int32)
    s, o = indptr.numpy(), indices.numpy()
    parallel_edges(lambda lo, hi: _write(p, i, d, mutual, key, lo, hi, s, o), graph.indptr)
    return Graph(indptr, indices)


def num_pairs(edges: int, reciprocity: float) -> int:
    """Count the unordered pairs that m directed edges of reciprocity r join: m (1 - r / 2)."""
    return round(edges * (1 - reciprocity / 2))

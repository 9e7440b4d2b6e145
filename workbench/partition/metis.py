"""METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) and Mt-KaHyPar, each run in a subprocess."""

import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream
from workbench.kernels.transpose import symmetric_rows
from workbench.partition.balance import cut_evenly, fill_empty_parts
from workbench.partition.isolated import METIS, MT_KAHYPAR, run_program

_MEAN_WEIGHT = 1000  # to which fractional weights are scaled: steps of 0.1 % are finer than METIS balances


def metis(
    indptr: Tensor,
    indices: Tensor,
    num_parts: int,
    *,
    edge_weight: Tensor | None = None,
    weights: Tensor | None = None,
    seed: int = 0,
    imbalance: float = 0.03,
    rounds: int = 10,
    recursive: bool = False,
    time_limit_seconds: float | None = None,
) -> Tensor:
    """Partition a symmetric graph into parts of equal weight with minimum edge cut: int64 [n], in [0, num_parts).

    Runs METIS with its defaults in a subprocess. Empty parts (many parts of few nodes) receive nodes of the largest
    ones, so that every part has a node. A graph without edges is cut evenly in node order. The seed matters only from
    about 30 nodes per part on: METIS does not coarsen smaller graphs.

    Args:
        indptr: int64 [n + 1].
        indices: int64 [num_edges]; both directions of every edge, no self loops.
        num_parts: number of parts, 1 to n.
        edge_weight: int64 [num_edges], positive, the same in both directions; None: 1 each.
        weights: [n], non-negative weight of every node; None: 1 each.
        imbalance: allowed excess of a part's weight over the mean, as a fraction; METIS's default is 0.03.
        rounds: refinement passes per level; METIS's default is 10.
        recursive: bisect recursively instead of METIS's k-way method; faster for few nodes per part.
        time_limit_seconds: METIS is ended after this many seconds; None: no limit.

    Raises as `run_program`.
    """
    count = len(indptr) - 1
    if num_parts in (1, count) or not len(indices):
        return cut_evenly(torch.arange(count), num_parts, weights)
    part = run_program(
        METIS,
        {
            "indptr": indptr,
            "indices": indices,
            "vertex_weights": None if weights is None else whole_weights(weights),
            "edge_weights": edge_weight,
        },
        {
            "num_parts": num_parts,
            "seed": stream(seed, Purpose.PARTITION) & 0x7FFFFFFF,
            "imbalance": imbalance,
            "rounds": rounds,
            "recursive": recursive,
        },
        num_results=count,
        time_limit_seconds=time_limit_seconds,
    )
    return fill_empty_parts(part, num_parts)


def whole_weights(weights: Tensor, max_total: int = 1 << 40) -> Tensor:
    """Convert weights to the positive integers that partitioners require; scale them unless they already are such.

    Args:
        weights: [n], non-negative, not all zero.
        max_total: bound of their sum, up to rounding; the scaled mean is 1000, or less if the bound requires it.

    >>> whole_weights(torch.tensor([0.5, 1.5])).tolist()
    [500, 1500]
    """
    total = float(weights.sum(dtype=torch.float64))
    if not weights.is_floating_point() and int(weights.min()) >= 1 and total <= max_total:
        return weights.to(torch.int64)
    mean = min(_MEAN_WEIGHT, max_total / len(weights))
    scaled = weights.to(torch.float64) * (mean * len(weights) / total)
    return scaled.round().to(torch.int64).clamp_(min=1)


def symmetric_adjacency(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Convert a square CSR to the undirected simple graph that METIS requires, in int64."""
    count = len(indptr) - 1
    rows = torch.repeat_interleave(torch.arange(count, dtype=indices.dtype), indptr.diff())
    proper = rows != indices
    csr = symmetric_rows(rows[proper], indices[proper], None, count)
    return csr.indptr, csr.indices.to(torch.int64)


_MAX_TOTAL_WEIGHT = 1 << 30  # Mt-KaHyPar sums weights in 32 bits


def mtkahypar(
    indptr: Tensor,
    pins: Tensor,
    net_weights: Tensor,
    num_vertices: int,
    num_parts: int,
    *,
    weights: Tensor | None = None,
    seed: int = 0,
    imbalance: float = 0.03,
    preset: str = "DEFAULT",
    time_limit_seconds: float | None = None,
) -> Tensor:
    """Partition a hypergraph into parts of equal weight with minimum connectivity, Σ net weight · (parts touched - 1).

    Args:
        indptr: int64 [num_nets + 1].
        pins: int32 [num_pins], the vertices of every net: two or more, each once.
        net_weights: int64 [num_nets], positive.
        num_parts: number of parts, 1 to `num_vertices`; none is left empty.
        weights: [num_vertices], non-negative weight of every vertex; None: 1 each.
        imbalance: allowed excess of a part's weight over the mean, as a fraction.
        preset: preset of Mt-KaHyPar: DEFAULT, QUALITY, LARGE_K, DETERMINISTIC, …
        time_limit_seconds: Mt-KaHyPar is ended after this many seconds; None: no limit.

    Raises as `run_program`.
    """
    if num_parts in (1, num_vertices) or not len(net_weights):
        return cut_evenly(torch.arange(num_vertices), num_parts, weights)
    ones = torch.ones(num_vertices, dtype=torch.int64)
    vertex_weights = ones if weights is None else whole_weights(weights, _MAX_TOTAL_WEIGHT)
    part = run_program(
        MT_KAHYPAR,
        {"indptr": indptr, "pins": pins, "net_weights": net_weights, "vertex_weights": vertex_weights},
        {
            "num_parts": num_parts,
            "seed": stream(seed, Purpose.PARTITION) & 0x7FFFFFFF,
            "imbalance": imbalance,
            "preset": preset,
        },
        num_results=num_vertices,
        time_limit_seconds=time_limit_seconds,
    )
    return fill_empty_parts(part, num_parts)

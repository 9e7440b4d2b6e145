"""METIS (Karypis and Kumar, SIAM J. Sci. Comput. 20(1), 1998) through pymetis, as batch and graph partitions use it."""

import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream
from workbench.kernels.csr import symmetric_rows
from workbench.partition.even import cut_evenly, fill_empty_parts
from workbench.partition.worker import METIS, run_program

_MEAN_WEIGHT = 1000  # of weights that are not whole numbers yet: a thousandth of the mean is finer than METIS balances


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
    time_limit_seconds: float | None = None,
) -> Tensor:
    """Cut a symmetric graph into parts of equal weight with few (or light) edges between them.

    METIS's k-way method with its defaults, in a process of its own: minimum edge cut, parts up to 3 % heavier than the
    mean. Where it leaves parts empty (many parts for few nodes) they get nodes of the largest ones, so every part has a
    node. Without edges there is nothing to cut, and the nodes are cut evenly in order. Seeds make a difference from
    about 30 nodes a part on: smaller graphs are cut without coarsening.

    Args:
        indptr: int64 [n + 1].
        indices: int64 [num_edges]; both directions of every edge, no loops.
        num_parts: parts, 1 to n.
        edge_weight: int64 [num_edges], positive, the same in both directions; None: 1 each.
        weights: [n], non-negative weight of every node; None: 1 each.
        seed: the same seed gives the same parts.
        imbalance: by which share parts may be heavier than the mean; METIS's own is 0.03.
        rounds: of refinement at every level; METIS's own number is 10.
        time_limit_seconds: end METIS after that; None: never.

    Returns:
        int64 [n], in [0, num_parts).

    Raises:
        ImportError: pymetis is not installed.
        PartitionError: METIS failed, crashed or overran its time.
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
        },
        num_results=count,
        time_limit_seconds=time_limit_seconds,
    )
    return fill_empty_parts(part, num_parts)


def whole_weights(weights: Tensor, most_total: int = 1 << 40) -> Tensor:
    """Weights as the positive whole numbers partitioners take: as they are if they are such, else scaled.

    Args:
        weights: [n], non-negative, not all zero.
        most_total: their sum may not be more, by far; the mean is 1000 or what this leaves.

    >>> whole_weights(torch.tensor([0.5, 1.5])).tolist()
    [500, 1500]
    """
    total = float(weights.sum(dtype=torch.float64))
    if not weights.is_floating_point() and int(weights.min()) >= 1 and total <= most_total:
        return weights.to(torch.int64)
    mean = min(_MEAN_WEIGHT, most_total / len(weights))
    scaled = weights.to(torch.float64) * (mean * len(weights) / total)
    return scaled.round().to(torch.int64).clamp_(min=1)


def symmetric_adjacency(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """`indptr` and `indices` (int64: METIS takes them without a copy) of the undirected simple graph of a square CSR.

    Args:
        indptr: int64 [n + 1].
        indices: int32 or int64 [num_edges], in [0, n).
    """
    count = len(indptr) - 1
    rows = torch.repeat_interleave(torch.arange(count, dtype=indices.dtype), indptr.diff())
    proper = rows != indices
    csr = symmetric_rows(rows[proper], indices[proper], None, count)
    return csr.indptr, csr.indices.to(torch.int64)

"""Mt-KaHyPar (Gottesbüren et al., ACM TALG 20(1), 2024): hypergraph partitioning for the connectivity objective."""

import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream
from workbench.partition.balance import cut_evenly, fill_empty_parts
from workbench.partition.isolated import MT_KAHYPAR, run_program
from workbench.partition.metis import whole_weights

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
        num_vertices: number of vertices.
        num_parts: number of parts, 1 to `num_vertices`; none is left empty.
        weights: [num_vertices], non-negative weight of every vertex; None: 1 each.
        seed: the same seed gives the same parts.
        imbalance: allowed excess of a part's weight over the mean, as a fraction.
        preset: preset of Mt-KaHyPar: DEFAULT, QUALITY, LARGE_K, DETERMINISTIC, …
        time_limit_seconds: Mt-KaHyPar is ended after this many seconds; None: no limit.

    Returns:
        int64 [num_vertices], in [0, num_parts).

    Raises:
        ImportError: mtkahypar is not installed.
        PartitionError: Mt-KaHyPar failed, crashed or overran its time limit.
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

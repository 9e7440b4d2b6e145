"""Mt-KaHyPar (Gottesbüren et al., ACM TALG 20(1), 2024): cuts of a hypergraph for the connectivity objective."""

import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream
from workbench.partition.even import cut_evenly, fill_empty_parts
from workbench.partition.metis import whole_weights
from workbench.partition.worker import MT_KAHYPAR, run_program

_MOST_TOTAL = 1 << 30  # Mt-KaHyPar adds weights up in 32 bits


def cut_nets(
    indptr: Tensor,
    pins: Tensor,
    net_weights: Tensor,
    count: int,
    num_parts: int,
    *,
    weights: Tensor | None = None,
    seed: int = 0,
    imbalance: float = 0.03,
    preset: str = "DEFAULT",
    time_limit_seconds: float | None = None,
) -> Tensor:
    """Cut vertices into parts of equal weight so that nets touch few: least Σ net weight · (parts touched − 1).

    Args:
        indptr: int64 [num_nets + 1].
        pins: int32 [num_pins], vertices of every net, two or more, each once.
        net_weights: int64 [num_nets], positive.
        count: vertices.
        num_parts: parts, 1 to `count`; each gets a vertex.
        weights: [count], non-negative weight of every vertex; None: 1 each.
        seed: the same seed gives the same parts.
        imbalance: by which share parts may be heavier than the mean.
        preset: of Mt-KaHyPar: DEFAULT, QUALITY, LARGE_K, DETERMINISTIC, …
        time_limit_seconds: end it after that; None: never.

    Returns:
        int64 [count], in [0, num_parts).

    Raises:
        ImportError: mtkahypar is not installed.
        PartitionError: Mt-KaHyPar failed, crashed or overran its time.
    """
    if num_parts in (1, count) or not len(net_weights):
        return cut_evenly(torch.arange(count), num_parts, weights)
    vertex_weights = torch.ones(count, dtype=torch.int64) if weights is None else whole_weights(weights, _MOST_TOTAL)
    part = run_program(
        MT_KAHYPAR,
        {"indptr": indptr, "pins": pins, "net_weights": net_weights, "vertex_weights": vertex_weights},
        {
            "num_parts": num_parts,
            "seed": stream(seed, Purpose.PARTITION) & 0x7FFFFFFF,
            "imbalance": imbalance,
            "preset": preset,
        },
        num_results=count,
        time_limit_seconds=time_limit_seconds,
    )
    return fill_empty_parts(part, num_parts)

"""Algorithm 1 of the data-placement paper: duplicates of the hottest rows are traded for coverage, device by device.

Every device starts with the hottest rows. A device gives up the coldest row that all hold for the hottest that none
holds, as long as p(new) > α · p(old); one device per round keeps its copy. With α = peer / host cost the device that
gives up its copy gains. The sum over n devices falls as long as p(new) > α / (n (1 − α) + α) · p(old), and that
threshold minimises it.

Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs",
algorithm 1.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.placement.problem import PlacementProblem


def trade_duplicates(problem: PlacementProblem, *, threshold: float | None, printed: bool) -> list[Tensor]:
    """Return each device's rows by Algorithm 1, run per group of devices.

    Args:
        problem: devices of a group have buffers of one size and one cost of reading from each other.
        threshold: α; None: that of the problem's objective.
        printed: as printed: every n-th candidate is skipped for good, and a slot lasts for n candidates. Otherwise
            corrected: n − 1 candidates per slot, none skipped.
    """
    buffers = [torch.empty(0, dtype=torch.int64)] * problem.num_devices
    for group in problem.groups:
        part = problem.restricted(group)
        ratio, size = _cost_ratio(part), int(part.capacity[0])
        if threshold is not None:
            alpha = float(threshold)
        else:
            alpha = ratio if problem.objective == "largest" else ratio / (len(group) * (1 - ratio) + ratio)
        ranks = np.tile(np.arange(size), (len(group), 1))
        _trade(part.ranked.numpy(), alpha, printed, ranks)
        for device, held in zip(group, ranks, strict=True):
            buffers[device] = problem.order[torch.from_numpy(held)]
    return buffers


def _cost_ratio(problem: PlacementProblem) -> float:
    """Peer cost / host cost of a group in which all pairs have the same."""
    n = problem.num_devices
    peers = problem.costs[:, :-1][~torch.eye(n, dtype=torch.bool)]
    host = problem.costs[:, -1]
    one = [len(values.unique()) <= 1 for values in (peers, host, problem.capacity)]
    if not all(one):
        what = ("peer_cost", "host_cost", "rows_per_device")[one.index(False)]
        raise ValueError(
            f'Algorithm 1 needs the same {what} for all devices of a group; use method="search", which takes any, or '
            "name the groups of equal peers in groups="
        )
    return float(peers[0] / host[0]) if n > 1 and host[0] > 0 else 1.0


@compiled
def _trade(p, alpha, printed, ranks):
    """Replace ranks in the buffers; `ranks` [n, size] starts as 0 … size − 1 in each row."""
    n, size = ranks.shape
    gained, order = np.zeros(n), np.arange(n)
    per_round = n if printed else n - 1
    for i in range(min(len(p), n * size) - size):
        turn, slot = i % per_round, size - 1 - i // per_round
        if turn == 0:
            for a in range(n):  # ascending gains, ties by index: an insertion sort
                order[a] = a
                b = a
                while b > 0 and gained[order[b - 1]] > gained[order[b]]:
                    order[b - 1], order[b] = order[b], order[b - 1]
                    b -= 1
        if printed and turn == n - 1:
            continue
        device, new = order[turn], size + i
        if p[new] <= alpha * p[slot]:
            break
        ranks[device, slot] = new
        gained[device] += p[new]

"""`place_rows`: choose the rows that each device of a machine holds, by one of several methods."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.errors import check_choice, check_ids, check_seed, check_vector
from workbench.core.randomness import Purpose, permutation, stream
from workbench.placement.algorithm1 import trade_duplicates
from workbench.placement.placement import Placement
from workbench.placement.problem import Costs, PlacementProblem, make_problem
from workbench.placement.search import search

PLACEMENT_METHODS = ("algorithm-1", "algorithm-1-printed", "search", "hottest", "naive", "random", "parts")
"""Names of the placement methods. "parts" needs the part of each row."""

Parts = Tensor | Sequence[Tensor]


def place_rows(
    p: Tensor,
    *,
    num_devices: int,
    rows_per_device: int | Sequence[int] | Tensor,
    peer_cost: Costs,
    host_cost: float | Sequence[float] | Tensor = 1.0,
    groups: Sequence[Sequence[int]] | None = None,
    method: str = "algorithm-1",
    objective: str = "largest",
    threshold: float | None = None,
    parts: Parts | None = None,
    seed: int = 0,
) -> Placement:
    """Choose which feature rows each device holds, so that few reads cross slow links.

    A device reads a row from its own buffer (free), otherwise from the cheapest peer that holds it, otherwise from the
    host. All devices read every row v with the same probability p(v).

    Args:
        p: float64 or float32 [num_rows], how likely a batch reads each row, or anything proportional to it
            (`inclusion_probability`).
        num_devices: number of devices, 1 to 62.
        rows_per_device: rows that each device has room for: one number, or one per device.
        peer_cost: cost of a row held by another device, in any unit: one number, or a matrix [num_devices, num_devices]
            of what a device (row) pays for a row of another (column). At most the host's; equal to it: no link.
        host_cost: cost of a row of the host: one number, or one per device.
        groups: lists of devices with links among each other; across groups a peer costs as much as the host. None: all
            devices have links.
        method: a name of `PLACEMENT_METHODS`. "algorithm-1": the paper's trade of duplicates for coverage, corrected;
            one peer cost and one buffer size per group. "algorithm-1-printed": as printed, which skips every n-th row.
            "search": any costs and buffer sizes, by a linear relaxation, rounding and exchanges; at most 12 devices per
            group. "hottest": the most probable rows on every device. "naive", "random": the most probable rows of
            contiguous ids, or of a random part. "parts": those of each device's part.
        objective: "largest": expected cost of the device that pays most; "total": the sum over all devices.
        threshold: α of Algorithm 1: duplicates p(old) are given up for p(new) > α · p(old). None: peer cost / host cost
            = α for "largest", α / (n (1 − α) + α) for "total", n devices per group. For Algorithm 1 alone.
        parts: for "parts" alone: int64 or int32 [num_rows], the device of each row (`partition_graph`), or per device
            the ids of its part, which may overlap (`pagraph_parts`).
        seed: of "random".

    Returns:
        The placement: buffers, lookup, expected costs, and a lower bound of the cost.

    Raises:
        TypeError: an argument of another type.
        ValueError: an impossible value, arguments that do not belong to the method, or a group that it does not take.
        IndexError: a part or an id out of range.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs".

    >>> import torch
    >>> p = torch.tensor([0.0, 5, 4, 3, 2, 1])  # hottest first: 1, 2, 3, 4, 5, 0
    >>> placed = place_rows(p, num_devices=2, rows_per_device=2, peer_cost=0.3)
    >>> [rows.tolist() for rows in placed.buffers]
    [[1, 3], [4, 2]]
    """
    check_choice("method", method, PLACEMENT_METHODS)
    check_seed(seed)
    _check_options(method, threshold, parts)
    problem = make_problem(
        p,
        num_devices=num_devices,
        rows_per_device=rows_per_device,
        peer_cost=peer_cost,
        host_cost=host_cost,
        groups=groups,
        objective=objective,
    )
    return Placement(problem, method, tuple(_buffers(problem, method, threshold, parts, seed)))


def _buffers(
    problem: PlacementProblem, method: str, threshold: float | None, parts: Parts | None, seed: int
) -> list[Tensor]:
    match method:
        case "search":
            return search(problem)
        case "hottest":
            return hottest_rows(problem)
        case "naive":
            return naive_rows(problem)
        case "random":
            return random_rows(problem, seed)
        case "parts":
            return hottest_of_parts(problem, parts)
        case _:
            return trade_duplicates(problem, threshold=threshold, printed=method == "algorithm-1-printed")


def _check_options(method: str, threshold: float | None, parts: Parts | None) -> None:
    if threshold is not None and not method.startswith("algorithm-1"):
        raise ValueError(f'threshold= is for Algorithm 1 alone, but method is "{method}"; leave threshold out')
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold!r}; α must be in [0, 1]")
    if parts is not None and method != "parts":
        raise ValueError(f'parts= is for method="parts" alone, but method is "{method}"; leave parts out')


def hottest_rows(problem: PlacementProblem) -> list[Tensor]:
    """Every device holds the most probable rows: the best placement if peers are as expensive as the host (rule 1)."""
    return [problem.order[:size] for size in problem.capacity.tolist()]


def naive_rows(problem: PlacementProblem) -> list[Tensor]:
    """Contiguous ids: each device holds the hottest rows of its share of the ids."""
    return _hottest_of_shares(problem, torch.arange(problem.num_rows))


def random_rows(problem: PlacementProblem, seed: int) -> list[Tensor]:
    """Each device holds the hottest rows of its share of a random permutation of the ids."""
    return _hottest_of_shares(problem, permutation(stream(seed, Purpose.PARTITION), problem.num_rows))


def _hottest_of_shares(problem: PlacementProblem, ids: Tensor) -> list[Tensor]:
    ends = [problem.num_rows * i // problem.num_devices for i in range(problem.num_devices + 1)]
    return hottest_of_parts(problem, [ids[first:end] for first, end in pairwise(ends)])


def hottest_of_parts(problem: PlacementProblem, parts: Parts | None) -> list[Tensor]:
    """Each device holds the most probable rows of its part of the graph.

    Args:
        parts: int64 [num_rows], the device of each row; or the ids of each device, which may overlap.
    """
    n = problem.num_devices
    if parts is None:
        raise ValueError('method="parts" needs parts=, the device of each row, such as wb.partition_graph(graph, n)')
    if isinstance(parts, Tensor):
        check_vector("parts", parts, problem.num_rows, (torch.int64, torch.int32))
        owner = check_ids("parts", parts, n).cpu()[problem.order]
        sorted_ids = [problem.order[owner == device] for device in range(n)]
    else:
        if len(parts) != n:
            raise ValueError(f"parts has {len(parts)} entries for {n} devices; pass the ids of each device")
        sorted_ids = [_by_rank(problem, check_ids("parts", ids, problem.num_rows, unique=True).cpu()) for ids in parts]
    return [ids[:size] for ids, size in zip(sorted_ids, problem.capacity.tolist(), strict=True)]


def _by_rank(problem: PlacementProblem, ids: Tensor) -> Tensor:
    chosen = torch.zeros(problem.num_rows, dtype=torch.bool)
    chosen[ids] = True
    return problem.order[chosen[problem.order]]

"""Placements without a model of costs: contiguous ids, random rows, and the hottest rows of all or of a part."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.core.errors import check_ids, check_vector
from workbench.core.randomness import Purpose, permutation, stream
from workbench.placement.problem import PlacementProblem

Parts = Tensor | Sequence[Tensor]


def hottest_rows(problem: PlacementProblem) -> list[Tensor]:
    """Every device holds the most probable rows: the best placement if peers are as expensive as the host (rule 1)."""
    return [problem.order[:size] for size in problem.capacity.tolist()]


def naive_rows(problem: PlacementProblem) -> list[Tensor]:
    """Contiguous ids: each device holds the hottest rows of its share of the ids."""
    n, rows = problem.num_devices, torch.arange(problem.num_rows)
    return hottest_of_parts(
        problem, [rows[problem.num_rows * i // n : problem.num_rows * (i + 1) // n] for i in range(n)]
    )


def random_rows(problem: PlacementProblem, seed: int) -> list[Tensor]:
    """Each device holds the hottest rows of its share of a random permutation of the ids."""
    n, rows = problem.num_devices, permutation(stream(seed, Purpose.PARTITION), problem.num_rows)
    return hottest_of_parts(
        problem, [rows[problem.num_rows * i // n : problem.num_rows * (i + 1) // n] for i in range(n)]
    )


def hottest_of_parts(problem: PlacementProblem, parts: Parts | None) -> list[Tensor]:
    """Each device holds the most probable rows of its part of the graph.

    Args:
        problem: the placement's inputs.
        parts: int64 [num_rows], the device of each row; or the ids of each device, which may overlap.

    Raises:
        ValueError: no parts, or not one per device.
        IndexError: a device or an id out of range.
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

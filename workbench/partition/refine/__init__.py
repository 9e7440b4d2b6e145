"""Refinement of a batch partition: Fiduccia–Mattheyses passes that move seeds between parts at positive gain.

Bytes of all layers are counted exactly, on a contracted graph of the batch; it takes any partition, and returns one
whose largest part, or whose total, is smaller or equal.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    available_bytes,
    check_bytes,
    check_choice,
    check_tensors,
    check_type,
    check_vector,
)
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import ByteCosts, check_weights
from workbench.partition.refine.computation_graph import ContractedGraph, computation_graph, contract
from workbench.partition.refine.fm import PinCounts, count_pins, fm_pass

OBJECTIVES = ("largest", "total")
_MAX_GROWTH = {"largest": 1.0, "total": 1.05}  # bound of every part's bytes, relative to the largest part at the start
_MIN_MOVED = 1000  # a pass that moves fewer than one seed in this many is the last
_IMBALANCE = 1.03  # bound of a part's weight, relative to the mean; METIS's default


class _Schedule(NamedTuple):
    """Passes of the refinement.

    Args:
        powers: exponent of a part's bytes in the objective, per pass: more weight for larger parts.
        num_candidates: parts per seed whose gain is computed exactly.
        slack: fraction of a seed's share of bytes by which a candidate's estimated gain may be negative.
    """

    powers: tuple[float, ...]
    num_candidates: int
    slack: float


_SCHEDULES = {"largest": _Schedule((4.0,) * 2, 1, 0.05), "total": _Schedule((1.0,), 2, 0.1)}
_ANNEALED = _Schedule((2.0, 16.0, 64.0), 1, 0.03)
"""Of "largest" with a model's costs: removes redundancy first, then makes the largest part as small as the others. A
fourth pass and more candidates lower the largest part by another 0.6 %, in 1.4 times the time."""


def refine_parts(
    mb: MiniBatch,
    part: Tensor,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    costs: ByteCosts | None = None,
    max_bytes: int | None = None,
) -> Tensor:
    """Move seeds between micro-batches, one at a time, to shrink the largest micro-batch or the sum of all.

    The gain of a move is exact over all layers: the bytes of input nodes and edges that no other seed of the old part
    needs, minus those that the new part doesn't have yet. "largest" lowers the sum over parts of the 4th power of
    their bytes, and no part grows beyond the initially largest; "total" lowers the sum of bytes, and no part grows
    more than 5 % beyond it. No part loses its last seed. "largest" makes two passes over the seeds, with `costs`
    three of rising power (2, 16, 64); "total" makes one.

    Args:
        mb: the batch.
        part: int64 or int32 [num_seeds], any partition of its seeds, such as `partition_batch` returns.
        objective: "largest" or "total".
        weights: [num_seeds], non-negative weight of every seed: no part grows beyond 1.03 times the mean weight or
            the initially heaviest part, whichever is more. None: no such bound.
        costs: bytes per node and edge of each layer; None: 512 per input node (128 features in float32), 16 per edge.
        max_bytes: memory that the refinement may allocate; None: the memory that the machine has available.

    Returns:
        int64 [num_seeds], on the batch's device.

    Raises:
        ValueError: an unknown objective, wrong length, a negative label, weights that can't be balanced, or the batch
            has exchanges.
        TypeError: tensors of another dtype.
        CapacityError: it would need more than `max_bytes`.

    Source: the objective, the largest micro-batch, is Betty's (ASPLOS 2023, section 4.4); the moves are those of
    Fiduccia and Mattheyses (DAC 1982), without moves of negative gain.
    """
    check_choice("objective", objective, OBJECTIVES)
    check_type("mb", mb, MiniBatch, "pass the MiniBatch, then its partition")
    refuse_halo(mb.exchanges, "refined")
    check_tensors(part=part)
    check_vector("part", part, mb.num_seeds, ID_DTYPES)
    weights = check_weights(weights, mb.num_seeds)
    if not mb.num_seeds or not mb.blocks:
        return part.to(mb.device, torch.int64)
    if int(part.min()) < 0:
        raise ValueError(f"part contains {int(part.min())}; labels must be non-negative")
    labels, compact = torch.unique(part.cpu(), return_inverse=True)  # labels without seeds are no parts
    if max_bytes is not None:
        max_bytes = check_bytes("max_bytes", max_bytes, 0)
    graph, options = contract(computation_graph(mb, costs)), {"objective": objective, "weights": weights}
    refined = refine(graph, compact, len(labels), max_bytes=max_bytes, anneal=costs is not None, **options)
    return labels[refined].to(mb.device, torch.int64)


def refine(
    graph: ContractedGraph,
    part: Tensor,
    num_parts: int,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    max_bytes: int | None = None,
    anneal: bool = False,
) -> Tensor:
    """Refine a partition, int64 [num_seeds] on the CPU, of a batch whose contracted graph exists; see `refine_parts`.

    With `anneal`, for the objective "largest", the power rises from pass to pass.

    Raises:
        CapacityError: it would need more than `max_bytes`.
    """
    limit = available_bytes() if max_bytes is None else max_bytes
    pins = count_pins(graph, part, num_parts, limit)
    state = _state(part, pins, weights)
    schedule = _ANNEALED if anneal and objective == "largest" else _SCHEDULES[objective]
    bounds = _bounds(pins, state, objective, weights)
    scratch, previous = _scratch(graph), 0.0
    for power in schedule.powers:
        if power != previous:
            scratch.examined[:] = 0  # gains have changed for all seeds
        settings = (power, schedule.num_candidates, schedule.slack, *bounds)
        moves = fm_pass(graph.arrays(), pins.arrays(), state, settings, tuple(scratch))
        if power == schedule.powers[-1] and moves * _MIN_MOVED < len(part):
            break
        previous = power
    return torch.from_numpy(state[0])


def _state(part: Tensor, pins: PinCounts, weights: Tensor | None) -> tuple[Any, ...]:
    """The arrays that moves update: parts of seeds, bytes of parts, weights of seeds, weights and sizes of parts."""
    weight = torch.zeros(len(part), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    count = pins.num_parts
    part_weight = torch.bincount(part, weights=weight, minlength=count)
    part_size = torch.bincount(part, minlength=count)
    return (part.clone().numpy(), pins.part_bytes, weight.numpy(), part_weight.numpy(), part_size.numpy())


def _bounds(pins: PinCounts, state: tuple[Any, ...], objective: str, weights: Tensor | None) -> tuple[float, float]:
    """The bounds of a part's bytes and weight."""
    part_weight = state[3]
    max_weight = np.inf if weights is None else max(float(part_weight.max()), _IMBALANCE * float(part_weight.mean()))
    max_part_bytes = _MAX_GROWTH[objective] * float(pins.part_bytes.max())
    return max_part_bytes, max_weight


class _Scratch(NamedTuple):
    """Arrays of a pass: stack; visited, removed and changed per node; examined per seed; clock."""

    stack: Any
    visited: Any
    removed: Any
    changed: Any
    examined: Any
    clock: Any


def _scratch(graph: ContractedGraph) -> _Scratch:
    nodes, seeds = len(graph.node_bytes), graph.num_seeds
    return _Scratch(
        np.empty(len(graph.sources) + nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(seeds, np.int32),
        np.zeros(2, np.int64),
    )

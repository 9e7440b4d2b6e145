"""Refinement of a batch partition: Fiduccia–Mattheyses passes that move seeds between parts at positive gain."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.capacity import available_bytes
from workbench.core.errors import ID_DTYPES, check_bytes, check_choice, check_tensors, check_type, check_vector
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import check_weights
from workbench.partition.refine.computation_graph import ComputationGraph, computation_graph
from workbench.partition.refine.fm import fm_pass
from workbench.partition.refine.pin_counts import PinCounts, count_pins

OBJECTIVES = ("largest", "total")
_POWER = {"largest": 4.0, "total": 1.0}  # exponent of a part's bytes in the objective: more weight for larger parts
_MAX_GROWTH = {"largest": 1.0, "total": 1.05}  # bound of every part's bytes, relative to the largest part at the start
_SLACK = {"largest": 0.1, "total": 0.25}  # fraction of a seed's sources by which a candidate's estimate may be negative
_NUM_CANDIDATES = 2  # parts per seed whose gain is computed exactly
_MAX_PASSES = 3
_MIN_MOVED = 1000  # a pass that moves fewer than one seed in this many is the last
_IMBALANCE = 1.03  # bound of a part's weight, relative to the mean; METIS's default


def refine_parts(
    mb: MiniBatch,
    part: Tensor,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    max_bytes: int | None = None,
) -> Tensor:
    """Move seeds between micro-batches, one at a time, to shrink the largest micro-batch or the sum of all.

    The gain of a move is exact over all layers: the bytes of input nodes and edges that no other seed of the old part
    needs, minus those that the new part doesn't have yet. An input node counts 512 bytes (128 features in float32),
    an edge 16. "largest" lowers the sum over parts of the 4th power of their bytes, and no part grows beyond the
    initially largest; "total" lowers the sum of bytes, and no part grows more than 5 % beyond it. No part loses its
    last seed. Makes up to three passes over the seeds.

    Args:
        mb: the batch.
        part: int64 or int32 [num_seeds], any partition of its seeds, such as `partition_batch` returns.
        objective: "largest" or "total".
        weights: [num_seeds], non-negative weight of every seed: no part grows beyond 1.03 times the mean weight or
            the initially heaviest part, whichever is more. None: no such bound.
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
        check_bytes("max_bytes", max_bytes, 0)
    limit = available_bytes() if max_bytes is None else max_bytes
    refined = _refine(computation_graph(mb), compact, len(labels), objective, weights, limit)
    return labels[refined].to(mb.device, torch.int64)


def _refine(
    graph: ComputationGraph, part: Tensor, num_parts: int, objective: str, weights: Tensor | None, max_bytes: int
) -> Tensor:
    pins = count_pins(graph, part, num_parts, max_bytes)
    state = _state(part, pins, weights)
    settings = _settings(pins, state, objective, weights)
    scratch = _scratch(graph)
    for _ in range(_MAX_PASSES):
        moves, position = 0, 0
        while position < len(part):
            more, position = fm_pass(graph.arrays(), pins.arrays(), state, settings, scratch, position)
            moves += more
            if position < len(part):  # the hash table is full, mostly with nodes that have left their part
                pins = count_pins(graph, torch.from_numpy(state[0]), num_parts, max_bytes)
        if moves * _MIN_MOVED < len(part):
            break
    return torch.from_numpy(state[0])


def _state(part: Tensor, pins: PinCounts, weights: Tensor | None) -> tuple[Any, ...]:
    """The arrays that moves update: parts of seeds, bytes of parts, weights of seeds, weights and sizes of parts."""
    weight = torch.zeros(len(part), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    count = pins.num_parts
    part_weight = torch.bincount(part, weights=weight, minlength=count)
    part_size = torch.bincount(part, minlength=count)
    return (part.clone().numpy(), pins.part_bytes, weight.numpy(), part_weight.numpy(), part_size.numpy())


def _settings(pins: PinCounts, state: tuple[Any, ...], objective: str, weights: Tensor | None) -> tuple[Any, ...]:
    """The numbers that decide on moves: power, candidates, slack, and the bounds of a part's bytes and weight."""
    part_weight = state[3]
    max_weight = np.inf if weights is None else max(float(part_weight.max()), _IMBALANCE * float(part_weight.mean()))
    max_part_bytes = _MAX_GROWTH[objective] * float(pins.part_bytes.max())
    return _POWER[objective], _NUM_CANDIDATES, _SLACK[objective], max_part_bytes, max_weight


def _scratch(graph: ComputationGraph) -> tuple[Any, ...]:
    """Scratch arrays of a pass: stack, visited, removed and changed per node, examined per seed, clock."""
    nodes, seeds = len(graph.node_bytes), graph.num_seeds
    return (
        np.empty(len(graph.sources) + nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(seeds, np.int32),
        np.zeros(2, np.int64),
    )

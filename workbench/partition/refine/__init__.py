"""Refinement of a partition of a batch: outputs move where they need less, as long as that pays."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_bytes, check_choice, check_tensors, check_type, check_vector
from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.partition.refine.moves import sweep
from workbench.partition.refine.presence import Presence, count_presence
from workbench.partition.refine.trees import Trees, computation_trees
from workbench.partition.weights import check_weights

OBJECTIVES = ("largest", "total")
_POWER = {"largest": 4.0, "total": 1.0}  # of a part's cost, by which larger ones count more
_GROWTH = {"largest": 1.0, "total": 1.05}  # of the largest part, at most
_PROMISE = {"largest": 0.1, "total": 0.25}  # share of its sources by which an output's candidate may fall short
_CANDIDATES = 2
_SWEEPS = 3
_FEW = 1000  # a sweep that moves less than one output in so many is the last
_UNEVEN = 1.03  # of the mean weight, as METIS


def refine_parts(
    mb: MiniBatch,
    part: Tensor,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    max_bytes: int | None = None,
) -> Tensor:
    """Move outputs between micro-batches, one by one, so that the largest one shrinks, or all together.

    What an output saves where it leaves and costs where it goes is worked out over all layers: bytes of the input nodes
    and edges of every layer that no other output of the part needs. An input counts 512 bytes (128
    features in float32) and an edge 16. "largest" lowers the sum over parts of the 4th power of their bytes, and no
    part grows beyond what the largest was; "total" lowers the sum of bytes, and no part grows 5 % beyond that. No part
    loses its last output. Up to three sweeps over the outputs.

    Args:
        mb: the batch.
        part: int64 [num_seeds], any partition of it, such as `partition_batch` returns.
        objective: "largest" or "total".
        weights: [num_seeds], non-negative weight of every seed: parts keep within 3 % above the mean weight, or the
            heaviest they were. None: weights don't matter.
        max_bytes: memory that it may take; None: what the machine has left.

    Returns:
        int64 [num_seeds], on the batch's device.

    Raises:
        ValueError: an unknown objective, another length, a negative label, weights that can't be balanced.
        TypeError: tensors of another dtype.
        CapacityError: it would take more than `max_bytes`.

    Source: the objective is Betty's (ASPLOS 2023, section 4.4), the largest micro-batch; the moves are those of
    Fiduccia and Mattheyses (DAC 1982), without negative ones.
    """
    check_choice("objective", objective, OBJECTIVES)
    check_type("mb", mb, MiniBatch, "pass the MiniBatch, then its partition")
    check_tensors(part=part)
    check_vector("part", part, mb.num_seeds, ID_DTYPES)
    weights = check_weights(weights, mb.num_seeds)
    if not mb.num_seeds or not mb.blocks:
        return part.to(mb.device, torch.int64)
    if int(part.min()) < 0:
        raise ValueError(f"part holds {int(part.min())}; labels must not be negative")
    labels, compact = torch.unique(part.cpu(), return_inverse=True)  # labels without outputs are no parts
    if max_bytes is not None:
        check_bytes("max_bytes", max_bytes, 0)
    limit = available_bytes() if max_bytes is None else max_bytes
    trees = computation_trees(mb)
    moved = _refine(trees, compact, len(labels), objective, weights, limit)
    return labels[moved].to(mb.device, torch.int64)


def _refine(
    trees: Trees, part: Tensor, num_parts: int, objective: str, weights: Tensor | None, max_bytes: int
) -> Tensor:
    presence = count_presence(trees, part, num_parts, max_bytes)
    state = _state(part, presence, weights)
    rule = _rule(presence, state, objective, weights)
    scratch = _scratch(trees)
    for _ in range(_SWEEPS):
        moves, done = 0, 0
        while done < len(part):
            more, done = sweep(trees.arrays(), presence.arrays(), state, rule, scratch, done)
            moves += more
            if done < len(part):  # the table is full, most of it with nodes that have left
                presence = count_presence(trees, torch.from_numpy(state[0]), num_parts, max_bytes)
        if moves * _FEW < len(part):
            break
    return torch.from_numpy(state[0])


def _state(part: Tensor, presence: Presence, weights: Tensor | None) -> tuple[Any, ...]:
    weight = torch.zeros(len(part), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    count = presence.num_parts
    load = torch.bincount(part, weights=weight, minlength=count)
    members = torch.bincount(part, minlength=count)
    return (part.clone().numpy(), presence.part_bytes, weight.numpy(), load.numpy(), members.numpy())


def _rule(presence: Presence, state: tuple[Any, ...], objective: str, weights: Tensor | None) -> tuple[Any, ...]:
    load = state[3]
    most_load = np.inf if weights is None else max(float(load.max()), _UNEVEN * float(load.mean()))
    most_bytes = _GROWTH[objective] * float(presence.part_bytes.max())
    return _POWER[objective], _CANDIDATES, _PROMISE[objective], most_bytes, most_load


def _scratch(trees: Trees) -> tuple[Any, ...]:
    nodes, outputs = len(trees.cost), trees.num_outputs
    return (
        np.empty(len(trees.children) + nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(outputs, np.int32),
        np.zeros(2, np.int64),
    )

"""Compares a model on a small batch with the same model on the parts of this batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from workbench.core.minibatch import MiniBatch
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward
from workbench.training.exactness.small_batch import SmallBatch, overlap
from workbench.training.isolated_backward import leaves_of


class UndecidedError(Exception):
    """A trial can't tell whether the model is exact; the message states why."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a module.

    Args:
        module: the module.
        arguments: floating [num_seeds, …], the seeds' rows of all arguments with a row per node of some layer.
        results: the same of its results.
    """

    module: nn.Module
    arguments: list[Tensor]
    results: list[Tensor]


@dataclass(frozen=True, eq=False)
class Pass:
    """Forward and backward pass of a batch.

    Args:
        batch: the batch, or a part of it.
        outputs: floating [num_seeds, …], the tensors that the model returned.
        calls: the calls of its modules, in the order in which they returned.
    """

    batch: MiniBatch
    outputs: list[Tensor]
    calls: list[Call]


@dataclass(frozen=True, eq=False)
class Trial:
    """The whole batch and its parts, each after one forward and backward pass.

    Args:
        whole: the batch.
        parts: its parts.
        deviation: by how much outputs or gradients of the parts differ from the whole batch's, relative to the largest
            value of these outputs, and to the norm of these gradients.
        can_fail: in every layer, parts share nodes, and each reads nodes whose rows others have and it lacks.
    """

    whole: Pass
    parts: list[Pass]
    deviation: float
    can_fail: bool


def try_model(model: nn.Module, parameters: list[Tensor], small: SmallBatch, inputs: Inputs, forward: Forward) -> Trial:
    """Run a batch as a whole and in parts.

    Args:
        model: the module, whose calls are recorded.
        parameters: the leaves that accumulate gradients; `.grad` of all others is put back.
        small: a small batch and the part of each seed.
        inputs: its rows.
        forward: calls the model.

    Raises:
        UndecidedError: The model returned no finite tensor with a row per seed, or nothing but zeros.
    """
    batch = small.mb
    rows = tree_map(_as_leaf, (inputs.x, inputs.aggregated))
    leaves = [*parameters, *(t for t in tree_leaves(rows) if isinstance(t, Tensor) and t.requires_grad)]
    whole = _run(model, batch, Inputs(*rows), forward, leaves, None)
    expected = _taken_gradients(leaves)
    if not all(bool(t.isfinite().all()) for t in (*whole.outputs, *expected)):
        raise UndecidedError("its outputs or gradients on the small batch are not finite")
    if not any(bool(t.any()) for t in (*whole.outputs, *expected)):
        raise UndecidedError("its outputs and gradients on the small batch are all 0")
    parts = []
    for part in batch.split(small.part):
        of_part = Inputs(*tree_map(partial(_rows_of_part, part, batch.num_inputs), rows))
        parts.append(_run(model, part, of_part, forward, leaves, part.parent))
    deviations = [_relative(_norm(expected, _taken_gradients(leaves)), _norm(expected))]
    for position, out in enumerate(whole.outputs):
        pieces = [(out[seed_positions(part.batch)] - part.outputs[position]).abs().max() for part in parts]
        deviations.append(_relative(float(torch.stack(pieces).max()), float(out.abs().max())))
    common = overlap([part.batch for part in parts])
    return Trial(whole, parts, max(deviations), not batch.blocks or (common.shares and common.lacks))


def _run(
    model: nn.Module, mb: MiniBatch, inputs: Inputs, forward: Forward, leaves: list[Tensor], parent: Tensor | None
) -> Pass:
    calls: list[Call] = []
    with torch.enable_grad():
        with _recorded(model, mb, calls):
            result = forward(mb, inputs)
        outputs = [t[: mb.num_seeds] for t in tree_leaves(result) if _has_rows(t, mb.num_seeds)]
        if not outputs:
            raise UndecidedError("it returns no floating-point tensor with a row per seed")
        seeds = torch.arange(mb.num_seeds, device=mb.device) if parent is None else parent[: mb.num_seeds]
        loss = sum(((t * _coefficients(t, seeds)).sum() for t in outputs), start=torch.zeros((), device=mb.device))
        if loss.requires_grad:
            _backward(loss, leaves)
    return Pass(mb, [t.detach() for t in outputs], calls)


def _backward(loss: Tensor, leaves: list[Tensor]) -> None:
    """Accumulate gradients in `leaves`; those of other leaves, such as a module outside of the model, are put back."""
    own = {id(leaf) for leaf in leaves}
    others = [(leaf, leaf.grad) for leaf in leaves_of(loss) if id(leaf) not in own]
    try:
        for leaf, _ in others:
            leaf.grad = None
        loss.backward()
    finally:
        for leaf, grad in others:
            leaf.grad = grad


def _as_leaf(rows: Any) -> Any:
    """Detach rows, so that a backward pass ends there."""
    return rows.detach().requires_grad_(rows.is_floating_point()) if isinstance(rows, Tensor) else rows


def _rows_of_part(part: MiniBatch, total: int, rows: Any) -> Any:
    return rows[part.parent] if isinstance(rows, Tensor) and rows.shape[:1] == (total,) else rows


def _taken_gradients(leaves: list[Tensor]) -> list[Tensor]:
    """Return all gradients, zeros for leaves without one, and remove them."""
    found = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.to_dense() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return found


def _coefficients(out: Tensor, seeds: Tensor) -> Tensor:
    """Coefficients of a random-looking linear loss, which depend on the seed and the channel."""
    channels = torch.arange(out[0].numel(), device=out.device).view(out.shape[1:])
    return torch.cos(7.0 * seeds.view(-1, *[1] * (out.dim() - 1)) + 3.0 * channels + 1).to(out.dtype)


def _norm(tensors: list[Tensor], subtracted: list[Tensor] | None = None) -> float:
    """Euclidean norm of all values, or of the differences."""
    if subtracted is not None:
        tensors = [a - b for a, b in zip(tensors, subtracted, strict=True)]
    return float(sum((t.double().square().sum().cpu() for t in tensors), start=torch.zeros(())).sqrt())


def _relative(difference: float, scale: float) -> float:
    """The quotient; infinite if anything differs from values that are all 0 or is not a number."""
    if difference == 0:
        return 0.0
    return difference / scale if scale and difference == difference else float("inf")


def seed_positions(part: MiniBatch) -> Tensor:
    """Position of a part's seeds in the batch."""
    assert part.parent is not None
    return part.parent[: part.num_seeds]


def _has_rows(value: Any, count: int) -> bool:
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() == 0 or not value.numel():
        return False
    return value.shape[0] >= count > 0 and value.untyped_storage().nbytes() > 0  # reversible layers free their input


@contextmanager
def _recorded(model: nn.Module, mb: MiniBatch, calls: list[Call]) -> Iterator[None]:
    """Record what every module of the model reads and returns for the seeds."""
    sizes = {mb.num_inputs, *(block.num_dst for block in mb.blocks)}

    def ofseed_positions(values: Any) -> list[Tensor]:
        found = (t for t in tree_leaves(values) if _has_rows(t, mb.num_seeds) and len(t) in sizes)
        return [t[: mb.num_seeds].detach().clone() for t in found]

    def hook(module: nn.Module, arguments: Any, result: Any) -> None:
        calls.append(Call(module, ofseed_positions(arguments), ofseed_positions(result)))

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

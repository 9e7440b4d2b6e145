"""Warns once per model, before its first step in micro-batches, if these are not exact."""

import sys
import warnings
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from workbench.core.minibatch import MiniBatch
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward
from workbench.training.exactness.check import check_exact, check_parts
from workbench.training.exactness.result import Exactness

_CHECKED: WeakKeyDictionary[nn.Module, set[Any]] = WeakKeyDictionary()
"""The modes in which each model was checked."""


def warn_if_inexact(
    model: nn.Module, forward: Forward | None, parts: list[MiniBatch] | None, mb: MiniBatch, inputs: Inputs
) -> None:
    """Warn of a model whose micro-batches are not exact; check it once per model and modes of its modules.

    A model that is inexact, but not in these micro-batches, is checked again with the next ones.

    Args:
        model: the module; of a data-parallel one the module inside is checked.
        forward: the caller's call of the model; None for the default one.
        parts: the micro-batches of the batch; None if it is not known into which ones it will be split.
        mb: a micro-batch.
        inputs: its inputs.

    Warns:
        RuntimeWarning: The model is inexact; the message names the module and an alternative.
    """
    if mb.exchanges is not None or _is_too_early(model, mb) or not _is_new(model):
        return
    _report(model, check_parts(_tried_model(model, forward), mb, parts, x=inputs, forward=forward))


def warn_if_batch_inexact(model: nn.Module | None, batch: Any) -> None:
    """Warn of a model whose micro-batches are not exact, before a batch of any library is split.

    Args:
        model: the module; None checks nothing.
        batch: a `MiniBatch`, DGL blocks or a batch of PyG.

    Warns:
        RuntimeWarning: The model is inexact; the message names the module and an alternative.
    """
    if model is None or getattr(batch, "exchanges", None) is not None or not _is_new(model):
        return
    _report(model, check_exact(_tried_model(model, None), batch))


def _report(model: nn.Module, result: Exactness) -> None:
    if result.exact is None and result.kind:
        _CHECKED[model].discard(_modes(model))
    if result.exact is False:
        warnings.warn(str(result), RuntimeWarning, stacklevel=_level_of_caller())


def _is_new(model: nn.Module) -> bool:
    """Return whether a model has not been checked in its current modes, and note that it is."""
    modes = _modes(model)
    checked = _CHECKED.setdefault(model, set())
    is_new = modes not in checked
    checked.add(modes)
    return is_new


def _modes(model: nn.Module) -> tuple[Any, ...]:
    return tuple((type(module), module.training) for module in model.modules())


def _tried_model(model: nn.Module, forward: Forward | None) -> nn.Module:
    """The module inside a data-parallel one, whose calls communicate."""
    inner = model.module if forward is None and hasattr(model, "no_sync") else model
    assert isinstance(inner, nn.Module)
    return inner


def _is_too_early(model: nn.Module, mb: MiniBatch) -> bool:
    """Return whether a later micro-batch may decide what this one can't."""
    return mb.num_inputs < 4 or any(nn.parameter.is_lazy(p) for p in model.parameters())


def _level_of_caller() -> int:
    """Stack level, for `warnings.warn` in the calling function, of the first frame outside of the library."""
    level, frame = 0, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("workbench."):
        level, frame = level + 1, frame.f_back
    return level + 1

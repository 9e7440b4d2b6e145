"""Tries a model on small batches: in a dtype, without dropout, with the batch's rows and with random ones."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from workbench.core.minibatch import MiniBatch
from workbench.nn.inputs import Inputs
from workbench.nn.signature import Forward, model_device
from workbench.training.exactness.borrowed_model import MODES, borrowed_model, random_state
from workbench.training.exactness.small_batch import (
    OF_ITS_DEGREES,
    WIRINGS,
    Overlap,
    SmallBatch,
    Wiring,
    overlap,
    small_batch,
)
from workbench.training.exactness.trial import Trial, UndecidedError, try_model

_PARTS_OF_BATCH = 4
INEXACT = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.1}
"""A deviation that it does not explain."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is tried: a model, a batch, its rows, the call, and the parts that the batch was split into, if it was."""

    model: nn.Module
    mb: MiniBatch
    rows: Inputs
    forward: Forward
    parts: list[MiniBatch] | None

    def overlap(self) -> Overlap:
        """What the parts of the large batch have in common."""
        mb = self.mb
        parts = self.parts or mb.split(torch.arange(mb.num_seeds, device=mb.device) % _PARTS_OF_BATCH)
        return overlap(parts)


def trials_of(subject: Subject, dtype: torch.dtype | None) -> Iterator[Trial]:
    """Try a model on each wiring that it runs on, at least one.

    Raises:
        Exception: The one of the first wiring, if it runs on none.
    """
    errors: list[Exception] = []
    for number, wiring in enumerate((*WIRINGS, OF_ITS_DEGREES)):
        if wiring is OF_ITS_DEGREES and len(errors) < number:
            return
        try:
            trial = try_wiring(subject, dtype, wiring, randomised=number == 1)
        except Exception as error:
            errors.append(error)
        else:
            yield trial
    if len(errors) > len(WIRINGS):
        raise errors[0]


def try_wiring(subject: Subject, dtype: torch.dtype | None, wiring: Wiring, *, randomised: bool = False) -> Trial:
    """Try a model on one small batch.

    Args:
        subject: what is tried.
        dtype: dtype of the trial; None for the model's.
        wiring: the sources of the batch.
        randomised: replace features by random ones, and parameters that are 0.

    Raises:
        UndecidedError: The parts differ from the whole, but the model draws random numbers.
    """
    model, mb = subject.model, subject.mb
    small, device = small_batch(mb, dtype, wiring), model_device(model) or mb.device
    assert small is not None
    rows = Inputs(
        *(_taken_rows(t, mb, small, device, dtype, randomised) for t in (subject.rows.x, subject.rows.aggregated))
    )
    small = SmallBatch(small.mb.to(device), small.rows.to(device), small.part.to(device))
    with warnings.catch_warnings(action="ignore"), _uncompiled():
        before, trial, is_random = random_state(model), None, True
        for modes in MODES:  # the first in which nothing is random, so that runs can be compared
            with borrowed_model(model, dtype, modes=modes) as parameters:
                if randomised and dtype is not None:
                    _replace_zeros(parameters)
                trial = try_model(model, parameters, small, rows, subject.forward)
                is_random = not all(map(torch.equal, before, random_state(model)))
            if not is_random:
                break
    assert trial is not None
    own_dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if is_random and not trial.deviation <= INEXACT[dtype or own_dtype]:
        raise UndecidedError("the model draws random numbers in eval mode too")
    return trial


def _replace_zeros(parameters: list[Tensor]) -> None:
    """Replace values that are 0, such as those of a gate before training, which hide what they multiply."""
    generator = torch.Generator().manual_seed(1)
    for parameter in parameters:
        noise = 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = torch.where(parameter.data == 0, noise.to(parameter), parameter.data)


def _taken_rows(
    rows: Any, mb: MiniBatch, small: SmallBatch, device: torch.device, dtype: torch.dtype | None, randomised: bool
) -> Any:
    """The small batch's rows of all tensors with a row per input, on the model's device; other tensors are kept."""
    total, count = mb.num_inputs, small.mb.num_inputs
    generator = torch.Generator().manual_seed(2)

    def taken(value: Any) -> Any:
        if isinstance(value, Tensor):
            has_rows = value.shape[:1] in ((total,), (count,))
            value = value[small.rows.to(value.device)] if value.shape[:1] == (total,) else value
            if randomised and has_rows and value.is_floating_point():
                value = torch.randn(value.shape, generator=generator).to(value)
            return value.detach().to(device, dtype if value.is_floating_point() else None)
        if value is None or isinstance(value, (int, float, str)):
            return value
        raise UndecidedError(f"its inputs contain a {type(value).__name__}, of which rows can't be taken")

    if isinstance(rows, Tensor) and rows.shape[:1] not in ((total,), (count,)):
        raise UndecidedError(f"x has shape {tuple(rows.shape)}, but the batch {total} inputs; pass x[batch.node_ids]")
    return tree_map(taken, rows)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules eagerly; compiling them for a small batch would take seconds."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()

"""Dry runs: training steps of a copy of a model on random features, with their allocations recorded."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_choice
from workbench.core.minibatch import MiniBatch
from workbench.error_text import line_of, text_of
from workbench.interop.pyg_parts import rows_not_read
from workbench.memory.optimizer import OPTIMIZERS
from workbench.memory.traced.trace import AllocationRecorder, AllocationTrace
from workbench.meter.training_state import allocated_bytes, parameter_tensors, state_tensors
from workbench.nn.inputs import Inputs
from workbench.nn.losses import LossFunction, SeedLoss, describe, first_tensor
from workbench.nn.signature import default_forward, model_device

_WINDOW_STRIDE = 7919  # a prime, so that windows of batches of different sizes begin at different rows


class StepFailedError(ValueError):
    """A training step on a sub-batch failed; the message states the original error."""


class DryRun:
    """A model's training step, run on copies of the model and its optimizer.

    Args:
        model: a module that `workbench.accumulate` can call, in training or evaluation mode.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer of the model's parameters.
        in_dim: channels of the features.
        loss_fn: a loss function that `workbench.train_step` accepts.
        seed: seed of the random features and of the model's own randomness.

    Raises:
        ValueError: The optimizer is unknown, `in_dim` is below 1, or the model can't be copied.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: str | torch.optim.Optimizer,
        in_dim: int,
        loss_fn: LossFunction,
        seed: int = 0,
    ) -> None:
        check_at_least("in_dim", in_dim, 1)
        self.model, self._optimizer = _copy_model_and_optimizer(model, optimizer)
        self.device = model_device(model) or torch.device("cpu")
        self._call = default_forward(self.model)
        self._in_dim, self._seed = in_dim, seed
        self._seed_loss, self._labels_for = SeedLoss.of(loss_fn, "mean"), class_labels
        floating = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        self._dtype = next(floating, torch.get_default_dtype())
        self.gradient_bytes = self.update_bytes = 0
        self._rows = torch.empty(0, in_dim)
        self._names_read: frozenset[str] = frozenset()  # by the first step

    def warm_up(self, mb: MiniBatch) -> None:
        """Take a first step, which finds labels that the loss accepts and initialises the optimizer state.

        Raises:
            ValueError: The step fails; the message states the original error.
        """
        self._draw_rows(mb.num_inputs)
        with self._isolated(mb):
            on_device = replace(mb, parent=None).to(self.device)
            self._labels_for = find_labels(self._seed_loss, self._forward(on_device, self._features(mb)))
            self._step(on_device, AllocationRecorder(self.device.type))
            self.gradient_bytes = allocated_bytes(p.grad for p in self.model.parameters())
            self._optimizer.step()
            self.update_bytes = self._record(self._update).highest_peak()

    def record(self, mb: MiniBatch, *, accumulating: bool) -> AllocationTrace:
        """Record the allocations of a micro-batch's forward and backward pass, in phases of these names.

        Args:
            mb: the micro-batch; its own arrays are not recorded, nor are labels if `keeps_labels`.
            accumulating: gradients (those of the last recording) exist at the start.

        Raises:
            ValueError: The step fails; the message states the original error.
        """
        self._draw_rows(mb.num_inputs)
        with self._isolated(mb):
            if not accumulating:
                self.model.zero_grad()
            on_device = replace(mb, parent=None).to(self.device)
            kept = torch.zeros(mb.num_seeds, dtype=torch.int64) if self.keeps_labels else None
            return self._record(lambda recorder: self._step(on_device, recorder, kept))

    @property
    def keeps_labels(self) -> bool:
        """Whether the labels of the whole batch are on the device during a step: classes, on the CPU."""
        return self._labels_for is class_labels and self.device.type == "cpu"

    def fixed_bytes(self) -> dict[str, int]:
        """Bytes by term allocated before a step: parameters with buffers, and optimizer state."""
        parameters = parameter_tensors(self.model, self._optimizer)
        return {
            "parameters": allocated_bytes(parameters),
            "optimizer": allocated_bytes(state_tensors(self._optimizer)),
        }

    def backup_bytes(self) -> tuple[int, int]:
        """Device bytes of the copies that OOM recovery makes: before a micro-batch, and before the optimizer step.

        The first is the buffers. The second is parameters, gradients and optimizer state, which are copied to the
        host, so it is 0 on a GPU.
        """
        updated = [p for group in self._optimizer.param_groups for p in group["params"]]
        state = [value for values in self._optimizer.state.values() for value in values.values()]
        copied = [*updated, *(p.grad for p in updated), *(value for value in state if isinstance(value, Tensor))]
        host_bytes = sum(allocated_bytes([tensor]) for tensor in copied)
        return allocated_bytes(self.model.buffers()), host_bytes if self.device.type == "cpu" else 0

    def _step(self, mb: MiniBatch, recorder: AllocationRecorder, labels: Tensor | None = None) -> None:
        """Forward and backward as in `workbench.accumulate`; all its tensors but the gradients are freed on return."""
        recorder.start_phase("forward", "inputs")
        x = self._features(mb)
        with self._arguments_held(mb):
            recorder.term = "hidden"
            loss = self._loss(self._forward(mb, x), recorder, labels)
            recorder.start_phase("backward", "workspace")
            loss.backward()
        for parameter in self.model.parameters():
            recorder.set_term(parameter.grad, "gradients")

    @contextmanager
    def _arguments_held(self, mb: MiniBatch) -> Iterator[None]:
        """Hold what the model is called with, if the batch's own format is (`CarriedData.held`)."""
        if mb.carried is None or not mb.carried.held:
            yield
            return
        held: list[Any] = [rows_not_read(mb, self._names_read)]

        def hold(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            held.append((arguments, named))
            self._names_read = frozenset(named)

        handle = self.model.register_forward_pre_hook(hold, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
            held.clear()

    def _update(self, recorder: AllocationRecorder) -> None:
        recorder.start_phase("step", "workspace")
        self._optimizer.step()

    def _record(self, work: Callable[[AllocationRecorder], object]) -> AllocationTrace:
        recorder = AllocationRecorder(self.device.type)
        recorder.start()
        try:
            work(recorder)
            return recorder.trace()
        finally:
            recorder.stop()

    def _features(self, mb: MiniBatch) -> Tensor:
        """A window of the random rows: drawing wide ones for every dry run takes longer than the steps themselves."""
        count, total = mb.num_inputs, len(self._rows)
        begin = _WINDOW_STRIDE * count % (total - count + 1)
        return self._rows[begin : begin + count].clone()

    def _draw_rows(self, count: int) -> None:
        """Have enough random rows for a batch of `count` inputs."""
        if len(self._rows) < count:
            generator = torch.Generator(self.device).manual_seed(self._seed)
            size, options = (2 * count, self._in_dim), {"dtype": self._dtype, "device": self.device}
            self._rows = torch.randn(size, generator=generator, **options)

    def _forward(self, mb: MiniBatch, x: Tensor) -> Any:
        return self._call(mb, Inputs(x))

    def _loss(self, out: Any, recorder: AllocationRecorder, labels: Tensor | None) -> Tensor:
        recorder.term = "labels"
        labels = self._labels_for(rows_of(out)) if labels is None else labels
        recorder.term = "loss"
        return self._seed_loss(out, labels) * 0.5

    @contextmanager
    def _isolated(self, mb: MiniBatch) -> Iterator[None]:
        """Restore the random state, defer garbage collection, and say in errors which step failed."""
        gc_was_enabled, device = gc.isenabled(), self.device
        try:
            gc.disable()
            torch.clear_autocast_cache()  # a step starts without converted weights, and leaves none of these copies'
            with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
                _seed_generator(device, self._seed)
                yield
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise StepFailedError(
                f"a training step of {type(self.model).__name__} on {mb.num_seeds} of the seeds ({mb.num_inputs} "
                f"inputs of in_dim {self._in_dim}) failed, so its memory can't be estimated: "
                f"{line_of(error)}"
            ) from error
        finally:
            torch.clear_autocast_cache()
            if gc_was_enabled:
                gc.enable()


def _seed_generator(device: torch.device, seed: int) -> None:
    """Seed the generators that a step on a device draws from; `torch.manual_seed` visits those of all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _copy_model_and_optimizer(
    model: nn.Module, optimizer: str | torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    try:
        copied, copied_optimizer = copy.deepcopy((model, None if isinstance(optimizer, str) else optimizer))
    except Exception as error:
        raise ValueError(
            f"a {type(model).__name__} can't be copied, so a dry run can't estimate its memory: {text_of(error)}"
        ) from error
    copied.zero_grad()
    if copied_optimizer is not None:
        return copied, copied_optimizer
    check_choice("optimizer", str(optimizer), OPTIMIZERS)
    kind, trainable = OPTIMIZERS[str(optimizer)], [p for p in copied.parameters() if p.requires_grad]
    return copied, kind(trainable)  # pyright: ignore[reportCallIssue] (all of these kinds have defaults)


def find_labels(seed_loss: Callable[[Any, Tensor], Tensor], out: Any) -> Callable[[Tensor], Tensor]:
    """Find a kind of labels that a loss function accepts.

    Args:
        seed_loss: the loss function of an output and labels.
        out: an output of the model.

    Returns:
        A function of the output's rows that returns the labels.

    Raises:
        ValueError: The loss function accepts none.
    """
    error: Exception | None = None
    for labels_for in (class_labels, _values_per_output, _value_per_seed):
        try:
            seed_loss(out, labels_for(rows_of(out)))
            return labels_for
        except Exception as refused:  # a user's loss function may raise anything
            error = error or refused
    reason = "" if error is None else text_of(error)
    raise ValueError(f"loss_fn accepts neither class labels nor values for an output of {describe(out)}: {reason}")


def rows_of(out: Any) -> Tensor:
    """Return the tensor of an output whose rows are the seeds: the first."""
    first = first_tensor(out)
    return torch.empty(0) if first is None else first


def class_labels(out: Tensor) -> Tensor:
    """Return int64 [num_seeds], class 0 for each."""
    return torch.zeros(out.shape[0], dtype=torch.int64)


def _values_per_output(out: Tensor) -> Tensor:
    return torch.zeros(out.shape, dtype=out.dtype)


def _value_per_seed(out: Tensor) -> Tensor:
    return torch.zeros(out.shape[0], dtype=out.dtype)

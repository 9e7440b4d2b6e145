"""Training steps of a copy of a model on made-up features, with their allocations written down."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_choice
from workbench.core.minibatch import MiniBatch
from workbench.core.resident import allocated_bytes, parameter_tensors, state_tensors
from workbench.memory.optimizer import OPTIMIZERS
from workbench.memory.traced.trace import AllocationTrace, Recording
from workbench.nn.call import call_model, model_device, wanted_names
from workbench.nn.losses import LossFunction, SeedLoss


class Rehearsal:
    """A model's training step, on copies of the model and its optimizer.

    Args:
        model: see `workbench.accumulate`; in training mode or not, as it is.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or one of the model's parameters.
        in_dim: channels of the features.
        loss_fn: see `workbench.train_step`.
        seed: of the features.

    Raises:
        ValueError: another optimizer, `in_dim` below 1, or a model that can't be copied.
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
        self.model, self._optimizer = _copies(model, optimizer)
        self.device = model_device(model) or torch.device("cpu")
        self._names = wanted_names(model)
        self._in_dim, self._seed = in_dim, seed
        self._seed_loss, self._labels_of = SeedLoss.of(loss_fn, "mean"), _classes
        floating = (p.dtype for p in self.model.parameters() if p.is_floating_point())
        self._dtype = next(floating, torch.get_default_dtype())
        self.gradient_bytes = self.update_bytes = 0

    def warm_up(self, mb: MiniBatch) -> None:
        """Do what only a first step does: find labels that the loss takes, make the optimizer's state.

        Raises:
            ValueError: the step fails; the message says how.
        """
        with self._apart(mb):
            moved = replace(mb, parent=None).to(self.device)
            self._labels_of = self._find_labels(self._forward(moved, self._features(mb)).detach())
            self._step(moved, AllocationTrace(self.device.type))
            self.gradient_bytes = allocated_bytes(p.grad for p in self.model.parameters())
            self._optimizer.step()
            self.update_bytes = self._trace(self._update).highest_peak()

    def record(self, mb: MiniBatch, *, accumulating: bool) -> Recording:
        """What a micro-batch allocates in the phases "forward" and "backward".

        Args:
            mb: the micro-batch; its own arrays are left out.
            accumulating: gradients are there already (those of the last recording); else there are none.

        Raises:
            ValueError: the step fails.
        """
        with self._apart(mb):
            if not accumulating:
                self.model.zero_grad()
            moved = replace(mb, parent=None).to(self.device)
            return self._trace(lambda trace: self._step(moved, trace))

    def held_bytes(self) -> dict[str, int]:
        """Bytes by term of what is there before a step: parameters with buffers, and the optimizer's state."""
        parameters = parameter_tensors(self.model, self._optimizer)
        return {
            "parameters": allocated_bytes(parameters),
            "optimizer": allocated_bytes(state_tensors(self._optimizer)),
        }

    def backup_bytes(self) -> tuple[int, int]:
        """Bytes on the device of what a recovering step copies: of a micro-batch, and of an optimizer's step.

        See `workbench.training.recover`: buffers; parameters, gradients and optimizer state, which go to the host.
        """
        updated = [p for group in self._optimizer.param_groups for p in group["params"]]
        state = [value for values in self._optimizer.state.values() for value in values.values()]
        copied = [*updated, *(p.grad for p in updated), *(value for value in state if isinstance(value, Tensor))]
        on_host = sum(allocated_bytes([tensor]) for tensor in copied)
        return allocated_bytes(self.model.buffers()), on_host if self.device.type == "cpu" else 0

    def _step(self, moved: MiniBatch, trace: AllocationTrace) -> None:
        """As `workbench.accumulate` does it; what it made dies with it."""
        trace.enter("forward", "inputs")
        x = self._features(moved)
        trace.term = "hidden"
        loss = self._loss(self._forward(moved, x), trace)
        trace.enter("backward", "workspace")
        loss.backward()
        for parameter in self.model.parameters():
            trace.book(parameter.grad, "gradients")

    def _update(self, trace: AllocationTrace) -> None:
        trace.enter("step", "workspace")
        self._optimizer.step()

    def _trace(self, work: Callable[[AllocationTrace], object]) -> Recording:
        trace = AllocationTrace(self.device.type)
        trace.start()
        try:
            work(trace)
            return trace.recording()
        finally:
            trace.stop()

    def _features(self, mb: MiniBatch) -> Tensor:
        return torch.randn(mb.num_inputs, self._in_dim, dtype=self._dtype, device=self.device)

    def _forward(self, moved: MiniBatch, x: Tensor) -> Tensor:
        return call_model(self.model, moved, x, self._names)

    def _loss(self, out: Tensor, trace: AllocationTrace) -> Tensor:
        trace.term = "labels"
        labels = self._labels_of(out)
        trace.term = "loss"
        return self._seed_loss(out, labels) * 0.5

    def _find_labels(self, out: Tensor) -> Callable[[Tensor], Tensor]:
        error: Exception | None = None
        for labels_of in (_classes, _values, _value_a_seed):
            try:
                self._seed_loss(out, labels_of(out))
                return labels_of
            except Exception as refused:  # a loss of the user's may refuse in its own way
                error = error or refused
        raise ValueError(f"loss_fn takes neither classes nor values for an output {tuple(out.shape)}: {error}")

    @contextmanager
    def _apart(self, mb: MiniBatch) -> Iterator[None]:
        """Random numbers end as they began, garbage stays until after, and errors say where they come from."""
        collects, device = gc.isenabled(), self.device
        try:
            gc.disable()
            with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
                torch.manual_seed(self._seed)
                yield
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ValueError(
                f"a training step of {type(self.model).__name__} on {mb.num_seeds} of the seeds ({mb.num_inputs} "
                f"inputs of in_dim {self._in_dim}) failed, so its memory can't be estimated: "
                f"{type(error).__name__}: {error}"
            ) from error
        finally:
            if collects:
                gc.enable()


def _copies(model: nn.Module, optimizer: str | torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
    given = None if isinstance(optimizer, str) else optimizer
    try:
        copied, own = copy.deepcopy((model, given))
    except Exception as error:
        raise ValueError(
            f"a {type(model).__name__} can't be copied, so its memory can't be estimated apart from it: {error}"
        ) from error
    copied.zero_grad()
    if own is not None:
        return copied, own
    check_choice("optimizer", str(optimizer), OPTIMIZERS)
    kind, updated = OPTIMIZERS[str(optimizer)], [p for p in copied.parameters() if p.requires_grad]
    return copied, kind(updated)  # pyright: ignore[reportCallIssue] (of its kinds each has defaults)


def _classes(out: Tensor) -> Tensor:
    return torch.zeros(out.shape[0], dtype=torch.int64)


def _values(out: Tensor) -> Tensor:
    return torch.zeros(out.shape, dtype=out.dtype)


def _value_a_seed(out: Tensor) -> Tensor:
    return torch.zeros(out.shape[0], dtype=out.dtype)

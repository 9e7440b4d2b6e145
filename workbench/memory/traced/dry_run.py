"""`DryRun`: traces of a model's training step on small sub-batches of a batch.

An `AllocationTrace` is the order of allocations with their sizes; its program can be replayed with other sizes.
"""

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, UntypedStorage, nn

from workbench.core.errors import check_at_least, check_choice, complete_despite_interrupt, deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.error_text import line_of, text_of
from workbench.interop.pyg import rows_not_read
from workbench.memory.training_setup import OPTIMIZERS
from workbench.meter.allocation_tracker import (
    ALLOCATION_BYTES,
    AllocationTracker,
    TrackedStorage,
    allocated_bytes,
    parameter_tensors,
    state_tensors,
    storages_of,
)
from workbench.nn.losses import Inputs, LossFunction, SeedLoss, describe, first_tensor
from workbench.nn.signature import Forward, default_forward, model_device

Terms = Mapping[str, int]


@dataclass(frozen=True)
class AllocationProgram:
    """The order in which storages are allocated and freed, without their sizes.

    Args:
        events: storage numbers; the first occurrence of a number allocates the storage, the second frees it.
        terms: memory term of each storage.
        phases: name of each phase and index of its first event.
    """

    events: tuple[int, ...]
    terms: tuple[str, ...]
    phases: tuple[tuple[str, int], ...]

    def replay(self, nbytes: np.ndarray) -> dict[str, Terms]:
        """Simulate the program with sizes [storages] before rounding; live bytes by term at each phase's peak."""
        rounded = -(-np.maximum(nbytes, 0) // ALLOCATION_BYTES) * ALLOCATION_BYTES
        changes = rounded[self._storages] * self._signs
        live = np.concatenate([[0], np.cumsum(changes)])
        bounds = [*(begin for _, begin in self.phases), len(self.events)]
        peaks: dict[str, Terms] = {}
        for (phase, begin), end in zip(self.phases, bounds[1:], strict=True):
            at = begin + int(live[begin : end + 1].argmax())
            peaks[phase] = self._by_term(changes[:at], at)
        return peaks

    def _by_term(self, changes: np.ndarray, at: int) -> Terms:
        names, of_event = self._term_of_event
        totals = np.bincount(of_event[:at], weights=changes, minlength=len(names))
        return {name: int(total) for name, total in zip(names, totals, strict=True)}

    @cached_property
    def _storages(self) -> np.ndarray:
        return np.array(self.events, dtype=np.int64)

    @cached_property
    def _signs(self) -> np.ndarray:
        """+1 for an allocation (first occurrence), −1 for a deallocation."""
        signs = np.full(len(self.events), -1, dtype=np.int64)
        signs[np.unique(self._storages, return_index=True)[1]] = 1
        return signs

    @cached_property
    def _term_of_event(self) -> tuple[list[str], np.ndarray]:
        names = sorted(set(self.terms))
        number = np.array([names.index(term) for term in self.terms], dtype=np.int64)
        return names, number[self._storages]


@dataclass(frozen=True, eq=False)
class AllocationTrace:
    """A recorded allocation program with the sizes of its storages.

    Args:
        program: the order of allocations and deallocations.
        nbytes: int64 [storages], size of each storage before rounding.
    """

    program: AllocationProgram
    nbytes: np.ndarray

    def peaks(self) -> dict[str, Terms]:
        """For each phase, live bytes by term at its peak, as recorded."""
        return self.program.replay(self.nbytes)

    def highest_peak(self) -> int:
        """The highest total over all phases, in bytes."""
        return max(sum(terms.values()) for terms in self.peaks().values())


class AllocationRecorder(AllocationTracker):
    """Records the allocations of a block of code: `start`, `start_phase`, set `term`, `trace`, `stop`.

    Storages allocated before `start` are not recorded, even if they are freed later.

    Args:
        device_type: device type of the storages to record; workspace inside an operator is not visible on any.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()
        self.device_type = device_type
        self.term = "workspace"
        self._events: list[int] = []
        self._nbytes: list[int] = []
        self._terms: list[str] = []
        self._phases: list[tuple[str, int]] = []
        self._number: dict[int, int] = {}  # storage number by id of its weak reference
        self._references: list[TrackedStorage] = []  # kept alive so that ids stay unique
        self._overwritten: TrackedStorage | None = None
        self._operator_start = 0

    def start(self) -> None:
        """Start recording, without scanning for existing storages, which do not count here."""
        self.__enter__()

    def start_phase(self, phase: str, term: str) -> None:
        """Start a phase; its storages count as `term` until `term` is set again."""
        self._process_pending()
        self._phases.append((phase, len(self._events)))
        self.term = term

    def set_term(self, tensor: Tensor | None, term: str) -> None:
        """Count a tensor's storage as another term."""
        for storage in () if tensor is None else storages_of(tensor):
            number = self._number.get(id(self._lookup(storage)))
            if number is not None:
                self._terms[number] = term

    def trace(self) -> AllocationTrace:
        """Everything recorded until now."""
        self._process_pending()
        program = AllocationProgram(tuple(self._events), tuple(self._terms), tuple(self._phases))
        return AllocationTrace(program, np.array(self._nbytes, dtype=np.int64))

    def _add(self, storage: UntypedStorage) -> int:
        before = self._lookup(storage)
        nbytes_before = None if before is None else before.nbytes
        reached = super()._add(storage)
        held = self._lookup(storage)
        if held is not None and (held is not before or held.nbytes != nbytes_before):
            self._allocate(held, storage.nbytes())
        return reached

    def _allocate(self, held: TrackedStorage, nbytes: int) -> None:
        resized = self._number.get(id(held))
        self._number[id(held)] = len(self._nbytes)
        self._events.append(len(self._nbytes))
        if resized is not None:  # a resize allocates the new storage before it frees the old one
            self._events.append(resized)
        self._references.append(held)
        self._nbytes.append(nbytes)
        self._terms.append(self.term)

    def _process_pending(self) -> None:
        self._overwritten = None if self._engine_copy is None else self._engine_copy[0]
        super()._process_pending()
        self._operator_start = len(self._events)

    def _release(self, held: TrackedStorage) -> None:
        super()._release(held)
        number = self._number.pop(id(held), None)
        if number is not None:  # autograd would have overwritten it in place, so it is freed before the copy is made
            at = self._operator_start if held is self._overwritten else len(self._events)
            self._events.insert(at, number)


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
        forward: calls the model itself, which then has the parameters and buffers of its copy; None: the default call.
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
        forward: Forward | None = None,
        seed: int = 0,
    ) -> None:
        check_at_least("in_dim", in_dim, 1)
        self.model, self._optimizer = _copy_model_and_optimizer(model, optimizer)
        self.device = model_device(model) or torch.device("cpu")
        self._called, self._call = (self.model, default_forward(self.model)) if forward is None else (model, forward)
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

        The batch's own arrays are not recorded, nor are labels if `keeps_labels`. `accumulating`: gradients (those of
        the last recording) exist at the start.
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

        handle = self._called.register_forward_pre_hook(hold, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
            held.clear()

    def _update(self, recorder: AllocationRecorder) -> None:
        recorder.start_phase("step", "workspace")
        self._optimizer.step()

    def _record(self, work: Callable[[AllocationRecorder], object]) -> AllocationTrace:
        recorder, block = AllocationRecorder(self.device.type), ExitStack()
        try:
            with deferred_interrupt():
                recorder.start()
                block.callback(recorder.stop)
            work(recorder)
            return recorder.trace()
        finally:
            complete_despite_interrupt(block.close)

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
            with (
                torch.random.fork_rng([device] if device.type == "cuda" else []),
                torch.enable_grad(),
                _with_tensors_of(self.model, self._called),
            ):
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


@contextmanager
def _with_tensors_of(copied: nn.Module, model: nn.Module) -> Iterator[None]:
    """Let a model have the parameters and buffers of its copy, for a function that calls the model itself."""
    if model is copied:
        yield
        return
    held = [(module, {**module._parameters, **module._buffers}) for module in model.modules()]
    try:
        for module, other in zip(model.modules(), copied.modules(), strict=True):
            _set(module, {**other._parameters, **other._buffers})
        yield
    finally:
        for module, tensors in held:
            _set(module, tensors)


def _set(module: nn.Module, tensors: Mapping[str, Tensor | None]) -> None:
    """As attributes, because torch's recurrent layers keep a list of their weights beside the parameters."""
    for name, tensor in tensors.items():
        setattr(module, name, tensor)


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
    """Return a function from the output's rows to a kind of labels that a loss function accepts.

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


# Limits on the work (nodes and edges) of a sub-batch.
_MAX_WORK = 16_000

_MIN_LIMIT = 8_000

_ALL_DEGREES_LIMIT = 16_000

_FRACTION = 1 / 16

_COUNT = 8  # sub-batches of each kind

_MIN_SEEDS = 4

_MAX_TRIES = 3

_MIN_PER_DEGREE = 2

_SelectSeeds = Callable[[int], Tensor]
"""Maps a number of seeds to that many seed positions."""


def sub_batches(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Sub-batches of the batch, half of them of random seeds and half of seeds with consecutive ids, smallest first.

    Random sub-batches with enough seeds contain destinations of the smallest and largest in-degree of every block,
    which separates sizes that would otherwise be equal (destinations, and destinations with in-edges).

    A sub-batch has at most a sixteenth of the batch's nodes and edges and at most some ten thousands, unless a few
    seeds alone reach more. A batch of a few thousand nodes and edges is one of its own sub-batches.
    """
    if mb.num_seeds <= _MIN_SEEDS:
        return [mb]
    generator = torch.Generator().manual_seed(seed)
    by_id, seeds_and_degrees = torch.argsort(mb.seeds.cpu()), _destination_seeds(mb)

    def consecutive(count: int) -> Tensor:
        begin = int(torch.randint(mb.num_seeds - count + 1, (), generator=generator))
        return by_id[begin : begin + count]

    def scattered(count: int) -> Tensor:
        extremes = [
            _choose_one(seeds[degrees == extreme], generator)
            for seeds, degrees in seeds_and_degrees
            for extreme in torch.aminmax(degrees)
        ]
        order = torch.randperm(mb.num_seeds, generator=generator)
        required = torch.cat([order[:0], *extremes]) if len(extremes) <= count else order[:0]
        return _fill_up(required, order, count)

    limit = _work_limit(mb)
    parts = _growing(mb, scattered, _MIN_SEEDS, limit) + _growing(mb, consecutive, _MIN_SEEDS, limit)
    if work(mb) <= limit:
        parts.append(mb)
    return sorted(parts if len(parts) >= _COUNT else parts + _smallest(mb, scattered), key=work)


def batches_of_all_degrees(mb: MiniBatch, *, seed: int = 0) -> list[MiniBatch]:
    """Sub-batches in which every block has at least two destinations of each in-degree that it has in the batch.

    An in-degree of a single destination occurs once. Returns an empty list if such sub-batches are too large.
    """
    generator = torch.Generator().manual_seed(seed)
    seeds_and_degrees = _destination_seeds(mb)

    def stratified(count: int) -> Tensor:
        required = torch.cat([seeds[_some_per_degree(degrees, generator)] for seeds, degrees in seeds_and_degrees])
        return _fill_up(required, torch.randperm(mb.num_seeds, generator=generator), count)

    fewest = max(len(stratified(0)) for _ in range(_MAX_TRIES))
    limit = max(_work_limit(mb), _ALL_DEGREES_LIMIT)
    return _growing(mb, stratified, fewest, limit) + _growing(mb, stratified, fewest, limit)


def _destination_seeds(mb: MiniBatch) -> list[tuple[Tensor, Tensor]]:
    """For each block, output layer first, per destination that seeds reach: one of them, and its in-degree."""
    seeds, pairs = torch.arange(mb.num_seeds), []
    for block in reversed(mb.blocks):
        reached = seeds < mb.num_seeds
        pairs.append((seeds[reached], block.in_degrees().cpu()[reached]))
        of_source = torch.full((block.num_src,), mb.num_seeds)
        of_edge = seeds[block.destinations.long().cpu()]
        of_source.scatter_reduce_(0, block.indices.long().cpu(), of_edge, "amin")  # the first, for any thread count
        of_source[: block.num_dst] = seeds
        seeds = of_source
    return pairs


def _fill_up(required: Tensor, order: Tensor, count: int) -> Tensor:
    """The distinct required positions, filled up to `count` in the given order."""
    required = required.unique()
    return torch.cat([required, order[~torch.isin(order, required)]])[: max(count, len(required))]


def _choose_one(values: Tensor, generator: torch.Generator) -> Tensor:
    return values[torch.randint(len(values), (1,), generator=generator)]


def _some_per_degree(degrees: Tensor, generator: torch.Generator) -> Tensor:
    """Random positions of two to four destinations per in-degree, or of all if there are fewer."""
    order = torch.randperm(len(degrees), generator=generator)
    order = order[torch.argsort(degrees[order], stable=True)]
    ascending = degrees[order]
    counts = torch.randint(_MIN_PER_DEGREE, 2 * _MIN_PER_DEGREE + 1, (int(ascending[-1]) + 1,), generator=generator)
    return order[torch.arange(len(degrees)) - torch.searchsorted(ascending, ascending) < counts[ascending]]


def work(mb: MiniBatch) -> int:
    """Number of nodes and edges that a step processes, over all blocks."""
    return sum(block.num_src + block.num_edges for block in mb.blocks)


def _work_limit(mb: MiniBatch) -> float:
    return min(_MAX_WORK, max(_MIN_LIMIT, _FRACTION * work(mb)))


def _growing(mb: MiniBatch, select_seeds: _SelectSeeds, fewest: int, limit: float) -> list[MiniBatch]:
    """Sub-batches with growing numbers of seeds up to about the work limit, without those that exceed it."""
    most = max(fewest, int(mb.num_seeds * min(1.0, limit / max(1, work(mb)))))
    within_limit: list[MiniBatch] = []
    for _ in range(_MAX_TRIES):
        parts = mb.select([select_seeds(count).sort().values for count in _geometric(fewest, most)])
        within_limit = [part for part in parts if work(part) <= limit]
        if 2 * len(within_limit) > _COUNT:
            break
        most = max([fewest, *(part.num_seeds for part in within_limit)])
    return within_limit


def _smallest(mb: MiniBatch, select_seeds: _SelectSeeds) -> list[MiniBatch]:
    """Sub-batches of two to four seeds, of any size, since a fit needs several sub-batches."""
    return mb.select([select_seeds(count).sort().values for count in (2, 3, 4) for _ in range(_COUNT // 2)])


def _geometric(first: int, last: int) -> list[int]:
    """Whole numbers spaced evenly by ratio."""
    ratio = (last / first) ** (1 / (_COUNT - 1))
    return [round(first * ratio**i) for i in range(_COUNT)]

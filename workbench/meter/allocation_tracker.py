"""Tracks live bytes on the CPU: every storage that operators allocate, from its creation until it is freed.

`measure_allocated` sums all that a call allocates, freed or not: what reusing memory saves.
"""

import gc
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from workbench.core.errors import complete_despite_interrupt, deferred_interrupt


def drop_abandoned_backward() -> None:
    """Free the queued tasks of an interrupted or failed backward pass, which autograd keeps until its next run."""
    with suppress(MemoryError, RuntimeError), torch.enable_grad():
        torch.zeros((), requires_grad=True, device="cpu").backward()


_aten = torch.ops.aten

_IN_PLACE_WITHOUT_MODE = frozenset(
    (
        _aten.add.Tensor,
        _aten.index_add.default,
        _aten.index_put.default,
        _aten.masked_fill.Scalar,
        _aten.scatter.src,
        _aten.scatter.value,
        _aten.scatter_add.default,
    )
)
"""Operators that autograd's engine runs in place on a tensor to which it has the only reference (a view's base is
another one). While a dispatch mode is active, the engine copies instead; the copy is not counted."""


class Peak(NamedTuple):
    """Live bytes relative to the start of a count.

    Args:
        nbytes: the highest number since the last peak.
        gross: the highest number if no storage that was alive at the start had been freed.
        live: the number now.
        freed: bytes of storages alive at the start that have been freed.
    """

    nbytes: int
    gross: int
    live: int
    freed: int


class TrackedStorage(weakref.ref):
    """A weak reference to a storage, whose bytes are subtracted when it is freed.

    Its callback is `deque.append`, which runs outside the interpreter: an interrupt inside a callback written in Python
    would be lost, and with it the record of the freed bytes.
    """

    __slots__ = ("counted", "key", "nbytes", "older")
    key: int
    nbytes: int
    counted: bool
    """Whether freeing it lowers the live bytes."""
    older: bool
    """Whether it was alive at the start."""


class AllocationTracker(TorchDispatchMode):
    """Dispatch mode that counts the storages of every operator, backward passes included, until they are freed.

    Args:
        on_allocation: called after every operator that allocates, with the bytes it allocated and the live bytes before
            it, relative to the start. If it returns an error, the operator's result is freed and the error raised.
    """

    device_type = "cpu"
    """Device type of the counted storages; other devices' allocators count exactly, but can't tell storages apart."""

    def __init__(self, on_allocation: Callable[[int, int], Exception | None] | None = None) -> None:
        super().__init__()
        self._on_allocation = on_allocation
        self._tracked: dict[int, TrackedStorage] = {}
        self._freed: deque[TrackedStorage] = deque()  # appended to by the thread that drops the last reference
        self._engine_copy: tuple[TrackedStorage, int] | None = None  # storage the engine copied, live bytes with both
        self._live = self._peak = self._peak_before = 0
        self._gross = self._gross_before = self._older_freed = 0
        self._lock = threading.Lock()  # the kernels' threads allocate too

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise every call passes through torch._dynamo, which takes seconds to import

    def start(self) -> None:
        """Start counting; storages that are alive already count (negatively) when they are freed."""
        drop_abandoned_backward()
        for storage in live_storages():
            self._track(storage)
        for tracker in _active_trackers():  # they know tensors that a frozen garbage collector does not list
            for tracked in list(tracker._tracked.values()):
                storage = tracked()
                if storage is not None:
                    self._track(storage)
        self._process_pending()
        self._live = self._peak = 0  # what a garbage collection freed during the scan was gone before the start
        self._gross = self._gross_before = self._older_freed = 0
        self.__enter__()

    def pop_peak(self) -> Peak:
        """Return the peak of live bytes since the last call, relative to the start."""
        self._process_pending()
        peak = Peak(self._peak, self._gross, self._live, self._older_freed)
        self._peak, self._gross = self._live, self._live + self._older_freed
        return peak

    def stop(self) -> None:
        """Stop counting."""
        self.__exit__(None, None, None)
        self._tracked.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments: list[Tensor] = []
        add_tensors((args, kwargs), arguments)
        with self._lock:
            self._process_pending()
            self._track_arguments(func, arguments)
        result = func(*args, **kwargs)
        with self._lock:
            error = self._count_operator(func, args, arguments if _is_mutable(func) else [], result)
        if error is None:
            return result
        del result  # the error's traceback would keep it alive
        raise error

    def _count_operator(self, func: Any, args: Any, mutable: Sequence[Tensor], result: Any) -> Exception | None:
        """Count the allocations of an operator, and return the error of `on_allocation` if it rejects them.

        Args:
            mutable: tensors among its arguments whose storage it may have resized.
        """
        live = high = self._live
        self._peak_before, self._gross_before = self._peak, self._gross
        tensors = [*mutable]
        add_tensors(result, tensors)
        for tensor in tensors:
            for storage in storages_of(tensor):
                high = max(high, self._add(storage))
        if self._live > live and func in _IN_PLACE_WITHOUT_MODE and not args[0]._is_view() and _called_by_engine():
            self._engine_copy = self._tracked[args[0].untyped_storage()._cdata], self._live
            return None
        self._raise_peak(high)
        error = self._on_allocation(high - live, live) if self._on_allocation is not None and high > live else None
        if error is not None:
            for tracker in _active_trackers():  # those entered before this one counted the operator already
                tracker._undo_operator()
        return error

    def _raise_peak(self, level: int) -> None:
        self._peak = max(self._peak, level)
        self._gross = max(self._gross, level + self._older_freed)

    def _undo_operator(self) -> None:
        """Restore the peak before the last operator, because its result was rejected."""
        self._peak, self._gross, self._engine_copy = self._peak_before, self._gross_before, None

    def _track_arguments(self, func: Any, arguments: Sequence[Tensor]) -> None:
        """Track arguments that no counted operator allocated.

        In a backward pass, an argument seen for the first time was saved before the start, so that the garbage
        collector did not list it. Elsewhere it was allocated since, by another thread or by native code (DGL, NumPy,
        `torch.load`), and as its allocation was not counted, neither is its deallocation. `torch.tensor(...)` passes a
        new tensor to lift_fresh.
        """
        if func is _aten.lift_fresh.default:
            for tensor in arguments:
                for storage in storages_of(tensor):
                    self._add(storage)
            return
        unknown = [s for tensor in arguments for s in storages_of(tensor) if self._lookup(s) is None]
        if unknown:
            is_backward = torch._C._current_graph_task_id() != -1
            for storage in unknown:
                self._track(storage, counted=is_backward and storage.resizable(), older=is_backward)

    def _track(self, storage: UntypedStorage, *, counted: bool = True, older: bool = True) -> None:
        """Remember a storage; if it is counted, its bytes are subtracted once it is freed."""
        if storage.device.type != self.device_type or self._lookup(storage) is not None:
            return
        tracked = TrackedStorage(storage, self._freed.append)
        tracked.key, tracked.nbytes = storage._cdata, rounded_bytes(storage.nbytes())
        tracked.counted, tracked.older = counted, older
        self._tracked[tracked.key] = tracked

    def _lookup(self, storage: UntypedStorage) -> TrackedStorage | None:
        """Return the entry of a storage, ignoring that of a freed storage with the same address."""
        tracked = self._tracked.get(storage._cdata)
        return None if tracked is None or tracked() is None else tracked

    def _add(self, storage: UntypedStorage) -> int:
        """Count a storage if it is new or was resized; memory of NumPy and of mapped files is not the allocator's.

        Returns:
            The highest number of live bytes meanwhile: a resize allocates the new memory before it frees the old.
        """
        high = self._live
        tracked = self._lookup(storage)
        if tracked is None and storage.resizable():
            self._track(storage, older=False)
            tracked = self._lookup(storage)
            self._live += tracked.nbytes if tracked else 0
        elif tracked is not None and tracked.nbytes != (nbytes := rounded_bytes(storage.nbytes())):
            high = self._live + nbytes
            self._live += nbytes - tracked.nbytes * tracked.counted
            self._older_freed += tracked.nbytes * (tracked.counted and tracked.older)
            tracked.nbytes, tracked.counted, tracked.older = nbytes, True, False
        return max(high, self._live)

    def _process_pending(self) -> None:
        """Process everything freed since the last operator."""
        if self._engine_copy is not None:
            (tracked, level), self._engine_copy = self._engine_copy, None
            self._raise_peak(level - (tracked.nbytes if tracked() is None else 0))
        while self._freed:
            self._release(self._freed.popleft())

    def _release(self, tracked: TrackedStorage) -> None:
        """Subtract the bytes of a freed storage."""
        if tracked.counted:
            self._live -= tracked.nbytes
            self._older_freed += tracked.nbytes * tracked.older
        if self._tracked.get(tracked.key) is tracked:  # otherwise another storage has the address now
            del self._tracked[tracked.key]


@cache
def _is_mutable(func: Any) -> bool:
    """Return whether an operator's schema declares that it writes to arguments, which may resize their storages."""
    return func._schema.is_mutable


_DISPATCH_FILES = (__file__, "torch/_ops.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")


def _called_by_engine() -> bool:
    """Return whether autograd's C++ engine called the operator, as opposed to Python code in a custom backward."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_DISPATCH_FILES):
        frame = frame.f_back
    in_engine_thread = frame.f_back is None and frame.f_code.co_filename.endswith(_DISPATCH_FILES)  # one per GPU
    return in_engine_thread or frame.f_code.co_name == "_engine_run_backward"


def _active_trackers() -> Iterator[AllocationTracker]:
    """Yield the trackers of this thread; inside an operator, those entered before the running one."""
    return (mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, AllocationTracker))


ALLOCATION_BYTES = 512
"""Granularity of CUDA's caching allocator; storages are rounded up to it on every device."""

_PROBE = torch.empty(0)  # found among the live tensors if their classes can be seen


def rounded_bytes(nbytes: int) -> int:
    """Return the bytes that the allocator reserves for a storage.

    >>> rounded_bytes(0), rounded_bytes(1), rounded_bytes(512)
    (0, 512, 512)
    """
    return -(-nbytes // ALLOCATION_BYTES) * ALLOCATION_BYTES


def storages_of(value: Tensor) -> Iterator[UntypedStorage]:
    """Yield the storages of a tensor: one, or those of a sparse tensor's components."""
    if value.layout is torch.strided:
        try:
            yield value.untyped_storage()
        except (NotImplementedError, RuntimeError, ValueError):  # wrapper subclasses and lazy parameters have no memory
            return
    elif value.layout is torch.sparse_coo:
        yield value._indices().untyped_storage()
        yield value._values().untyped_storage()
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (t.untyped_storage() for t in (value.crow_indices(), value.col_indices(), value.values()))
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (t.untyped_storage() for t in (value.ccol_indices(), value.row_indices(), value.values()))


def add_tensors(values: object, found: list[Tensor]) -> None:
    """Append the tensors in nested tuples, lists and dictionaries to a list; tree_leaves is as slow as an op."""
    if isinstance(values, Tensor):
        found.append(values)
    elif isinstance(values, tuple | list):
        for value in values:
            add_tensors(value, found)
    elif isinstance(values, dict):
        for value in values.values():
            add_tensors(value, found)


def live_storages() -> Iterator[UntypedStorage]:
    """Yield the storages of all tensors known to the garbage collector and of their gradients."""
    for tensor in _live_tensors():
        yield from storages_of(tensor)
        with suppress(RuntimeError):  # views whose attributes autograd does not allow to read
            if tensor.is_leaf and tensor.grad is not None:
                yield from storages_of(tensor.grad)


def _live_tensors() -> list[Tensor]:
    """All tensors that the garbage collector tracks.

    Instances refer to their class, so the collector's own pass over referrers of the tensor classes finds them in less
    than half the time of a Python loop over all objects. That loop remains for builds whose tensors hide their class.
    """
    found = _tensors_among(gc.get_referrers(*_tensor_classes()))
    return found if any(tensor is _PROBE for tensor in found) else _tensors_among(gc.get_objects())


def _tensors_among(objects: list[Any]) -> list[Tensor]:
    return [obj for obj in objects if issubclass(type(obj), Tensor)]  # isinstance() triggers warnings of proxy objects


def _tensor_classes() -> list[type]:
    classes: list[type] = [Tensor]
    for kind in classes:  # grows while it is read: subclasses of subclasses
        classes += [sub for sub in type.__subclasses__(kind) if sub not in classes]
    return classes


def measure_allocated(fn: Callable[[], object]) -> int:
    """Measure the sum of all allocations of a call, each storage rounded up to 512 bytes.

    Args:
        fn: function to call once, without arguments. Results of PyTorch operators and buffers from `torch.empty` are
            counted; workspace inside operators and NumPy arrays are not.

    Returns:
        Bytes, including those that were freed during the call.
    """
    requests: list[int] = []
    tracker, block = AllocationTracker(lambda requested, live: requests.append(requested)), ExitStack()
    try:
        with deferred_interrupt(), paused_collection():
            tracker.start()
            block.callback(tracker.stop)
        fn()
    finally:
        complete_despite_interrupt(block.close)
    return sum(requests)


def allocated_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes that the allocator reserves for the tensors' storages, each storage once, with its full size.

    >>> a = torch.zeros(100)
    >>> allocated_bytes([a, a[1:], None, torch.zeros(1)])
    1024
    """
    given = (tensor for tensor in tensors if tensor is not None)
    storages = {storage._cdata: storage.nbytes() for tensor in given for storage in storages_of(tensor)}
    return sum(rounded_bytes(nbytes) for nbytes in storages.values())


def parameter_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters and buffers of the model and all parameters of the optimizer, possibly repeated."""
    return [*model.parameters(), *model.buffers(), *(p for group in optimizer.param_groups for p in group["params"])]


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of the optimizer's state, without Adam's step counts, which are on the host by default."""
    return [
        value
        for values in optimizer.state.values()
        for name, value in values.items()
        if isinstance(value, Tensor) and (name != "step" or value.is_cuda)
    ]


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep reference cycles from being collected in the few steps from the count of live memory to the freeze."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class FrozenGarbage:
    """Keeps reference cycles that already exist from being collected in a `with` block, where they would free memory.

    Collecting them at entry would take long in a large process. If a block is active already, or the user froze the
    garbage collector, the block does nothing.
    """

    def __enter__(self) -> Self:
        self._frozen_here = gc.get_freeze_count() == 0
        if self._frozen_here:
            gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        if self._frozen_here:
            gc.unfreeze()

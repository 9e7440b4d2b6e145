"""Live bytes on the CPU: every storage that operators make, from the moment it is seen until it is freed."""

import gc
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

ALLOCATION_BYTES = 512
"""Grain of CUDA's caching allocator, to which every storage is rounded up on every device."""


def rounded_bytes(nbytes: int) -> int:
    """Bytes that a storage takes from the allocator.

    >>> rounded_bytes(0), rounded_bytes(1), rounded_bytes(512)
    (0, 512, 512)
    """
    return -(-nbytes // ALLOCATION_BYTES) * ALLOCATION_BYTES


def drop_abandoned_backward() -> None:
    """Free what an interrupted or failed backward pass holds: autograd keeps its waiting tasks until it next runs."""
    with suppress(MemoryError, RuntimeError), torch.enable_grad():
        torch.zeros((), requires_grad=True, device="cpu").backward()


class Held(weakref.ref):
    """A storage that counts, until it is freed.

    When it is, its callback, `deque.append`, runs without the interpreter: an interrupt within a callback written in
    Python would be lost, and the storage's bytes with it.
    """

    __slots__ = ("key", "nbytes")
    key: int
    nbytes: int


_aten = torch.ops.aten
_IN_PLACE_UNMETERED = frozenset(
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
"""Operators that autograd's engine runs in place on what it alone holds (a view's base holds it too), unless a dispatch
mode is on: then it plays safe and copies."""


class CpuGauge(TorchDispatchMode):
    """Sees every operator's storages, backward passes included, and hears of their end by weak references.

    Args:
        refuse: asked of every operator that takes memory, with the bytes it took and the live bytes before it, relative
            to the start. The error it returns is raised in place of the operator's result, of which nothing is left.
    """

    device_type = "cpu"
    """Of the storages that count; on others the allocator's own counters know more, but not which storage is which."""

    def __init__(self, refuse: Callable[[int, int], Exception | None] | None = None) -> None:
        super().__init__()
        self._refuse = refuse
        self._held: dict[int, Held] = {}
        self._freed: deque[Held] = deque()  # written by whichever thread drops the last reference
        self._copied: tuple[Held, int] | None = None  # what the engine would have overwritten, and the level with both
        self._live = self._peak = self._peak_before = 0
        self._lock = threading.Lock()  # kernels' threads make tensors too

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else every call passes through torch._dynamo, which takes seconds to import

    def start(self) -> None:
        drop_abandoned_backward()
        for storage in _all_storages():
            self._hold(storage)
        for gauge in _open_gauges():  # they know what a frozen collector does not show
            for held in list(gauge._held.values()):
                storage = held()
                if storage is not None:
                    self._hold(storage)
        self.__enter__()

    def take(self) -> int:
        self._settle()
        peak, self._peak = self._peak, self._live
        return peak

    def stop(self) -> None:
        self.__exit__(None, None, None)
        self._held.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self._lock:
            self._settle()
            self._meet(func, (args, kwargs))
        result = func(*args, **kwargs)
        with self._lock:
            refusal = self._count(func, args, (args, kwargs, result))
        if refusal is None:
            return result
        del result  # the error's traceback would hold it
        raise refusal

    def _count(self, func: Any, args: Any, values: Any) -> Exception | None:
        """Take in what an operator made, unless it is refused."""
        live = reached = self._live
        self._peak_before = self._peak
        for value in _leaves(values):
            for storage in storages_of(value):
                reached = max(reached, self._add(storage))
        if self._live > live and func in _IN_PLACE_UNMETERED and not args[0]._is_view() and _called_by_engine():
            self._copied = self._held[args[0].untyped_storage()._cdata], self._live
            return None
        self._peak = max(self._peak, reached)
        refusal = self._refuse(reached - live, live) if self._refuse is not None and reached > live else None
        if refusal is not None:
            for gauge in _open_gauges():  # those entered before this one, which saw the operator
                gauge._unsee()
        return refusal

    def _unsee(self) -> None:
        """The last operator was refused: its result did not count."""
        self._peak, self._copied = self._peak_before, None

    def _meet(self, func: Any, arguments: Any) -> None:
        """Take up what no operator made.

        An argument first met was made before entry (saved for a backward pass, so not found there), except by
        torch.tensor(...), which hands a fresh tensor to lift_fresh.
        """
        take_up = self._add if func is _aten.lift_fresh.default else self._hold
        for value in _leaves(arguments):
            for storage in storages_of(value):
                take_up(storage)

    def _hold(self, storage: UntypedStorage) -> None:
        """Count the storage when it is freed."""
        if storage.device.type != self.device_type or self._find(storage) is not None:
            return
        held = Held(storage, self._freed.append)
        held.key, held.nbytes = storage._cdata, rounded_bytes(storage.nbytes())
        self._held[held.key] = held

    def _find(self, storage: UntypedStorage) -> Held | None:
        """The entry of a storage; one of a freed storage, whose address it has, is not its own."""
        held = self._held.get(storage._cdata)
        return None if held is None or held() is None else held

    def _add(self, storage: UntypedStorage) -> int:
        """Count a storage if it is new, or its change of size; NumPy's and files' memory is not the allocator's.

        Returns:
            Live bytes at most meanwhile: a resize takes the new room before it frees the old.
        """
        reached = 0
        held = self._find(storage)
        if held is None and storage.resizable():
            self._hold(storage)
            held = self._find(storage)
            self._live += held.nbytes if held else 0
        elif held is not None and held.nbytes != (nbytes := rounded_bytes(storage.nbytes())):
            reached = self._live + nbytes
            self._live += nbytes - held.nbytes
            held.nbytes = nbytes
        return max(reached, self._live)

    def _settle(self) -> None:
        """Take in what happened since the last operator."""
        if self._copied is not None:
            (held, level), self._copied = self._copied, None
            self._peak = max(self._peak, level - (held.nbytes if held() is None else 0))
        while self._freed:
            self._release(self._freed.popleft())

    def _release(self, held: Held) -> None:
        """Take in that a storage was freed."""
        self._live -= held.nbytes
        if self._held.get(held.key) is held:  # else another storage has the address now
            del self._held[held.key]


_PLUMBING = (__file__, "torch/_ops.py", "torch/_compile.py", "torch/_dynamo/eval_frame.py")


def _called_by_engine() -> bool:
    """Whether C++ autograd called the operator, not Python code (a custom function's backward, say)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_PLUMBING):
        frame = frame.f_back
    in_its_thread = frame.f_back is None and frame.f_code.co_filename.endswith(_PLUMBING)  # as it has one a GPU
    return in_its_thread or frame.f_code.co_name == "_engine_run_backward"


def _open_gauges() -> Iterator[CpuGauge]:
    """Gauges of this thread; within an operator, those entered before the one that runs."""
    return (mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, CpuGauge))


def _all_storages() -> Iterator[UntypedStorage]:
    """Storages of all tensors that Python knows and of their gradients."""
    for obj in gc.get_objects():
        if issubclass(type(obj), Tensor):  # not isinstance: proxies answer for their class with warnings
            yield from storages_of(obj)
            with suppress(RuntimeError):  # views that autograd forbids to look at
                if obj.is_leaf:
                    yield from storages_of(obj.grad)


def _leaves(values: object) -> Iterator[object]:
    """What an operator's arguments and results are made of; torch's own walk takes as long as a small operator."""
    if isinstance(values, (tuple, list)):
        for value in values:
            yield from _leaves(value)
    elif isinstance(values, dict):
        yield from _leaves(list(values.values()))
    else:
        yield values


def storages_of(value: object) -> Iterator[UntypedStorage]:
    """Storages of a tensor: one, or those of a sparse tensor's parts; none of anything else."""
    if not isinstance(value, Tensor):
        return
    if value.layout is torch.strided:
        try:
            yield value.untyped_storage()
        except (NotImplementedError, RuntimeError):  # wrappers without memory of their own
            return
    elif value.layout is torch.sparse_coo:
        yield value._indices().untyped_storage()
        yield value._values().untyped_storage()
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (part.untyped_storage() for part in (value.crow_indices(), value.col_indices(), value.values()))
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (part.untyped_storage() for part in (value.ccol_indices(), value.row_indices(), value.values()))

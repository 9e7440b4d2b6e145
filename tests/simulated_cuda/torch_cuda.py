"""What `torch` and `torch.cuda` offer for the simulated device, patched while it is active."""

import concurrent.futures.thread
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.simulated_cuda import tensor as simulated
from tests.simulated_cuda.device import SimulatedDevice, allocation_of, is_pinned, pin
from tests.simulated_cuda.tensor import CUDA, DeviceTensor, check_ordinal, device_of, in_this_thread, move

_MISSING = object()


class Stream:
    """A stream, as `torch.cuda.Stream`."""

    def __init__(self, device: Any = None, priority: int = 0, *, number: int | None = None) -> None:
        _check(device)
        self.number = simulated.active().new_stream() if number is None else number
        self.device, self.priority = CUDA, priority

    stream_id = cuda_stream = property(lambda self: self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def record_event(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        event.wait(self)

    def wait_stream(self, stream: "Stream") -> None:
        self.wait_event(stream.record_event())

    def synchronize(self) -> None:
        simulated.active().synchronize_stream("Stream.synchronize", self.number)

    def query(self) -> bool:
        return True

    def __enter__(self) -> "Stream":
        self._before = simulated.active().current_stream
        simulated.active().current_stream = self.number
        return self

    def __exit__(self, *_: object) -> None:
        simulated.active().current_stream = self._before


class Event:
    """An event, as `torch.cuda.Event`."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._snapshot: dict[int, int] = {}
        self._seconds = 0.0

    def record(self, stream: Stream | None = None) -> None:
        self._snapshot = simulated.active().snapshot(_number(stream))
        self._seconds = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        simulated.active().wait(_number(stream), self._snapshot)

    def synchronize(self) -> None:
        simulated.active().synchronize("Event.synchronize", self._snapshot or {0: 0})

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "Event") -> float:
        return (end._seconds - self._seconds) * 1000


def _number(stream: Stream | None) -> int:
    return simulated.active().current_stream if stream is None else stream.number


class _KindOfGenerator(type(torch._C.Generator)):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_KindOfGenerator):
    """`torch.Generator`, which may be the device's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if torch.device(device).type != "cuda":
            return torch._C.Generator(device)
        made = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        simulated.active().generators.add(made._cdata)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA


@contextmanager
def patched_torch(device: SimulatedDevice) -> Iterator[None]:
    """Replace what `torch` has for CUDA by functions of a simulated device."""
    import torch._dynamo
    import torch.optim.optimizer as optimizer

    with ExitStack() as stack:
        _replace(stack, torch.cuda, _cuda_functions(device))
        _replace(stack, torch, _torch_functions())
        _replace(stack, torch.Tensor, _tensor_methods())
        _replace(stack, torch.UntypedStorage, {"device": property(_storage_device)})
        _replace(stack, torch.backends.cudnn, {"is_acceptable": lambda tensor: False, "is_available": lambda: False})
        kinds = optimizer._foreach_supported_types
        kinds.append(DeviceTensor)  # type: ignore[arg-type]
        stack.callback(kinds.remove, DeviceTensor)  # type: ignore[arg-type]
        _replace(stack, threading.Thread, {"run": _in_simulation(threading.Thread.run)})
        item: Any = concurrent.futures.thread._WorkItem
        _replace(stack, item, {"run": _in_simulation(item.run)})
        onednn = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)  # kernels of the CPU alone, whose LSTM keeps other tensors
        stack.callback(torch._C._set_mkldnn_enabled, onednn)
        yield


def _replace(stack: ExitStack, owner: Any, values: dict[str, Any]) -> None:
    """Set attributes until the stack is closed; those that the owner merely inherits are deleted again."""
    for name, value in values.items():
        stack.enter_context(patch.object(owner, name, value, create=True))


def _in_simulation(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_in_simulation(self: Any, *args: Any, **kwargs: Any) -> Any:
        with in_this_thread():
            return run(self, *args, **kwargs)

    return run_in_simulation


def _check(device: Any) -> None:
    if device is None:
        return
    device = device_of(device)
    if device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    check_ordinal(device)


def _storage_device(storage: torch.UntypedStorage) -> torch.device:
    return CUDA if allocation_of(storage) is not None else torch.device("cpu")


def _tensor_methods() -> dict[str, Any]:
    def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, **options: Any) -> Tensor:
        return move(self, CUDA if device is None else device_of(device), non_blocking=non_blocking, **options)

    def pin_memory(self: Tensor, device: Any = None) -> Tensor:
        return self if is_pinned(self) else pin(self.clone(memory_format=torch.contiguous_format))

    return {
        "to": lambda self, *args, **kwargs: simulated.to(self, *args, **kwargs),
        "cuda": cuda,
        "pin_memory": pin_memory,
        "is_pinned": lambda self, device=None: is_pinned(self),
    }


def _torch_functions() -> dict[str, Any]:
    def placed(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Create on the host and copy, as torch does on a GPU."""

        def create(data: Any, *args: Any, device: Any = None, requires_grad: bool = False, **options: Any) -> Tensor:
            pinned = options.pop("pin_memory", False)
            if isinstance(data, Tensor):
                made = make(data, *args, **options)
                made = made if device is None else made.to(device)
            elif device is None or torch.device(device).type != "cuda":
                made = make(data, *args, device=device, **options)
            else:
                made = move(make(data, *args, **options), torch.device(device))
            made = pin(made.clone()) if pinned else made
            return made.requires_grad_() if requires_grad else made

        return create

    def like(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Create with the shape of another tensor; the host's if asked for, which torch's C++ code can't tell."""

        def create(tensor: Tensor, *args: Any, device: Any = None, **options: Any) -> Tensor:
            if isinstance(tensor, DeviceTensor):
                if device is not None and torch.device(device).type != "cuda":
                    return make(tensor._inner, *args, device=device, **options)
                return make(tensor, *args, **options)
            return make(tensor, *args, device=device, **options)

        return create

    likes = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
    return {
        **{name: placed(getattr(torch, name)) for name in ("tensor", "as_tensor", "asarray")},
        **{name: like(getattr(torch, name)) for name in likes},
        "Generator": Generator,
    }


def _cuda_functions(device: SimulatedDevice) -> dict[str, Any]:
    allocator = device.allocator

    def counted(read: Callable[[], Any]) -> Callable[..., Any]:
        def value(of: Any = None) -> Any:
            _check(of)
            device.collect()
            return read()

        return value

    def set_fraction(fraction: float, of: Any = None) -> None:
        _check(of)
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        allocator.fraction = fraction

    def seed(value: int) -> None:
        device.generator.manual_seed(value)

    def synchronize(of: Any = None) -> None:
        _check(of)
        device.synchronize("torch.cuda.synchronize")

    def set_device(of: Any) -> None:
        _check(of)

    @contextmanager
    def chosen(of: Any) -> Iterator[None]:
        _check(None if isinstance(of, int) and of < 0 else of)
        yield

    @contextmanager
    def on_stream(stream: Stream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        with stream:
            yield

    def set_stream(stream: Stream) -> None:
        device.current_stream = stream.number

    properties = SimpleNamespace(
        name="simulated GPU", total_memory=allocator.total_bytes, major=9, minor=0, multi_processor_count=1,
        L2_cache_size=1 << 20, warp_size=32, max_threads_per_multi_processor=2048,
    )  # fmt: skip

    def answer(value: Any) -> Callable[..., Any]:
        def answered(of: Any = None, *_: Any, **__: Any) -> Any:
            _check(of if isinstance(of, int | str | torch.device) else None)
            return value

        return answered

    return {
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": set_device,
        "device": chosen,
        "get_device_name": answer(properties.name),
        "get_device_properties": answer(properties),
        "get_device_capability": answer((9, 0)),
        "is_bf16_supported": lambda including_emulation=True: True,
        "can_device_access_peer": lambda *_: False,
        "is_current_stream_capturing": lambda: False,
        "synchronize": synchronize,
        "empty_cache": counted(allocator.empty_cache),
        "ipc_collect": lambda: None,
        "memory_allocated": counted(lambda: allocator.allocated),
        "max_memory_allocated": counted(lambda: allocator.peak_allocated),
        "memory_reserved": counted(lambda: allocator.reserved),
        "max_memory_reserved": counted(lambda: allocator.peak_reserved),
        "reset_peak_memory_stats": counted(allocator.reset_peaks),
        "mem_get_info": counted(lambda: (allocator.total_bytes - allocator.reserved, allocator.total_bytes)),
        "memory_stats": counted(
            lambda: {
                "allocation.all.allocated": allocator.num_allocations,
                "allocated_bytes.all.current": allocator.allocated,
                "allocated_bytes.all.peak": allocator.peak_allocated,
                "reserved_bytes.all.current": allocator.reserved,
                "reserved_bytes.all.peak": allocator.peak_reserved,
            }
        ),
        "get_per_process_memory_fraction": counted(lambda: allocator.fraction),
        "set_per_process_memory_fraction": set_fraction,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "get_rng_state": counted(device.generator.get_state),
        "set_rng_state": lambda state, of=None: device.generator.set_state(state),
        "Stream": Stream,
        "Event": Event,
        "stream": on_stream,
        "set_stream": set_stream,
        "current_stream": lambda of=None: Stream(of, number=device.current_stream),
        "default_stream": lambda of=None: Stream(of, number=0),
    }

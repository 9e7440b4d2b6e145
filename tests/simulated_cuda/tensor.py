"""Tensors of a simulated device: a subclass that wraps a CPU tensor, and one function that runs every operator."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from tests.simulated_cuda.device import SimulatedDevice, allocation_of, is_pinned, pin

CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_aten = torch.ops.aten

_local = threading.local()
_active: SimulatedDevice | None = None

ORIGINAL_TO = torch.Tensor.to


def active() -> SimulatedDevice:
    """The device, inside of `simulated_cuda`.

    Raises:
        RuntimeError: A tensor of a simulated device was used after its block.
    """
    if _active is None:
        raise RuntimeError("this tensor's simulated device no longer exists; use it inside of its block")
    return _active


def set_active(device: SimulatedDevice | None) -> None:
    """Let a device take what is placed on cuda:0."""
    global _active
    _active = device


class DeviceTensor(torch.Tensor):
    """A tensor on cuda:0 whose values are in a CPU tensor, `_inner`.

    To torch's C++ code it is on the CPU, so that autograd works in a build without CUDA; everything that Python code
    asks for is answered as by a tensor on a GPU.
    """

    _inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> "DeviceTensor":
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=_CPU,
        )
        made._inner = inner
        return made

    def __init__(self, inner: Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return execute(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Let `nn.Module.to` swap a parameter's content, which keeps its identity, as a move to a GPU does."""
        return ["_inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> "DeviceTensor":
        return DeviceTensor(inner["_inner"])

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, DeviceTensor) or value.shape != self.shape or value.dtype != self.dtype:
            exchange(self, value)
        else:
            self._inner = value._inner

    def get_device(self) -> int:
        return 0

    def untyped_storage(self) -> torch.UntypedStorage:
        return self._inner.untyped_storage()

    def data_ptr(self) -> int:
        return self._inner.data_ptr()

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def is_shared(self) -> bool:
        return False

    def pin_memory(self, device: Any = None) -> Tensor:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")

    def type(self, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self._inner.type().replace("torch.", "torch.cuda.") if dtype is None else self.to(dtype)

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
        return move(self, _CPU, memory_format=memory_format)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        return to(self, *args, **kwargs)

    def cuda(self, device: Any = None, non_blocking: bool = False, **options: Any) -> Tensor:
        return move(self, CUDA if device is None else device_of(device), non_blocking=non_blocking, **options)

    def set_(self, source: Any, offset: int = 0, size: Any = None, stride: Any = None) -> "DeviceTensor":  # type: ignore
        """Share a storage; the result is a new object, since a wrapper's shape can't change."""
        inner = torch.empty(0, dtype=self.dtype)
        return DeviceTensor(inner.set_(source, offset, size, *(() if stride is None else (stride,))))

    def record_stream(self, stream: Any) -> None:
        allocation = allocation_of(self.untyped_storage())
        if allocation is not None:
            allocation.recorded.add(stream.number)

    def tolist(self) -> Any:
        active().synchronize_stream("tolist")
        return self._inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
            "first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the simulation exports no memory of the device")

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        return torch.tensor(data, **({"dtype": self.dtype, "device": CUDA} | options))

    def __deepcopy__(self, memo: dict[int, Any]) -> "DeviceTensor":
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")
        with torch.no_grad():
            new: Any = self.detach().clone()
        new.requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            new._is_param = True
        if self.grad is not None:
            new.grad = self.grad.__deepcopy__(memo)  # type: ignore[arg-type]
        memo[id(self)] = new
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        return restored, (self.detach().cpu(), self.requires_grad, getattr(self, "_is_param", False))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{repr(self._inner)[:-1]}, device='cuda:0')"


def exchange(tensor: Tensor, value: Tensor) -> None:
    """Assign `.data` of another device, shape or dtype: the object stays, its content becomes the value's."""
    gradient, new = tensor.grad, value.detach().requires_grad_(tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        new = torch.nn.Parameter(new, tensor.requires_grad)
    torch.utils.swap_tensors(tensor, new)
    if gradient is not None:
        tensor.grad = gradient.detach().to(value.device, value.dtype)


def restored(host: Tensor, requires_grad: bool, is_parameter: bool) -> Tensor:
    """Rebuild a pickled tensor of the device."""
    new = host if _active is None else move(host, CUDA)
    return torch.nn.Parameter(new, requires_grad) if is_parameter else new.requires_grad_(requires_grad)


for _name in ("new_empty", "new_zeros", "new_ones", "new_full"):

    def _new(self: Tensor, *args: Any, _name: str = _name, device: Any = None, **options: Any) -> Tensor:
        """Create a tensor like this one; the host's if asked for, which torch's C++ code can't tell."""
        if device is not None and torch.device(device).type != "cuda":
            return getattr(self._inner, _name)(*args, device=device, **options)  # type: ignore[attr-defined]
        return getattr(torch.Tensor, _name)(self, *args, **options)

    setattr(DeviceTensor, _name, _new)


class SimulationMode(TorchDispatchMode):
    """Takes operators that name a CUDA device or pinned memory, and those of a thread's device tensors."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if (
            any(issubclass(kind, DeviceTensor) for kind in types)
            or (device is not None and device.type == "cuda")
            or kwargs.get("pin_memory")
        ):
            return execute(func, args, kwargs)
        return func(*args, **kwargs)


_MODE = SimulationMode()


@contextmanager
def in_this_thread() -> Iterator[None]:
    """Let the calling thread's operators reach the device; nothing happens if they do already."""
    if _active is None or any(mode is _MODE for mode in _get_current_dispatch_mode_stack()):
        yield
        return
    with _MODE:
        yield


# -- operators

_PLACES = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default,
           _aten._unsafe_index.Tensor, _aten._unsafe_index_put.default)  # fmt: skip
"""Operators whose indices may be on the host; they are then copied."""

_SCALAR_ALLOWED = {
    *(getattr(_aten.masked_fill, name) for name in ("Tensor",)),
    _aten.masked_fill_.Tensor, _aten.fill_.Tensor, _aten.fill.Tensor, _aten.where.self, _aten.index_fill_.int_Tensor,
}  # fmt: skip
"""Operators, besides pointwise ones, that accept a 0-dim tensor of the host."""

_HOST_ARGUMENTS = {"_pack_padded_sequence", "_pad_packed_sequence", "record_stream"}
"""Operators with arguments that must be on the host."""

_SYNCHRONISING = {
    "_local_scalar_dense": 1, "nonzero": 1, "masked_select": 1, "equal": 1, "bincount": 1, "_unique2": 1, "_unique": 1,
    "unique_dim": 1, "unique_consecutive": 1, "unique_dim_consecutive": 1, "_coalesce": 1, "segment_reduce": 2,
    "histc": 1, "_pack_padded_sequence": 1,
}  # fmt: skip
"""Operators that wait for the device, since the host needs a size or a value, and how often."""

_EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}

_IN_PLACE_IN_BACKWARD = {
    _aten.add.Tensor, _aten.index_add.default, _aten.index_put.default, _aten.masked_fill.Scalar, _aten.scatter.src,
    _aten.scatter.value, _aten.scatter_add.default,
}  # fmt: skip
"""Operators that autograd's engine runs in place on a GPU, where the gradient is no tensor subclass."""

_PASSED_BY = (__file__, "torch/_ops.py", "torch/_compile.py", "eval_frame.py", "meter/allocation_tracker.py",
              "torch/utils/_python_dispatch.py", "torch/_tensor.py")  # fmt: skip


class _Operator(NamedTuple):
    """What is to be known of an operator.

    Args:
        name: without namespace and overload.
        is_mutable: it writes to arguments.
        is_random: it draws from a generator.
        written: positions and names of the arguments that it writes to.
    """

    name: str
    is_mutable: bool
    is_random: bool
    written: tuple[tuple[int, str], ...]


@cache
def _about(func: Any) -> _Operator:
    schema = func._schema
    written = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    return _Operator(schema.name.partition("::")[2], schema.is_mutable, is_random, written)


def execute(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator on the device, or a copy to or from it.

    Args:
        func: an ATen operator.
        args: its arguments; some are device tensors, or `kwargs` names the device or pinned memory.

    Raises:
        RuntimeError: CUDA would refuse it: operands on two devices, say.
        torch.OutOfMemoryError: Its result does not fit.
    """
    device = active()
    target = kwargs.get("device")
    name = _about(func).name
    tensors: list[Tensor] = []
    _collect((args, kwargs), tensors)
    on_device = [t for t in tensors if isinstance(t, DeviceTensor)]
    if target is not None and target.type == "cuda":
        check_ordinal(target)
    if name == "_to_copy":
        if not on_device:
            return _upload(func, device, args[0], kwargs)
        if getattr(_local, "downloading", False):
            return _download(device, args[0], kwargs)
    if name == "copy_" and isinstance(args[0], DeviceTensor) != isinstance(args[1], DeviceTensor):
        return _copy_across(device, *args, **kwargs)
    if name == "record_stream":
        return args[0].record_stream(args[1])
    if not on_device and (target is None or target.type != "cuda"):  # pinned memory
        made = func(*args, **{**kwargs, "pin_memory": False})
        return pin(made)
    if not on_device and tensors:  # `zeros_like(host, device="cuda")`: only the shape is read
        tensors = []
    if name == "pin_memory" or name == "_pin_memory":
        raise RuntimeError("only dense CPU tensors can be pinned")
    _adopt_zeros(device, tensors)
    _refuse_mixed(func, name, args, tensors)
    _count_synchronisations(device, func, name, args, kwargs)
    options = dict(kwargs)
    if "device" in options:
        options["device"] = _CPU
    if options.get("pin_memory"):
        raise RuntimeError("Only dense CPU tensors can be pinned")
    options.pop("pin_memory", None)
    uploaded = _unwrapper(device, func)
    inner_args = _mapped(uploaded, args)
    inner_options = {key: _mapped(uploaded, value) for key, value in options.items()}
    result = _run(device, func, inner_args, inner_options)
    return _wrapped(device, func, name, args, kwargs, on_device, result)


def _run(device: SimulatedDevice, func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator on CPU tensors; random numbers come from the device's generator."""
    if not _about(func).is_random:
        return func(*args, **kwargs)
    generator = next((v for v in (*args, *kwargs.values()) if isinstance(v, torch._C.Generator)), None)
    if generator is not None:
        if generator._cdata not in device.generators:  # type: ignore[attr-defined]
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        return func(*args, **kwargs)
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(device.generator.get_state())
    try:
        return func(*args, **kwargs)
    finally:
        device.generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


def _wrapped(
    device: SimulatedDevice, func: Any, name: str, args: Any, kwargs: Any, on_device: list[DeviceTensor], result: Any
) -> Any:
    """Give an operator's results to the device, count its launch, and check the order of streams."""
    results: list[Tensor] = []
    _collect(result, results)
    known = {id(t._inner): t for t in on_device}
    mutable = _about(func).is_mutable
    if mutable:
        _check_shapes(name, on_device)
    in_place = None
    if func in _IN_PLACE_IN_BACKWARD and on_device and not args[0]._is_view() and _called_by_engine():
        in_place = args[0].untyped_storage()
    fresh = [t.untyped_storage() for t in results if allocation_of(t.untyped_storage()) is None]
    device.adopt(fresh, in_place_of=in_place)
    is_view = not fresh and not mutable
    if not is_view and name not in _EMPTY and name != "_local_scalar_dense":
        device.counts.launches[name] += 1
    if not is_view or name == "_local_scalar_dense":
        written = {id(s) for s in fresh} | {id(t.untyped_storage()) for t in _written(func, args, kwargs)}
        storages = {id(s): s for s in (*fresh, *(t.untyped_storage() for t in on_device))}
        used = [(allocation, key in written) for key, s in storages.items() if (allocation := allocation_of(s))]
        device.queue(used, name)

    def wrap(value: Any) -> Any:
        return known[id(value)] if id(value) in known else DeviceTensor(value)

    return _mapped(wrap, result)


def _written(func: Any, args: Any, kwargs: Any) -> list[DeviceTensor]:
    """The arguments that an operator writes to."""
    found: list[Tensor] = []
    for position, name in _about(func).written:
        _collect(args[position] if position < len(args) else kwargs.get(name), found)
    return [t for t in found if isinstance(t, DeviceTensor)]


def _check_shapes(name: str, on_device: list[DeviceTensor]) -> None:
    for tensor in on_device:
        if tensor.shape != tensor._inner.shape:
            raise NotImplementedError(f"the simulation does not support {name} that changes a tensor's shape")


def _is_on_host(tensor: Tensor) -> bool:
    return not isinstance(tensor, DeviceTensor) and allocation_of(tensor.untyped_storage()) is None


def _adopt_zeros(device: SimulatedDevice, tensors: list[Tensor]) -> None:
    """Make the zeros that autograd's engine allocates for missing gradients, on "the tensor's device", the device's."""
    host = [t for t in tensors if _is_on_host(t) and t.dim()]
    if host and len(host) < len(tensors) and _called_by_engine():
        device.adopt([t.untyped_storage() for t in host])


def _refuse_mixed(func: Any, name: str, args: Any, tensors: list[Tensor]) -> None:
    """Refuse operands on two devices, where CUDA does.

    Raises:
        RuntimeError: A tensor is on the host that must be on the device, or the reverse.
    """
    host = [t for t in tensors if _is_on_host(t)]
    if not host or len(host) == len(tensors):
        return
    if func in _PLACES and isinstance(args[0], DeviceTensor):
        values = args[2] if len(args) > 2 else None
        if not isinstance(values, Tensor) or isinstance(values, DeviceTensor) or values.dim() == 0:
            return
    elif name in _HOST_ARGUMENTS:
        return
    elif name.startswith("_foreach_") or torch.Tag.pointwise in func.tags or func in _SCALAR_ALLOWED:
        mutated = args[0] if func._schema.is_mutable else None
        mutated = mutated if isinstance(mutated, list | tuple) else [mutated]
        if all(t.dim() == 0 for t in host) and not any(t is other for t in host for other in mutated):
            return
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when "
        f"checking arguments of {name})"
    )


def _count_synchronisations(device: SimulatedDevice, func: Any, name: str, args: Any, kwargs: Any) -> None:
    times = _SYNCHRONISING.get(name, 0)
    if name == "segment_reduce" and (kwargs.get("unsafe") or _argument(func, "unsafe", args)):
        times = 0
    if name == "repeat_interleave" and kwargs.get("output_size", _argument(func, "output_size", args)) is None:
        times = 1
    if func in _PLACES:
        masks = [i for i in args[1] if isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)]
        value = args[2] if len(args) > 2 else None
        fills = isinstance(value, Tensor) and not isinstance(value, DeviceTensor) and len(args[1]) == 1
        times = len(masks) if masks and not fills else 0
    for _ in range(times):
        device.synchronize_stream(name)


def _argument(func: Any, name: str, args: Any) -> Any:
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return args[position] if position < len(args) else argument.default_value
    return None


def _unwrapper(device: SimulatedDevice, func: Any) -> Callable[[Tensor], Tensor]:
    """Returns the CPU tensor of a device tensor; indices of the host are copied to the device, blocking."""

    def unwrap(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DeviceTensor):
            return tensor._inner
        if func in _PLACES and tensor.dim():
            pinned, stream = is_pinned(tensor), device.current_stream
            device.count_copy("h2d", tensor.nbytes, pinned=pinned, blocking=True, stream=stream)
            device.synchronize_stream("copy of an index to the device")
        return tensor

    return unwrap


def _called_by_engine() -> bool:
    """Whether autograd's C++ engine called the operator, as opposed to Python code in a custom backward pass."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_PASSED_BY):
        frame = frame.f_back
    return frame.f_code.co_name == "_engine_run_backward"


# -- copies


def _upload(func: Any, device: SimulatedDevice, source: Tensor, options: Any) -> Tensor:
    """Copy a host tensor to the device."""
    wanted = {key: options[key] for key in ("dtype", "memory_format") if options.get(key) is not None}
    with device.downloaded(source):
        inner = func(source, **wanted, device=_CPU)
    device.adopt([inner.untyped_storage()])
    _copied_to_device(device, inner, source, options.get("non_blocking", False))
    return DeviceTensor(inner)


def _copied_to_device(device: SimulatedDevice, inner: Tensor, source: Tensor, non_blocking: bool) -> None:
    pinned = is_pinned(source)
    allocation = allocation_of(inner.untyped_storage())
    stream, number = device.queue([(allocation, True)] if allocation is not None else [], "copy to the device")
    if not source.nbytes:
        return
    device.count_copy("h2d", source.nbytes, pinned=pinned, blocking=not non_blocking, stream=stream)
    if not non_blocking:
        device.synchronize_stream("blocking copy to the device")
    elif pinned:
        device.upload_later(source, stream, number)


def _download(device: SimulatedDevice, source: DeviceTensor, options: Any) -> Tensor:
    """Copy a device tensor to the host; without blocking, into pinned memory."""
    wanted = {key: options[key] for key in ("dtype", "memory_format") if options.get(key) is not None}
    target = _aten._to_copy.default(source._inner, **wanted, device=_CPU)
    non_blocking = options.get("non_blocking", False)
    _copied_to_host(device, pin(target) if non_blocking else target, source, non_blocking)
    return target


def _copied_to_host(device: SimulatedDevice, target: Tensor, source: DeviceTensor, non_blocking: bool) -> None:
    allocation = allocation_of(source.untyped_storage())
    stream, number = device.queue([(allocation, False)] if allocation is not None else [], "copy to the host")
    if not source.nbytes:
        return
    pinned = is_pinned(target)
    device.count_copy("d2h", source.nbytes, pinned=pinned, blocking=not (non_blocking and pinned), stream=stream)
    if non_blocking and pinned:
        device.download_later(target, source._inner, stream, number)
    else:
        device.synchronize_stream("copy to the host")


def _copy_across(device: SimulatedDevice, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`target.copy_(source)` between host and device."""
    if isinstance(target, DeviceTensor):
        with device.downloaded(source):
            target._inner.copy_(source)
        _copied_to_device(device, target._inner, source, non_blocking)
    else:
        assert isinstance(source, DeviceTensor)
        target.copy_(source._inner)
        _copied_to_host(device, target, source, non_blocking)
    return target


class _Transfer(torch.autograd.Function):
    """A copy to another device whose gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, device: torch.device, options: dict[str, Any]) -> Tensor:
        ctx.device, ctx.dtype = tensor.device, tensor.dtype
        return _transfer(tensor, device, options)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad.to(device=ctx.device, dtype=ctx.dtype), None, None


def _transfer(tensor: Tensor, device: torch.device, options: dict[str, Any]) -> Tensor:
    if device.type == "cuda":
        with in_this_thread():
            return _aten._to_copy.default(tensor, device=CUDA, **options)
    _local.downloading = True
    try:
        return _aten._to_copy.default(tensor, device=_CPU, **options)
    finally:
        _local.downloading = False


def device_of(value: Any) -> torch.device:
    """The device that a user names."""
    return torch.device("cuda", value) if isinstance(value, int) else torch.device(value)


def check_ordinal(device: torch.device) -> None:
    """Refuse GPUs beyond the only one."""
    if device.index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal (there is 1 simulated GPU, not {device})")


def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`, which also copies between host and device."""
    device, rest = kwargs.get("device"), args
    if args and isinstance(args[0], Tensor):
        options = {"dtype": args[0].dtype, **dict(zip(("non_blocking", "copy"), args[1:], strict=False)), **kwargs}
        return move(tensor, args[0].device, **options)
    if isinstance(kwargs.get("other"), Tensor):
        other = kwargs.pop("other")
        return move(tensor, other.device, **({"dtype": other.dtype} | kwargs))
    if args and (args[0] is None or isinstance(args[0], str | torch.device | int)) and not isinstance(args[0], bool):
        device, rest = args[0], args[1:]
    if device is None:
        return ORIGINAL_TO(tensor, *rest, **{k: v for k, v in kwargs.items() if k != "device"})
    device = device_of(device)
    if not isinstance(tensor, DeviceTensor) and device.type != "cuda":
        return ORIGINAL_TO(tensor, *args, **kwargs)
    named = dict(zip(("dtype", "non_blocking", "copy"), rest, strict=False))
    return move(tensor, device, **(named | {k: v for k, v in kwargs.items() if k != "device"}))


def move(
    tensor: Tensor,
    device: torch.device,
    *,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Tensor:
    """Copy a tensor to a device, differentiably."""
    if device.type == "cuda":
        check_ordinal(device)
    if device.type == tensor.device.type:
        return ORIGINAL_TO(tensor, dtype=dtype or tensor.dtype, copy=copy, memory_format=memory_format)
    if device.type not in ("cpu", "cuda"):
        raise NotImplementedError(f"the simulation copies nothing to {device}")
    options = {"dtype": dtype, "non_blocking": non_blocking, "memory_format": memory_format}
    if tensor.requires_grad and torch.is_grad_enabled():
        return _Transfer.apply(tensor, device, options)  # type: ignore[no-any-return]
    return _transfer(tensor.detach() if tensor.requires_grad else tensor, device, options)


# -- nested arguments


def _collect(values: Any, found: list[Tensor]) -> None:
    if isinstance(values, Tensor):
        found.append(values)
    elif isinstance(values, list | tuple):
        for value in values:
            _collect(value, found)
    elif isinstance(values, dict):
        for value in values.values():
            _collect(value, found)


def _mapped(change: Callable[[Tensor], Any], values: Any) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        return type(values)(_mapped(change, value) for value in values)
    return values

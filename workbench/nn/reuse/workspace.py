"""`Workspace`: the buffers of a model's layers, reused by every forward and backward pass."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import runs_eagerly

_STEPS_PER_DOUBLING = 8


def capacity(count: int) -> int:
    """Return the elements of a buffer that must have room for `count`: at most an eighth more.

    Rounding up to one of eight sizes per power of two bounds how often a buffer grows, and makes its size a function of
    the largest request alone, so that it can be priced.

    >>> [capacity(count) for count in (0, 7, 17, 1000, 1025)]
    [0, 7, 18, 1024, 1152]
    """
    step = max(1, (1 << max(0, count - 1).bit_length()) // (2 * _STEPS_PER_DOUBLING))
    return -(-count // step) * step


class ForwardPass:
    """One use of a workspace: the autograd graph of a forward pass refers to it for as long as it can run backward.

    Args:
        workspace: whose buffers contain the pass's intermediate results.
    """

    def __init__(self, workspace: "Workspace") -> None:
        self.workspace = workspace
        self.is_pending = True

    def start_backward(self) -> None:
        """Note that the backward pass runs.

        Raises:
            RuntimeError: if a later forward pass has overwritten the buffers.
        """
        if self.workspace.latest is not self:
            raise RuntimeError(
                "the buffers of this forward pass were overwritten by a later one of the same model; run backward "
                "before the next forward pass, or build the model with reuse_buffers=False"
            )
        self.is_pending = False

    def in_place(self, grad: Tensor) -> Tensor:
        """Memory for a gradient's product with a mask: that of the gradient if it is a buffer."""
        owned = self.workspace.owns(grad) and grad.is_contiguous()
        return grad if owned else self.workspace.take("masked gradient", grad, *grad.shape)


class Workspace:
    """Buffers by name, which grow if a batch needs more and are never shrunk (`release` frees them).

    A copy of a workspace (`copy.deepcopy`, pickle) is empty.
    """

    def __init__(self) -> None:
        self._buffers: dict[Any, Tensor] = {}
        self._latest: weakref.ref[ForwardPass] | None = None
        self.active: ForwardPass | None = None
        """The forward pass that is running; None outside of it, where layers allocate as usual."""

    @property
    def latest(self) -> ForwardPass | None:
        """The last forward pass, while its outputs or its autograd graph exist."""
        return None if self._latest is None else self._latest()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def tensors(self) -> list[Tensor]:
        """Return all buffers."""
        return list(self._buffers.values())

    @contextmanager
    def forward_pass(self) -> Iterator[ForwardPass]:
        """Make the layers use the buffers within the block; a pass that fails does not occupy them.

        Raises:
            RuntimeError: if the backward pass of an earlier forward pass is still to come.
        """
        earlier = self.latest
        if earlier is not None and earlier.is_pending:
            raise RuntimeError(
                "a second forward pass before the backward pass of the first would overwrite its intermediate results, "
                "because the model reuses its buffers; run backward first, drop the outputs (and losses) of a forward "
                "pass that needs no backward pass or run it under torch.no_grad(), call model.workspace.release(), or "
                "build the model with reuse_buffers=False"
            )
        current = ForwardPass(self)
        self._latest, self.active = weakref.ref(current), current
        try:
            yield current
        except BaseException:
            current.is_pending = False  # the error's traceback may keep it alive
            raise
        finally:
            self.active = None

    def release(self) -> None:
        """Free the buffers; the backward pass of an earlier forward pass is refused from now on."""
        self._buffers, self._latest = {}, None

    def take(self, name: Any, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return uninitialised memory like `like`: that of the last call with this name, if it is large enough."""
        count, dtype = torch.Size(shape).numel(), dtype or like.dtype
        buffer = self._buffers.get(name)
        if buffer is None or buffer.dtype != dtype or buffer.device != like.device or len(buffer) < count:
            self._buffers.pop(name, None)  # freed before the new one is allocated
            del buffer
            buffer = self._buffers[name] = uninitialised(like, capacity(count), dtype=dtype)
        return _sharing(buffer, 0, shape)

    def owns(self, tensor: Tensor) -> bool:
        """Return whether a tensor's memory is one of the buffers."""
        address = tensor.untyped_storage().data_ptr()
        return any(buffer.data_ptr() == address for buffer in self._buffers.values() if len(buffer))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Workspace":
        memo[id(self)] = copied = Workspace()
        return copied

    def __reduce__(self) -> Any:
        return Workspace, ()


class Slots(NamedTuple):
    """The buffers of one layer in a forward pass.

    Args:
        run: the forward pass.
        position: number of the layer.
        is_last: its outputs leave the model, so they are no buffer.
    """

    run: ForwardPass
    position: int
    is_last: bool

    def of_layer(self, name: str, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Memory that keeps its contents until the next forward pass."""
        return self.run.workspace.take((name, self.position), like, *shape, dtype=dtype)

    def shared(self, name: str, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Memory that other layers use too."""
        return self.run.workspace.take(name, like, *shape, dtype=dtype)

    def result(self, name: str, like: Tensor, *shape: int) -> Tensor:
        """Memory of a result of the layer; that of the model's "output" is new."""
        is_buffer = name != "output" or not self.is_last
        return self.of_layer(name, like, *shape) if is_buffer else uninitialised(like, *shape)

    def input_gradient(self, h: Tensor) -> Tensor:
        """Memory for the gradient of the layer's input: a buffer if the input is one, since others may keep theirs.

        Layers alternate between two buffers: a layer reads the gradient of its output from the other one.
        """
        if not self.run.workspace.owns(h):
            return uninitialised(h, *h.shape)
        return self.shared(f"gradient {self.position % 2}", h, *h.shape)


def sharing_memory(tensor: Tensor) -> Tensor:
    """Return a tensor with the same memory that autograd does not know to be related: no view, own version counter."""
    return _sharing(tensor, int(tensor.storage_offset()), tensor.shape, tensor.stride())


def _sharing(tensor: Tensor, offset: int, shape: Any, stride: Any = None) -> Tensor:
    empty, storage = tensor.detach().new_empty(0), tensor.untyped_storage()
    if stride is None:
        return empty.set_(storage, offset, shape)  # pyright: ignore[reportCallIssue,reportArgumentType]
    return empty.set_(storage, offset, shape, stride)  # pyright: ignore[reportCallIssue,reportArgumentType]


def check_reusable(x: Tensor) -> None:
    """Refuse what the layers do not support: half precision, autocast and compiled models."""
    if torch.compiler.is_compiling():
        _refuse_compiler()
    if x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(x.device.type):
        found = "autocast is enabled" if torch.is_autocast_enabled(x.device.type) else f"features are {x.dtype}"
        raise TypeError(
            f"{found}, but a model that reuses its buffers computes in float32 or float64; build it with "
            "reuse_buffers=False"
        )


@runs_eagerly
def _refuse_compiler() -> None:
    raise RuntimeError(
        "torch.compile plans the memory of a model itself and can't compile one that reuses its buffers; build it with "
        "reuse_buffers=False"
    )

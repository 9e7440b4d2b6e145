"""Exceptions of the workbench and argument checks, whose messages name the value, the limit and the remedy.

Every check takes the `name` of the argument that the message is about, and raises TypeError, ValueError or IndexError.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor

from workbench.core.suggestions import unknown
from workbench.core.units import format_bytes, parse_bytes
from workbench.error_text import text_of
from workbench.kernels.buffers import bounds
from workbench.kernels.csr import first_decrease

ID_DTYPES = (torch.int64, torch.int32)

INT64_MAX = torch.iinfo(torch.int64).max

_FEW = 1 << 20  # values: NumPy wakes no threads of OpenMP, whose spinning slows the kernels that follow


class CapacityError(MemoryError):
    """The work needs more memory than is available; the message names both numbers and the remedy."""


class CorruptFileError(ValueError):
    """A stored file does not match its header."""


class PartitionError(RuntimeError):
    """A partitioner failed, crashed or timed out; the message names it, how it ended and the remedy."""


class RankError(RuntimeError):
    """A rank failed, died or timed out; the message names it, its stage and the remedy, and contains its stack.

    Args:
        message: the text.
        rank: the rank that failed first, or that the others waited for.
        stage: how far it had come: "start", "import", "rendezvous", "before the first collective", "in all_reduce
            (collective 1)", "after all_reduce (collective 1)" or "returning rows"; inside a cooperative step with the
            phase, "features, in all_to_all_single (collective 5)".
    """

    def __init__(self, message: str, rank: int, stage: str) -> None:
        super().__init__(message)
        self.rank, self.stage = rank, stage

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.rank, self.stage), vars(self)


class DataError(ValueError):
    """A data file contains an invalid value; the message names the file, the key and the value."""


def check_ids(name: str, ids: Tensor, limit: int, *, unique: bool = False) -> Tensor:
    """Return `ids` as a contiguous int64 vector after checking them.

    Args:
        ids: int64 or int32 [any].
        limit: exclusive upper bound: ids must be in [0, limit).
        unique: reject duplicates too.
    """
    check_id_vector(name, ids)
    if (bad := find_out_of_range(ids, 0, limit)) is not None:
        raise IndexError(f"{name} contains {bad}; ids must be in [0, {limit})")
    ids = ids.to(torch.int64).contiguous()
    if unique:
        check_unique(name, ids)
    return ids


def check_id_vector(name: str, ids: Tensor) -> None:
    """Check that an argument is a vector of integers, without reading its values.

    Args:
        ids: int64 or int32 [any].
    """
    if not isinstance(ids, Tensor) or ids.dtype not in ID_DTYPES:
        raise TypeError(f"{name} must be an int64 or int32 tensor, not {type_name(ids)}; {_conversion(name, ids)}")
    if ids.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(ids.shape)}; flatten it with .reshape(-1)")


def check_unique(name: str, ids: Tensor) -> None:
    """Check that no id occurs twice.

    Args:
        ids: int64 [any].
    """
    from workbench.kernels.csr import first_repeat  # imports numba: only commands that check ids pay for it

    if (repeated := first_repeat(ids)) is not None:
        raise ValueError(f"{name} contains {repeated} more than once; pass each id once (torch.unique)")


def find_out_of_range(values: Tensor, minimum: int, limit: int) -> int | None:
    """Return a value outside [minimum, limit): the smallest if it is too small, otherwise the largest; None if all fit.

    The comparison uses Python integers, because an int32 tensor would wrap a limit of 2³¹ or more.

    >>> find_out_of_range(torch.tensor([0, 7], dtype=torch.int32), -1, 2**63 - 1) is None
    True
    """
    if not values.numel():
        return None
    if values.numel() <= _FEW and type(values) is Tensor and values.device.type == "cpu":
        array = values.numpy()
        low, high = int(array.min()), int(array.max())
    else:
        low, high = bounds(values)
    return low if low < minimum else high if high >= limit else None


def type_name(value: object) -> str:
    """Return the dtype of a tensor, or the type's name of any other value, for messages."""
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


def _conversion(name: str, value: object) -> str:
    mask = f"convert a mask with torch.as_tensor({name}).nonzero()[:, 0]"
    dtype = getattr(value, "dtype", None)
    if dtype in (torch.bool, bool) or (isinstance(value, list | tuple) and value and isinstance(value[0], bool)):
        return mask
    ids = f"torch.as_tensor({name}).long()"
    return f"{mask}, ids with {ids}" if str(dtype).endswith("uint8") else f"convert with {ids}"


def check_vector(
    name: str, values: Tensor | None, length: int | None, dtypes: Iterable[torch.dtype], *, columns: bool = False
) -> None:
    """Check the shape and dtype of a tensor, unless it is None.

    Args:
        values: the tensor, or None for an argument that was omitted.
        length: required size of the first dimension; None accepts any.
        dtypes: accepted dtypes.
        columns: accept more than one dimension.
    """
    if values is None:
        return
    dtypes = tuple(dtypes)
    vector = type(values) is Tensor and values.dim() == 1
    if vector and values.dtype in dtypes and length in (None, values.size(0)):  # soon: batches contain many tensors
        return
    if not isinstance(values, Tensor) or values.dtype not in dtypes:
        remedy = f"convert it with .to({dtypes[0]})" if isinstance(values, Tensor) else f"pass torch.as_tensor({name})"
        accepted = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must be a tensor of {accepted}, not {type_name(values)}; {remedy}")
    if values.dim() != 1 and not (columns and values.dim() > 1):
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it must have one dimension")
    if length is not None and values.shape[0] != length:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; its first dimension must be {length}")


def check_finite(name: str, values: Tensor) -> None:
    """Check that a tensor contains neither NaN nor infinity.

    Args:
        values: floating-point tensor of any shape.
    """
    # If any value is NaN or infinite, so is the minimum or the maximum; unlike isfinite(values), they need no mask as
    # large as the features.
    if not values.numel() or bool(torch.isfinite(torch.stack(torch.aminmax(values))).all()):
        return
    position = int((~torch.isfinite(values)).flatten().nonzero()[0, 0])
    value = float(values.flatten()[position])
    raise ValueError(f"{name} contains {value} at position {position}; replace or drop non-finite values")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Check that a value is one of the known names."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(unknown(name, value, known, most=99))


def check_at_least(name: str, value: int, least: int, *, most: int | None = None) -> None:
    """Check that a value is a whole number of at least `least` and, if `most` is given, at most `most`.

    Args:
        least: inclusive lower bound.
        most: inclusive upper bound; None for no bound.
    """
    whole = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
    if not whole or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")


def check_bytes(name: str, value: int | str, least: int = 1) -> int:
    """Return a number of bytes, which may be written as text.

    Args:
        value: bytes, or text such as "8GiB" or "500 MB" (`workbench.parse_bytes`).
        least: inclusive lower bound, in bytes.

    >>> check_bytes("capacity_bytes", "8GiB") == 8 * 2**30
    True
    """
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    check_at_least(name, value, least)
    return int(value)


def check_seed(seed: int, name: str = "seed") -> int:
    """Return a random seed, or a step number, as an int.

    Args:
        seed: a whole number in [-2**63, 2**63).
    """
    if type(seed) is not int and (isinstance(seed, bool) or not isinstance(seed, Integral)):
        raise ValueError(f"{name} is {seed!r}; it must be a whole number, such as {name}=0")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"{name} is {seed}; it must be in [-2**63, 2**63), so that no two seeds give the same numbers")
    return int(seed)


def check_device(name: str, device: str | torch.device) -> torch.device:
    """Return a device after checking that tensors can be allocated there.

    Args:
        device: "cpu", "cuda", "cuda:1" or the like.
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = text_of(error).partition("\n")[0]
        raise ValueError(f'{name} is {str(device)!r}, which can\'t be used here: {reason}; pass "cpu"') from None


def check_type(name: str, value: object, kind: Any, remedy: str) -> None:
    """Check the type of an argument.

    Args:
        kind: accepted type or tuple of types.
        remedy: end of the message: what to pass instead.
    """
    if not isinstance(value, kind):
        given = type(value).__name__
        raise TypeError(f"{name} is {'an' if given[:1].lower() in 'aeiou' else 'a'} {given}; {remedy}")


def check_tensors(**values: object) -> None:
    """Check that all arguments are tensors.

    Args:
        values: arguments by name.
    """
    for name, value in values.items():
        check_type(name, value, Tensor, f"pass a tensor: torch.as_tensor({name})")


_UNCHECKED_BYTES = 1 << 28  # smaller allocations are not worth reading /proc/meminfo

_CGROUP = Path("/sys/fs/cgroup")


def check_fits(name: str, nbytes: int, remedy: str) -> None:
    """Check that an allocation fits into the available host memory.

    Args:
        nbytes: its size in bytes, or a lower bound of it.
        remedy: end of the message: how to need less memory.
    """
    if nbytes > _UNCHECKED_BYTES and nbytes > (free := available_bytes()):
        raise CapacityError(f"{name} needs {format_bytes(nbytes)}, but only {format_bytes(free)} is free; {remedy}")


def available_bytes() -> int:
    """Return the bytes of host memory that this process can still allocate: `MemAvailable`, capped by a cgroup limit.

    On systems without /proc it returns the machine's physical memory.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, used = _cgroup()
    return min(free, max(0, limit - used))


def total_bytes() -> int:
    """Return the bytes of the machine's physical memory, capped by a cgroup limit."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _cgroup()[0])


_CGROUP_FILES = (  # limit, usage, statistics and what they call pages of files that were not used lately; v2, then v1
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def _cgroup() -> tuple[int, int]:
    """Return the container's memory limit, without one a larger number than any memory, and the bytes that it uses.

    Pages of files that were not used lately are not in use, as for Docker: the kernel drops them before it refuses
    memory, and whoever reads large files has as many of them as the limit allows.
    """
    for maximum, current, statistics, cache in _CGROUP_FILES:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limit, used = (int((_CGROUP / name).read_text()) for name in (maximum, current))
            with suppress(OSError):
                found = re.search(rf"^{cache} (\d+)$", (_CGROUP / statistics).read_text(), re.MULTILINE)
                used -= int(found[1]) if found else 0
            return limit, max(0, used)
    return INT64_MAX, 0


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """Raised by a handler of SIGTERM that lets the process save what is in memory."""


class deferred_interrupt:
    """Defers KeyboardInterrupt to the end of a `with` block, so that state is never left half changed.

        with deferred_interrupt():
            optimizer.step()

    An interrupt that arrives inside the block is raised when the block exits; an exception raised by the block becomes
    its `__context__`. A second interrupt is raised immediately, so that a block that hangs can still be stopped. Blocks
    nest. The block does nothing in threads other than the main one, which Python never interrupts. SIGTERM is deferred
    likewise. A signal whose handler is not a Python function keeps its effect.
    """

    def __enter__(self) -> Self:
        self._received: tuple[int, FrameType | None] | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if callable(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._received is not None:
            self._before[self._received[0]](*self._received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            self._before[number](number, frame)
        self._received = number, frame


def complete_despite_interrupt(work: Callable[[], object]) -> None:
    """Run cleanup to its end, even if an interrupt arrives meanwhile; the interrupt is raised afterwards.

    An interrupt that arrives before it can be deferred would skip the cleanup, so the cleanup is then run again.

    Args:
        work: short and idempotent, such as restoring state.

    Raises:
        KeyboardInterrupt, Terminated: after `work` has completed.
    """
    try:
        with deferred_interrupt():
            work()
    except (KeyboardInterrupt, Terminated):
        with deferred_interrupt():
            work()
        raise


def check_ends(indptr: Tensor, num_edges: int, *, name: str = "indptr", what: str = "edges") -> None:
    """Check that `indptr` starts at 0 and ends at the number of edges.

    Args:
        indptr: int64 [num_rows + 1].
        num_edges: edges of all rows.
    """
    values = indptr.numpy() if indptr.device.type == "cpu" else indptr  # NumPy reads a value in half the time of torch
    first, last = int(values[0]), int(values[-1])
    if first != 0 or last != num_edges:
        raise ValueError(f"{name} runs from {first} to {last}; it must run from 0 to the {num_edges} {what}")


def check_non_decreasing(indptr: Tensor) -> None:
    """Check that `indptr` never decreases: a kernel would read outside the edges.

    Args:
        indptr: int64 [num_rows + 1].
    """
    if (row := first_decrease(indptr)) is not None:
        raise ValueError(
            f"indptr must be non-decreasing, but it decreases after row {row}, from {int(indptr[row])} to "
            f"{int(indptr[row + 1])}; build it as the running sum of the in-degrees"
        )


def check_sources(indices: Tensor, num_nodes: int, error: type[Exception] = ValueError) -> None:
    """Check that every source is a node.

    Args:
        indices: int32 or int64 [num_edges], sources.
        num_nodes: exclusive upper bound of the sources.
        error: class of the exception.
    """
    if (bad := find_out_of_range(indices, 0, num_nodes)) is not None:
        raise error(f"indices contains {bad}; sources must be in [0, {num_nodes}): pass local ids, or count all nodes")

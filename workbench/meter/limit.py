"""A memory limit on any device: allocations beyond it raise an out-of-memory (OOM) error, as on a full GPU."""

from contextlib import AbstractContextManager, ExitStack

import torch

from workbench.core.capacity import available_bytes
from workbench.core.errors import check_bytes
from workbench.core.interrupts import complete_despite_interrupt, deferred_interrupt
from workbench.core.units import format_bytes
from workbench.meter.allocation_tracker import AllocationTracker
from workbench.meter.frozen_garbage import FrozenGarbage, paused_collection


def limit_memory(
    capacity_bytes: int | str, *, device: torch.device | str = "cpu", held_bytes: int | str = 0
) -> AbstractContextManager[None]:
    """Limit the live bytes on a device inside a `with` block.

    Memory alive at entry counts as `held_bytes`, less whatever of it is freed; later allocations count in full, each
    storage once, rounded up to 512 bytes. A capacity thus means the same on every device: a training step whose
    `measure_peak` is `p` fits into `held_bytes + p`. Limits nest; the tightest one applies.

    On the CPU an operator runs before its result is rejected, so the process may briefly allocate more, and memory that
    `measure_peak` does not count is not limited. On CUDA the caching allocator enforces the limit on its segments of 2
    MiB and more, so a peak close to the capacity may not fit.

    Args:
        capacity_bytes: maximum of live bytes on the device, a number or text such as "8GiB".
        device: "cpu" or a CUDA device.
        held_bytes: bytes of the memory alive at entry that count: parameters and optimizer state, for example, but not
            a data set that is on the device for convenience.

    Raises:
        ValueError: if the device is neither a CPU nor an existing CUDA device, or a number is negative.
        torch.OutOfMemoryError: inside the block, by an allocation beyond the limit. On the CPU the message names the
            bytes requested, live and allowed. The block can continue with smaller allocations.
    """
    device = torch.device(device)
    capacity_bytes = check_bytes("capacity_bytes", capacity_bytes, 0)
    held_bytes = check_bytes("held_bytes", held_bytes, 0)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"can't limit memory of device {str(device)!r}; choose cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"can't limit memory of device {str(device)!r}: torch sees {torch.cuda.device_count()} CUDA devices; "
            'install a CUDA build of torch and the GPU driver, or pass device="cpu"'
        )
    return _Limit(device, capacity_bytes, held_bytes)


class _Limit(AbstractContextManager[None]):
    """Context manager of `limit_memory`; an interrupt at entry or exit never leaves the limit in force."""

    def __init__(self, device: torch.device, capacity_bytes: int, held_bytes: int) -> None:
        self._device, self._capacity_bytes, self._held_bytes = device, capacity_bytes, held_bytes
        self._block = ExitStack()

    def __enter__(self) -> None:
        try:
            with deferred_interrupt(), paused_collection():
                (self._limit_cpu if self._device.type == "cpu" else self._limit_cuda)(self._block)
                self._block.enter_context(FrozenGarbage())
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        complete_despite_interrupt(self._block.close)

    def _limit_cpu(self, block: ExitStack) -> None:
        tracker = AllocationTracker(self._check)
        tracker.start()
        block.callback(tracker.stop)

    def _check(self, requested: int, live: int) -> Exception | None:
        live += self._held_bytes
        if live + requested <= self._capacity_bytes:
            return None
        return torch.OutOfMemoryError(
            f"{self._device} out of memory: tried to allocate {format_bytes(requested)} while {format_bytes(live)} of "
            f"the limit of {format_bytes(self._capacity_bytes)} are in use; split the batch into more micro-batches or "
            "raise the limit"
        )

    def _limit_cuda(self, block: ExitStack) -> None:
        """Set the caching allocator's limit, which is a fraction of the device's memory and covers cached memory."""
        torch.cuda.empty_cache()
        before = torch.cuda.get_per_process_memory_fraction(self._device)
        allowed = torch.cuda.memory_allocated(self._device) - self._held_bytes + self._capacity_bytes
        # The allocator rounds down to whole bytes.
        fraction = (allowed + 0.5) / torch.cuda.get_device_properties(self._device).total_memory
        block.callback(torch.cuda.set_per_process_memory_fraction, before, self._device)
        torch.cuda.set_per_process_memory_fraction(min(max(fraction, 0.0), before), self._device)


def free_bytes(device: torch.device | str) -> int:
    """Return the bytes that a step can still allocate on a device.

    On CUDA this is the driver's free memory plus unused memory that torch's allocator has reserved; on the CPU it is
    the available host memory.

    Args:
        device: "cpu" or a CUDA device.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused

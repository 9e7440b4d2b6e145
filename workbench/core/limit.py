"""A limit of memory that holds on every device, real or not: what would go beyond it is refused as a GPU refuses it."""

from contextlib import AbstractContextManager, ExitStack

import torch

from workbench.core.cpu_gauge import CpuGauge
from workbench.core.errors import check_at_least
from workbench.core.frozen_garbage import FrozenGarbage
from workbench.core.interrupts import deferred_interrupt, surely
from workbench.core.units import format_bytes


def limit_memory(
    capacity_bytes: int, *, device: torch.device | str = "cpu", held_bytes: int = 0
) -> AbstractContextManager[None]:
    """Within the block, refuse what would bring a device's live bytes above a capacity.

    What is alive at entry counts as `held_bytes`, and less as it is freed; what comes after counts in full, each
    storage once, rounded up to 512 bytes. So a capacity means the same on every device: a step of training whose
    `measure_peak` is `p` fits into `held_bytes + p`. Limits nest: the tightest holds.

    On the CPU an operator runs before its result is refused, so the process may take more for that moment; what
    `measure_peak` does not see is not limited. On CUDA the caching allocator refuses: it takes memory in segments of 2
    MiB and more, which are what is limited, so a peak close to the capacity may not fit.

    Args:
        capacity_bytes: live bytes allowed on the device.
        device: "cpu" or a CUDA device.
        held_bytes: what of the memory alive at entry counts (parameters and optimizer state, say, but not a data set
            that lies there for convenience).

    Raises:
        ValueError: another kind of device, one that is not there, or a capacity below 0.
        torch.OutOfMemoryError: in the block, by what does not fit, with the bytes wanted, live and allowed (on the
            CPU); work that then needs less goes on.
    """
    device = torch.device(device)
    check_at_least("capacity_bytes", capacity_bytes, 0)
    check_at_least("held_bytes", held_bytes, 0)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"can't limit memory of device {str(device)!r}; choose cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"can't limit memory of device {str(device)!r}: torch sees {torch.cuda.device_count()} CUDA devices; "
            "needed are a GPU, its driver and a build of torch for CUDA, or choose cpu"
        )
    return _Limit(device, capacity_bytes, held_bytes)


class _Limit(AbstractContextManager[None]):
    """The `with` block of `limit_memory`; an interrupt never leaves it half open."""

    def __init__(self, device: torch.device, capacity_bytes: int, held_bytes: int) -> None:
        self._device, self._capacity_bytes, self._held_bytes = device, capacity_bytes, held_bytes
        self._block = ExitStack()

    def __enter__(self) -> None:
        try:
            with deferred_interrupt():
                (self._limit_cpu if self._device.type == "cpu" else self._limit_cuda)(self._block)
                self._block.enter_context(FrozenGarbage())
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        surely(self._block.close)

    def _limit_cpu(self, block: ExitStack) -> None:
        gauge = CpuGauge(self._refuse)
        gauge.start()
        block.callback(gauge.stop)

    def _refuse(self, wanted: int, live: int) -> Exception | None:
        live += self._held_bytes
        if live + wanted <= self._capacity_bytes:
            return None
        return torch.OutOfMemoryError(
            f"{self._device} out of memory: tried to allocate {format_bytes(wanted)} where {format_bytes(live)} of the "
            f"limit of {format_bytes(self._capacity_bytes)} are live; cut the batch into more micro-batches or raise "
            "the limit"
        )

    def _limit_cuda(self, block: ExitStack) -> None:
        """The caching allocator's limit is a share of the device's memory, and of all that it keeps, in use or not."""
        torch.cuda.empty_cache()
        before = torch.cuda.get_per_process_memory_fraction(self._device)
        allowed = torch.cuda.memory_allocated(self._device) - self._held_bytes + self._capacity_bytes
        # The allocator rounds down to whole bytes.
        share = (allowed + 0.5) / torch.cuda.get_device_properties(self._device).total_memory
        block.callback(torch.cuda.set_per_process_memory_fraction, before, self._device)
        torch.cuda.set_per_process_memory_fraction(min(max(share, 0.0), before), self._device)

"""Peak memory, defined alike on every device: the maximum of live bytes minus the live bytes at entry."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Protocol, Self

import torch

from workbench.core.errors import complete_despite_interrupt, deferred_interrupt
from workbench.meter.allocation_tracker import AllocationTracker, FrozenGarbage, Peak, paused_collection


def measure_peak(fn: Callable[[], object], *, device: torch.device | str = "cpu") -> int:
    """Measure the peak memory of a call: the maximum of live bytes on a device minus the live bytes at entry.

    Every storage counts once, rounded up to 512 bytes. Freeing a storage that was alive at entry lowers the count,
    because the call may reuse its memory; a warning says so if it was not allocated again, since the same call would
    then measure more next time. `PeakMeter.freed_bytes` has the number. Warm up first: a first call also allocates
    optimizer state and caches, or frees what was prefetched for it.

    Args:
        fn: function to call once, without arguments; its result is dropped after the measurement.
        device: "cpu" or a CUDA device. On the CPU, results of PyTorch operators and buffers from `torch.empty` are
            counted; workspace inside operators, NumPy arrays and tensors allocated by other threads or by native code
            are not.

    Returns:
        Peak in bytes, at least 0.

    Raises:
        ValueError: if `device` is neither a CPU nor a CUDA device.

    Warns:
        RuntimeWarning: The call freed storages that were alive at entry and ended with less memory than it began with,
            and the peak is lower for it by more than a tenth and 64 KiB.
    """
    with PeakMeter(device) as meter:
        fn()
    lowered = min(meter.gross_peak_bytes - meter.peak_bytes, meter.net_freed_bytes)
    if lowered > max(_MISLEADING_BYTES, _MISLEADING * (meter.peak_bytes + lowered)):
        warnings.warn(
            f"the peak of {meter.peak_bytes:,} bytes would be up to {lowered:,} bytes higher if the call had not freed "
            f"{meter.freed_bytes:,} bytes that were allocated before it (prefetched features, or tensors saved for a "
            "backward pass, say), without allocating them again; measure a second call, or one that allocates them "
            "itself",
            RuntimeWarning,
            stacklevel=2,
        )
    return meter.peak_bytes


_MISLEADING, _MISLEADING_BYTES = 0.1, 1 << 16


class PeakMeter:
    """Measures the peak memory of a `with` block as `measure_peak` does, optionally by phase.

        with PeakMeter() as meter:
            meter.mark("forward")
            loss = step()
            meter.mark("backward")
            loss.backward()
        meter.peak_bytes, meter.phase_peak_bytes["backward"]

    Meters nest without affecting each other. A meter can be reused after its block; it then starts again from zero.

    Args:
        device: "cpu" or a CUDA device.

    Raises:
        ValueError: if `device` is neither a CPU nor a CUDA device.
        RuntimeError: if the meter is entered while it is measuring.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"can't measure memory of device {str(device)!r}; choose cpu or cuda")
        self.phase_peak_bytes: dict[str, int] = {}
        self._phase: str | None = None
        self._peak = self._gross = self._freed = self._live = 0
        self._reserved: int | None = None
        self._counter: _PeakCounter | None = None
        self._open = ExitStack()

    @property
    def peak_bytes(self) -> int:
        """Peak in bytes up to now, or of the whole block after its end."""
        self._update()
        return self._peak

    @property
    def freed_bytes(self) -> int:
        """Bytes of storages alive at entry that have been freed since; on a GPU, `net_freed_bytes`."""
        self._update()
        return self._freed

    @property
    def net_freed_bytes(self) -> int:
        """By how many bytes less is allocated now, or at the end of the block, than at entry; 0 if it is not less."""
        self._update()
        return max(0, -self._live)

    @property
    def gross_peak_bytes(self) -> int:
        """The peak if no storage alive at entry had been freed; on a GPU, which can't tell storages apart, the peak."""
        self._update()
        return self._gross

    @property
    def reserved_bytes(self) -> int | None:
        """Most that torch's allocator had reserved of a GPU, all in all, since the entry of the block; None on the CPU.

        It takes segments of 2 MiB and more from the driver, and keeps what was freed; `torch.cuda.empty_cache()` before
        the block gives back what is unused. Libraries and the CUDA context need memory of their own beside it.
        """
        self._update()
        return self._reserved

    def mark(self, phase: str) -> None:
        """Start or resume a phase, which lasts until the next mark.

        Args:
            phase: key of `phase_peak_bytes`. A phase's peak is relative to the entry of the block, too, and negative
                if more memory was freed than allocated.
        """
        self._update()
        self._phase = phase

    def __enter__(self) -> Self:
        if self._counter is not None:
            raise RuntimeError("this PeakMeter is measuring already; use another one for the inner block")
        self._peak = self._gross = self._freed = self._live = 0
        self._phase, self.phase_peak_bytes, self._reserved = None, {}, None
        try:
            with deferred_interrupt():
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        complete_despite_interrupt(self._stop)

    def _stop(self) -> None:
        try:
            self._update()
        finally:
            self._counter = None
            self._open.close()

    def _start(self) -> None:
        counter = AllocationTracker() if self.device.type == "cpu" else _CudaPeakCounter(self.device)
        with paused_collection():
            counter.start()
            self._open.callback(counter.stop)
            self._open.enter_context(FrozenGarbage())
        self._counter = counter

    def _update(self) -> None:
        if self._counter is None:
            return
        peak = self._counter.pop_peak()
        self._live, self._freed = peak.live, peak.freed
        self._reserved = getattr(self._counter, "reserved", None)
        self._peak, self._gross = max(self._peak, peak.nbytes), max(self._gross, peak.gross)
        if self._phase is not None:
            self.phase_peak_bytes[self._phase] = max(peak.nbytes, self.phase_peak_bytes.get(self._phase, peak.nbytes))


class _PeakCounter(Protocol):
    def start(self) -> None: ...

    def pop_peak(self) -> Peak:
        """Return the peak since the last call, relative to the start."""
        ...

    def stop(self) -> None: ...


class _CudaPeakCounter:
    """Reads the caching allocator's peak statistics; reading resets them, so all active counters read together."""

    _active: ClassVar["list[_CudaPeakCounter]"] = []

    def __init__(self, device: torch.device) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._peak = self.reserved = 0

    def start(self) -> None:
        self._share_peak()
        self._entry = torch.cuda.memory_allocated(self._device)
        self.reserved = torch.cuda.memory_reserved(self._device)
        self._active.append(self)

    def pop_peak(self) -> Peak:
        self._share_peak()
        peak, self._peak = self._peak, torch.cuda.memory_allocated(self._device)
        live = self._peak - self._entry
        return Peak(peak - self._entry, peak - self._entry, live, max(0, -live))

    def stop(self) -> None:
        self._active.remove(self)

    def _share_peak(self) -> None:
        peak, reserved = torch.cuda.max_memory_allocated(self._device), torch.cuda.max_memory_reserved(self._device)
        for counter in self._active:
            if counter._device == self._device:
                counter._peak, counter.reserved = max(counter._peak, peak), max(counter.reserved, reserved)
        torch.cuda.reset_peak_memory_stats(self._device)

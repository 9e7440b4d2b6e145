"""Peak memory, defined alike on every device: the maximum of live bytes minus the live bytes at entry."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Protocol, Self

import torch

from workbench.core.interrupts import complete_despite_interrupt, deferred_interrupt
from workbench.meter.allocation_tracker import AllocationTracker
from workbench.meter.frozen_garbage import FrozenGarbage, paused_collection


def measure_peak(fn: Callable[[], object], *, device: torch.device | str = "cpu") -> int:
    """Measure the peak memory of a call: the maximum of live bytes on a device minus the live bytes at entry.

    Every storage counts once, rounded up to 512 bytes. Freeing a storage that was alive at entry lowers the count,
    because the call may reuse its memory. Warm up first: a first call also allocates optimizer state and caches.

    Args:
        fn: function to call once, without arguments; its result is dropped after the measurement.
        device: "cpu" or a CUDA device. On the CPU, results of PyTorch operators and buffers from `torch.empty` are
            counted; workspace inside operators, NumPy arrays and tensors allocated by other threads are not.

    Returns:
        Peak in bytes, at least 0.

    Raises:
        ValueError: if `device` is neither a CPU nor a CUDA device.
    """
    with PeakMeter(device) as meter:
        fn()
    return meter.peak_bytes


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
        self._peak = 0
        self._counter: _PeakCounter | None = None
        self._open = ExitStack()

    @property
    def peak_bytes(self) -> int:
        """Peak in bytes up to now, or of the whole block after its end."""
        self._update()
        return self._peak

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
        self._peak, self._phase, self.phase_peak_bytes = 0, None, {}
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
        self._peak = max(self._peak, peak)
        if self._phase is not None:
            self.phase_peak_bytes[self._phase] = max(peak, self.phase_peak_bytes.get(self._phase, peak))


class _PeakCounter(Protocol):
    def start(self) -> None: ...

    def pop_peak(self) -> int:
        """Return the peak in bytes since the last call, relative to the start."""
        ...

    def stop(self) -> None: ...


class _CudaPeakCounter:
    """Reads the caching allocator's peak statistics; reading resets them, so all active counters read together."""

    _active: ClassVar["list[_CudaPeakCounter]"] = []

    def __init__(self, device: torch.device) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._peak = 0

    def start(self) -> None:
        self._share_peak()
        self._entry = torch.cuda.memory_allocated(self._device)
        self._active.append(self)

    def pop_peak(self) -> int:
        self._share_peak()
        peak, self._peak = self._peak, torch.cuda.memory_allocated(self._device)
        return peak - self._entry

    def stop(self) -> None:
        self._active.remove(self)

    def _share_peak(self) -> None:
        peak = torch.cuda.max_memory_allocated(self._device)
        for counter in self._active:
            if counter._device == self._device:
                counter._peak = max(counter._peak, peak)
        torch.cuda.reset_peak_memory_stats(self._device)

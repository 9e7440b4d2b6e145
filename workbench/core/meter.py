"""Peak memory, one meaning on every device: the maximum of live bytes minus live bytes at entry."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Protocol, Self

import torch

from workbench.core.cpu_gauge import CpuGauge
from workbench.core.frozen_garbage import FrozenGarbage
from workbench.core.interrupts import deferred_interrupt, surely


def measure_peak(fn: Callable[[], object], *, device: torch.device | str = "cpu") -> int:
    """Peak bytes of a call: the maximum of live bytes on a device while it runs, minus live bytes at entry.

    Every storage counts once, rounded up to 512 bytes. Storages alive at entry count when they are freed: the call may
    reuse their room. Warm up first, since a first call also allocates what is kept (optimizer state, cached kernels).

    Args:
        fn: called once, without arguments; what it returns is dropped after the measurement.
        device: "cpu" or a CUDA device. On CPUs what PyTorch operators return and what `torch.empty` hands to kernels is
            seen; workspace inside an operator, NumPy's arrays and tensors made by other threads are not.

    Returns:
        Bytes, at least 0.

    Raises:
        ValueError: a device that is neither.
    """
    with PeakMeter(device) as meter:
        fn()
    return meter.peak_bytes


class PeakMeter:
    """Measures the peak of a `with` block as `measure_peak` does, in phases if asked.

        with PeakMeter() as meter:
            meter.mark("forward")
            loss = step()
            meter.mark("backward")
            loss.backward()
        meter.peak_bytes, meter.phase_peak_bytes["backward"]

    Meters nest: the inner one takes nothing from what the outer one sees. One that was left can be entered again, and
    starts anew.

    Args:
        device: "cpu" or a CUDA device.

    Raises:
        ValueError: another kind of device.
        RuntimeError: entered while it is measuring.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"can't measure memory of device {str(device)!r}; choose cpu or cuda")
        self.phase_peak_bytes: dict[str, int] = {}
        self._phase: str | None = None
        self._peak = 0
        self._gauge: _Gauge | None = None
        self._open = ExitStack()

    @property
    def peak_bytes(self) -> int:
        """Peak so far, or of the whole block once it is left."""
        self._absorb()
        return self._peak

    def mark(self, phase: str) -> None:
        """What follows belongs to `phase`, until the next mark; marking a phase again goes on with it.

        Args:
            phase: key of `phase_peak_bytes`; a phase's peak is relative to the entry of the block too, and below 0
                where more had been freed.
        """
        self._absorb()
        self._phase = phase

    def __enter__(self) -> Self:
        if self._gauge is not None:
            raise RuntimeError("this PeakMeter is measuring already; make another one for a block within its block")
        self._peak, self._phase, self.phase_peak_bytes = 0, None, {}
        try:
            with deferred_interrupt():
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        surely(self._stop)

    def _stop(self) -> None:
        try:
            self._absorb()
        finally:
            self._gauge = None
            self._open.close()

    def _start(self) -> None:
        gauge = CpuGauge() if self.device.type == "cpu" else _CudaGauge(self.device)
        gauge.start()
        self._open.callback(gauge.stop)
        self._open.enter_context(FrozenGarbage())
        self._gauge = gauge

    def _absorb(self) -> None:
        if self._gauge is None:
            return
        peak = self._gauge.take()
        self._peak = max(self._peak, peak)
        if self._phase is not None:
            self.phase_peak_bytes[self._phase] = max(peak, self.phase_peak_bytes.get(self._phase, peak))


class _Gauge(Protocol):
    def start(self) -> None: ...

    def take(self) -> int:
        """Peak since the last take, relative to the start."""
        ...

    def stop(self) -> None: ...


class _CudaGauge:
    """The caching allocator's own counters; taking resets a device's counter, so all open gauges take together."""

    _open: ClassVar["list[_CudaGauge]"] = []

    def __init__(self, device: torch.device) -> None:
        self._device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._seen = 0

    def start(self) -> None:
        self._share_peak()
        self._entry = torch.cuda.memory_allocated(self._device)
        self._open.append(self)

    def take(self) -> int:
        self._share_peak()
        seen, self._seen = self._seen, torch.cuda.memory_allocated(self._device)
        return seen - self._entry

    def stop(self) -> None:
        self._open.remove(self)

    def _share_peak(self) -> None:
        peak = torch.cuda.max_memory_allocated(self._device)
        for gauge in self._open:
            if gauge._device == self._device:
                gauge._seen = max(gauge._seen, peak)
        torch.cuda.reset_peak_memory_stats(self._device)

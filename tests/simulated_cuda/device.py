"""The state of a simulated device: memory, streams and counts."""

import linecache
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, UntypedStorage

from tests.simulated_cuda.allocator import Block, CachingAllocator

_HERE = tuple(str(Path(__file__).with_name(name)) for name in ("device.py", "tensor.py", "torch_cuda.py"))
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Copy:
    """A copy between host and device.

    Args:
        direction: "h2d", "d2h" or "d2d".
        nbytes: bytes copied.
        pinned: the host's memory is pinned.
        blocking: the host waits for it.
        line: the line outside of torch that caused it.
        stream: number of the stream it was queued on.
    """

    direction: str
    nbytes: int
    pinned: bool
    blocking: bool
    line: str
    stream: int


@dataclass(frozen=True)
class Sync:
    """A moment at which the host waits for the device.

    Args:
        cause: operator or call that waits.
        line: the line outside of torch that caused it.
    """

    cause: str
    line: str


@dataclass
class Counts:
    """What a program did on the device: a record of `SimulatedDevice.counting`."""

    copies: list[Copy] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    launches: Counter[str] = field(default_factory=Counter)

    @property
    def num_launches(self) -> int:
        """Number of kernels launched."""
        return sum(self.launches.values())

    def of(self, direction: str) -> list[Copy]:
        """The copies of a direction."""
        return [copy for copy in self.copies if copy.direction == direction]

    @property
    def pageable(self) -> list[Copy]:
        """The copies from or to memory that is not pinned, and those for which the host waits."""
        return [copy for copy in self.copies if copy.direction != "d2d" and (copy.blocking or not copy.pinned)]

    def lines(self) -> Counter[str]:
        """Synchronisations by line."""
        return Counter(f"{sync.line}: {sync.cause}" for sync in self.syncs)


@dataclass(eq=False)
class Allocation:
    """The device memory of a storage, and who uses it: numbers of operations by stream."""

    block: Block | None
    nbytes: int
    stream: int
    written: tuple[int, int] | None = None
    read: dict[int, int] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)  # streams of `record_stream`
    reference: "weakref.ref[UntypedStorage] | None" = None


@dataclass(eq=False)
class _Download:
    """A copy to pinned memory that the host must not read before it is complete."""

    target: Tensor
    value: Tensor
    stream: int
    number: int


@dataclass(eq=False)
class _Upload:
    """A copy from pinned memory that the host must not overwrite before it is complete."""

    source: Tensor
    value: Tensor
    stream: int
    number: int
    line: str


_NUMBERS = count(1)  # of streams of all devices: a stream that outlives its device is a new one of the next


class _Clocks(dict[int, dict[int, int]]):
    def __missing__(self, number: int) -> dict[int, int]:
        return self.setdefault(number, {number: 0})


class SimulatedDevice:
    """One simulated GPU, cuda:0.

    Args:
        total_bytes: its memory.
    """

    def __init__(self, total_bytes: int) -> None:
        self.allocator = CachingAllocator(total_bytes)
        self.counts = Counts()
        self.generator = torch.Generator("cpu")
        self.generator.manual_seed(0)
        self.generators: set[int] = set()
        self.hazards: list[str] = []
        self._freed: deque[Allocation] = deque()
        self._lock = threading.RLock()
        self._live: set[Allocation] = set()
        self._clocks = _Clocks()  # what each stream has waited for
        self._host: dict[int, int] = {}  # what the host has waited for
        self._stream = threading.local()
        self._downloads: list[_Download] = []
        self._uploads: list[_Upload] = []
        self._undo: tuple[Allocation, int, int] | None = None

    # -- memory

    def adopt(self, storages: Iterable[UntypedStorage], *, in_place_of: UntypedStorage | None = None) -> None:
        """Make storages that an operator allocated memory of the device.

        Args:
            storages: storages of its results; those of the device already are skipped.
            in_place_of: the storage that autograd would have overwritten instead of allocating a result, if nothing
                else refers to it, which shows when the operator has returned.
        """
        with self._lock:
            self.collect()
            stream = self.current_stream
            peak = self.allocator.peak_allocated
            old = allocation_of(in_place_of) if in_place_of is not None else None
            for storage in storages:
                if allocation_of(storage) is not None:
                    continue
                allocation = Allocation(self.allocator.allocate(storage.nbytes(), stream), storage.nbytes(), stream)
                storage._simulated = allocation  # type: ignore[attr-defined]
                allocation.reference = weakref.ref(storage, lambda _, a=allocation: self._freed.append(a))
                self._live.add(allocation)
                if old is not None and old.block is not None:
                    self._undo = old, peak, self.allocator.allocated - old.block.nbytes

    def collect(self) -> None:
        """Return freed storages to the allocator."""
        with self._lock:
            undo, self._undo = self._undo, None
            while self._freed:
                allocation = self._freed.popleft()
                self._live.discard(allocation)
                self._check_reuse(allocation)
                if undo is not None and undo[0] is allocation:
                    self.allocator.peak_allocated = max(undo[1], undo[2])
                if allocation.block is not None:
                    self.allocator.release(allocation.block)

    def _check_reuse(self, allocation: Allocation) -> None:
        """Note memory that is freed for its stream while another stream, not recorded, may still use it."""
        clock = self._clocks[allocation.stream]
        used = dict(allocation.read)
        if allocation.written is not None:
            used[allocation.written[0]] = max(allocation.written[1], used.get(allocation.written[0], 0))
        for stream, number in used.items():
            known = max(clock.get(stream, 0), self._host.get(stream, 0))
            if stream != allocation.stream and stream not in allocation.recorded and known < number:
                self.hazards.append(
                    f"{allocation.nbytes} bytes of stream {allocation.stream} were freed while stream {stream} may "
                    "still use them; call record_stream, or wait for its event, before the last reference goes"
                )

    # -- streams

    @property
    def current_stream(self) -> int:
        """Number of the calling thread's current stream; 0 is the default."""
        return getattr(self._stream, "number", 0)

    @current_stream.setter
    def current_stream(self, number: int) -> None:
        self._stream.number = number

    def new_stream(self) -> int:
        return next(_NUMBERS)

    def queue(self, used: Iterable[tuple[Allocation, bool]], what: str) -> tuple[int, int]:
        """Queue an operation on the current stream and check that what it uses is complete.

        Args:
            used: allocations, and whether each is written.
            what: the operation, for messages.

        Returns:
            The stream and the operation's number on it.

        Raises:
            RuntimeError: Another stream may still write, or for a written allocation read, the same memory.
        """
        with self._lock:
            stream = self.current_stream
            clock = self._clocks[stream]
            for other, number in self._host.items():
                clock[other] = max(clock.get(other, 0), number)
            clock[stream] += 1
            for allocation, writes in used:
                before = dict(allocation.read) if writes else {}
                if allocation.written is not None:
                    other, number = allocation.written
                    before[other] = max(number, before.get(other, 0))
                for other, number in before.items():
                    if other != stream and clock.get(other, 0) < number:
                        raise RuntimeError(
                            f"{what} on stream {stream} uses memory that stream {other} may not have finished with "
                            f"({causing_line()}); wait for an event or the stream first"
                        )
                if writes:
                    allocation.written, allocation.read = (stream, clock[stream]), {}
                else:
                    allocation.read[stream] = clock[stream]
            return stream, clock[stream]

    def snapshot(self, stream: int) -> dict[int, int]:
        """What an event recorded on a stream now stands for."""
        with self._lock:
            clock = self._clocks[stream]
            for other, number in self._host.items():
                clock[other] = max(clock.get(other, 0), number)
            return dict(clock)

    def wait(self, stream: int, snapshot: dict[int, int]) -> None:
        """Let later operations of a stream wait for an event."""
        with self._lock:
            clock = self._clocks[stream]
            for other, number in snapshot.items():
                clock[other] = max(clock.get(other, 0), number)

    def synchronize(self, cause: str, snapshot: dict[int, int] | None = None) -> None:
        """Let the host wait: for an event, or for all streams.

        Raises:
            RuntimeError: The host overwrote pinned memory whose copy to the device had not completed.
        """
        with self._lock:
            self.counts.syncs.append(Sync(cause, causing_line()))
            self._reach(snapshot or {number: clock[number] for number, clock in self._clocks.items()})

    def synchronize_stream(self, cause: str, stream: int | None = None) -> None:
        """Let the host wait for a stream, by default the current one."""
        self.synchronize(cause, self.snapshot(self.current_stream if stream is None else stream))

    def _reach(self, snapshot: dict[int, int]) -> None:
        for other, number in snapshot.items():
            self._host[other] = max(self._host.get(other, 0), number)
        waiting = self._downloads
        self._downloads = [d for d in waiting if self._host.get(d.stream, 0) < d.number]
        for download in waiting:
            if self._host.get(download.stream, 0) >= download.number:
                download.target.copy_(download.value)
        uploads = self._uploads
        self._uploads = [u for u in uploads if self._host.get(u.stream, 0) < u.number]
        for upload in uploads:
            if self._host.get(upload.stream, 0) >= upload.number:
                self._check_upload(upload)

    def _check_upload(self, upload: _Upload) -> None:
        same = upload.source.view(torch.uint8) if upload.source.dtype == torch.bool else upload.source
        value = upload.value.view(torch.uint8) if upload.value.dtype == torch.bool else upload.value
        if not torch.equal(same.nan_to_num(), value.nan_to_num()):
            raise RuntimeError(
                f"pinned memory was overwritten before its non-blocking copy to the device ({upload.line}) was known "
                "to be complete; wait for an event first"
            )

    # -- copies

    def download_later(self, target: Tensor, value: Tensor, stream: int, number: int) -> None:
        """Fill pinned memory with values that are wrong until the host has waited for a copy to it."""
        target.copy_(value)
        kept = target.clone()
        target.fill_(_poison(target.dtype))
        self._downloads.append(_Download(target, kept, stream, number))

    @contextmanager
    def downloaded(self, source: Tensor) -> Iterator[None]:
        """Let a copy from pinned memory read what an earlier copy in its stream will have written there."""
        clock, storage = self._clocks[self.current_stream], source.untyped_storage()
        earlier = [
            download
            for download in self._downloads
            if download.target.untyped_storage() is storage and clock.get(download.stream, 0) >= download.number
        ]
        for download in earlier:
            download.target.copy_(download.value)
        yield
        for download in earlier:
            download.target.fill_(_poison(download.target.dtype))

    def upload_later(self, source: Tensor, stream: int, number: int) -> None:
        """Remember what a non-blocking copy read, to find out whether the host overwrites it meanwhile."""
        with self.downloaded(source):
            value = source.detach().clone()
        self._uploads.append(_Upload(source.detach(), value, stream, number, causing_line()))

    def count_copy(self, direction: str, nbytes: int, *, pinned: bool, blocking: bool, stream: int) -> None:
        self.counts.copies.append(Copy(direction, nbytes, pinned, blocking, causing_line(), stream))

    def finish(self) -> None:
        """Check what only shows at the end.

        Raises:
            RuntimeError: Memory was reused too early, or pinned memory overwritten.
        """
        self.collect()
        with self._lock:
            uploads, self._uploads = self._uploads, []
            for upload in uploads:
                self._check_upload(upload)
            if self.hazards:
                raise RuntimeError("\n".join(self.hazards))


def allocation_of(storage: UntypedStorage) -> Allocation | None:
    """The device memory of a storage; None for host memory."""
    return getattr(storage, "_simulated", None)


def is_pinned(tensor: Tensor) -> bool:
    """Whether a host tensor's memory is pinned."""
    return getattr(tensor.untyped_storage(), "_simulated_pinned", False)


def pin(tensor: Tensor) -> Tensor:
    """Declare a host tensor's memory to be pinned."""
    tensor.untyped_storage()._simulated_pinned = True  # type: ignore[attr-defined]
    return tensor


def _poison(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def causing_line() -> str:
    """The innermost line that is neither torch's nor the simulation's, as "file:line name"."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*_HERE, _TORCH)) and not name.startswith("<"):
            break
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno} {frame.f_code.co_name}"


def source_of(line: str) -> str:
    """The text of a line that `causing_line` named, if its file is known."""
    name, _, number = line.split(" ")[0].rpartition(":")
    found = [path for path in linecache.cache if path.endswith(name)]
    return linecache.getline(found[0], int(number)).strip() if found else ""

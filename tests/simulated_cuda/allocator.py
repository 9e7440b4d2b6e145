"""The caching allocator of a simulated device: blocks in segments, as CUDA's allocator of torch keeps them."""

import math
from dataclasses import dataclass, field

import torch

ROUND = 512
_MIB = 1 << 20
_SMALL_LIMIT = _MIB
"""Requests up to this size come from segments of 2 MiB."""


@dataclass(eq=False)
class Block:
    """A range of a segment; neighbours are linked so that free ones can be merged."""

    nbytes: int
    pool: "Pool"
    segment: "Segment"
    free: bool = False
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(eq=False)
class Segment:
    """Memory that was requested from the driver in one piece."""

    nbytes: int


@dataclass(eq=False)
class Pool:
    """The free blocks of one stream and one class of sizes."""

    small: bool
    free: list[Block] = field(default_factory=list)


class CachingAllocator:
    """Counts allocated and reserved bytes as `torch.cuda` does, and refuses what exceeds the capacity.

    Requests are rounded to 512 bytes. Up to 1 MiB they share segments of 2 MiB, up to 10 MiB segments of 20 MiB, and
    larger ones have a segment of their own, rounded to 2 MiB. The best-fitting free block of the stream is split if
    enough is left of it; freed neighbours are merged; when the capacity is reached, unused segments are released.

    Args:
        total_bytes: memory of the device.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes, self.fraction = total_bytes, 1.0
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.num_allocations = 0
        self._pools: dict[tuple[int, bool], Pool] = {}

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Allocate a block for a request; None for 0 bytes.

        Raises:
            torch.OutOfMemoryError: The request needs a segment that exceeds the device's or this process's memory.
        """
        nbytes = -(-nbytes // ROUND) * ROUND
        if not nbytes:
            return None
        small = nbytes <= _SMALL_LIMIT
        pool = self._pools.setdefault((stream, small), Pool(small))
        fitting = [block for block in pool.free if block.nbytes >= nbytes]
        block = min(fitting, key=lambda found: found.nbytes) if fitting else self._new_segment(nbytes, pool)
        if fitting:
            pool.free.remove(block)
        self._split(block, nbytes)
        block.free = False
        self.allocated += block.nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.num_allocations += 1
        return block

    def release(self, block: Block) -> None:
        """Return a block to the pool of the stream that allocated it, merged with its free neighbours."""
        self.allocated -= block.nbytes
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                block.pool.free.remove(other)
                block.nbytes += other.nbytes
                if other is block.before:
                    block.before = other.before
                    if block.before is not None:
                        block.before.after = block
                else:
                    block.after = other.after
                    if block.after is not None:
                        block.after.before = block
        block.pool.free.append(block)

    def empty_cache(self) -> None:
        """Return unused segments to the driver."""
        for pool in self._pools.values():
            for block in [found for found in pool.free if found.nbytes == found.segment.nbytes]:
                pool.free.remove(block)
                self.reserved -= block.nbytes

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _new_segment(self, nbytes: int, pool: Pool) -> Block:
        size = 2 * _MIB if pool.small else 20 * _MIB if nbytes < 10 * _MIB else -(-nbytes // (2 * _MIB)) * 2 * _MIB
        allowed = math.floor(self.total_bytes * self.fraction)
        if self.reserved + size > allowed:
            self.empty_cache()
        if self.reserved + size > allowed:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {nbytes / _MIB:.2f} MiB. GPU 0 (simulated) has a total "
                f"capacity of {self.total_bytes / _MIB:.2f} MiB, of which this process may use {allowed / _MIB:.2f} "
                f"MiB. Of the allocated memory {self.allocated / _MIB:.2f} MiB is allocated by PyTorch, and "
                f"{(self.reserved - self.allocated) / _MIB:.2f} MiB is reserved by PyTorch but unallocated."
            )
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return Block(size, pool, Segment(size))

    def _split(self, block: Block, nbytes: int) -> None:
        left = block.nbytes - nbytes
        if left < ROUND or (not block.pool.small and left <= _SMALL_LIMIT):
            return
        rest = Block(left, block.pool, block.segment, free=True, before=block, after=block.after)
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.nbytes = rest, nbytes
        block.pool.free.append(rest)

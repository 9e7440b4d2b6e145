"""`EdgeBuckets`: the edges of a partition store, p² buckets by the partitions of source and destination."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CorruptFileError
from workbench.features.direct_file import DirectFile
from workbench.outofcore.partition_file import as_bytes, block_aligned, checksum
from workbench.outofcore.store_folder import StoreFolder
from workbench.outofcore.store_layout import BLOCK, EDGES, StoreLayout, whole_blocks


@dataclass(frozen=True, eq=False)
class Bucket:
    """The edges from one partition to another, in ascending order of destination, then of the source graph's order.

    Args:
        edge_ids: int64 [n].
        src: int32 [n], offset of each source in its partition.
        dst: int32 [n], offset of each destination in its partition.
        edge_type: integer [n], or None.
        edge_weight: floating point [n], or None.
    """

    edge_ids: Tensor
    src: Tensor
    dst: Tensor
    edge_type: Tensor | None = None
    edge_weight: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(
            a.nbytes for a in (self.edge_ids, self.src, self.dst, self.edge_type, self.edge_weight) if a is not None
        )


def bucket_offsets(bucket_edges: Tensor, edge_bytes: int) -> np.ndarray:
    """int64 [p² + 1], the byte at which every bucket begins: the next multiple of 8 after the one before."""
    sizes = -(-bucket_edges.flatten().numpy() * edge_bytes // 8) * 8
    return np.concatenate([np.zeros(1, np.int64), sizes.cumsum()])


class EdgeBuckets:
    """Reads buckets; those that follow each other in the file are read at once.

    Args:
        folder: of the store.
        layout: its sizes.
        bucket_edges: int64 [p, p], number of edges of every bucket.
        checksums: int64 [p²], XXH3 of every bucket.
        direct: read past the page cache.
        verify: compare the checksum of every bucket that is read.
    """

    def __init__(
        self,
        folder: StoreFolder,
        layout: StoreLayout,
        bucket_edges: Tensor,
        checksums: Tensor,
        *,
        direct: bool | Literal["auto"] = "auto",
        verify: bool = True,
    ) -> None:
        self._layout, self._verify, self._path = layout, verify, folder.path / EDGES
        self._counts, self._checksums = bucket_edges.flatten().tolist(), checksums
        self._offsets = bucket_offsets(bucket_edges, layout.edge_bytes)
        folder.check_size(EDGES, max(BLOCK, whole_blocks(int(self._offsets[-1]))), layout.remedy)
        self._file = DirectFile(self._path, direct=direct, folder=folder.descriptor)

    def runs(self, loaded: Tensor, held: Tensor) -> list[tuple[int, int]]:
        """Buckets that some partitions add to a buffer, as runs [first, last) of consecutive numbers i·p + j.

        Args:
            loaded: int64, partitions that are new in the buffer.
            held: int64, all partitions in the buffer, `loaded` included.
        """
        return runs_of(loaded, held, self._layout.num_partitions)

    def run_bytes(self, run: tuple[int, int]) -> int:
        """Bytes that reading a run moves: the blocks in which it is."""
        low, high = self._blocks(run)
        return high - low

    def _blocks(self, run: tuple[int, int]) -> tuple[int, int]:
        first, last = int(self._offsets[run[0]]), int(self._offsets[run[1]])
        return (first // BLOCK * BLOCK, whole_blocks(last)) if last > first else (first, first)

    def read(self, run: tuple[int, int]) -> dict[tuple[int, int], Bucket]:
        """Read a run of buckets.

        Args:
            run: numbers [first, last) of buckets.

        Returns:
            Buckets by (partition of the sources, partition of the destinations), each with memory of its own.

        Raises:
            CorruptFileError: a bucket is damaged; the message names it.
            OSError: the device reports an error.
        """
        low, high = self._blocks(run)
        memory = block_aligned(high - low)
        if high > low:
            self._file.read(as_bytes(memory), low)
        parts = {number: self._cut(memory, number, low) for number in range(*run)}
        if len(parts) > 1:  # one that leaves the buffer would keep the memory of all
            parts = {number: part.clone() for number, part in parts.items()}
        return {
            divmod(number, self._layout.num_partitions): self._bucket(part, number) for number, part in parts.items()
        }

    def _cut(self, memory: Tensor, number: int, low: int) -> Tensor:
        begin = int(self._offsets[number]) - low
        return memory[begin : begin + self._counts[number] * self._layout.edge_bytes]

    def _bucket(self, own: Tensor, number: int) -> Bucket:
        count = self._counts[number]
        if self._verify and checksum(own) != int(self._checksums[number]):
            i, j = divmod(number, self._layout.num_partitions)
            raise CorruptFileError(
                f"the bucket of edges from partition {i} to partition {j} of {self._path} is damaged: it does not "
                f"match its checksum; {self._layout.remedy}"
            )
        arrays, at = {}, 0
        for name, dtype in self._layout.edge_arrays:
            arrays[name] = own[at : at + count * dtype.itemsize].view(dtype)
            at += count * dtype.itemsize
        return Bucket(**arrays)


def runs_of(loaded: Tensor, held: Tensor, num_partitions: int) -> list[tuple[int, int]]:
    """Runs of consecutive buckets between `loaded` and `held` partitions, in either direction."""
    pairs = [a[:, None] * num_partitions + b for a, b in ((loaded, held), (held, loaded))]
    numbers = torch.unique(torch.cat([pair.flatten() for pair in pairs])).numpy()
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, cuts)]

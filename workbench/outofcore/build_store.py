"""Build the files of a partition store in memory that grows with the number of nodes, not with edges or features.

Edges are read twice: once to count those of every bucket, once to put each into its place in the mapped file.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench import files
from workbench.core.edge_stream import CHUNK_EDGES, EdgeSource, edge_chunks
from workbench.core.errors import CapacityError, CorruptFileError, check_at_least, check_fits, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.units import format_bytes
from workbench.features.learned_rows import state_dtype
from workbench.features.memory_rows import as_store
from workbench.features.protocols import check_store
from workbench.kernels.buffers import byte_view
from workbench.kernels.gather import as_integers
from workbench.kernels.jit import compiled
from workbench.outofcore.store_files import PartitionTable, as_bytes, block_aligned, bucket_offsets, checksum
from workbench.outofcore.store_layout import (
    BLOCK,
    DTYPES,
    EDGES,
    ROWS,
    TABLE,
    StoreFolder,
    StoreLayout,
    name_of,
    whole_blocks,
)

_OTHER_EDGES = "edges were others when they were read again; pass a source that gives the same edges twice"

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class EdgeChunk:
    """Consecutive edges of the source, in the caller's ids."""

    src: Tensor
    dst: Tensor
    edge_ids: Tensor
    edge_type: Tensor | None = None
    edge_weight: Tensor | None = None


def chunks_of(edges: EdgeSource, num_nodes: int) -> Iterator[EdgeChunk]:
    """Yield the edges with their ids, types and weights; a stream's edges are numbered."""
    first = 0
    for src, dst in edge_chunks(edges, num_nodes):
        at = slice(first, first + len(src))
        ids, kind, weight = None, None, None
        if isinstance(edges, Graph):
            arrays = edges.edge_ids, edges.edge_type, edges.edge_weight
            ids, kind, weight = (None if a is None else a[at].cpu() for a in arrays)
        ids = torch.arange(first, first + len(src)) if ids is None else ids
        for begin in range(0, len(src), CHUNK_EDGES):
            part = slice(begin, begin + CHUNK_EDGES)
            yield EdgeChunk(*(None if a is None else a[part] for a in (src, dst, ids, kind, weight)))  # type: ignore[arg-type]
        first += len(src)


def assign_nodes(num_nodes: int, train_idx: Tensor | None, seed: int) -> Tensor:
    """The caller's id of every node of the store, int64: in random order, training nodes first."""
    order = permutation(stream(seed, Purpose.PARTITION), num_nodes)
    if train_idx is None:
        return order
    trained = torch.zeros(num_nodes, dtype=torch.bool)
    trained[train_idx.long()] = True
    first = trained[order]
    return torch.cat([order[first], order[~first]])


def count_buckets(edges: EdgeSource, new_ids: Tensor, layout: StoreLayout, progress: Progress | None) -> Tensor:
    """Count the edges of every bucket, int64 [p, p]."""
    p, s = layout.num_partitions, layout.partition_rows
    check_fits("the counts of p² buckets", 24 * p * p, "pass fewer partitions")
    counts, done = torch.zeros(p * p, dtype=torch.int64), 0
    for chunk in chunks_of(edges, layout.num_nodes):
        number = new_ids[chunk.src] // s * p + new_ids[chunk.dst] // s
        counts += torch.bincount(number, minlength=p * p)
        done += len(number)
        if progress is not None:
            progress(done)
    return counts.view(p, p)


@compiled
def take_places(number, cursor, places):
    """Give every item the next place of its group."""
    for k in range(len(number)):
        places[k] = cursor[number[k]]
        cursor[number[k]] += 1


def write_edges(
    draft: Path, edges: EdgeSource, new_ids: Tensor, layout: StoreLayout, counts: Tensor, progress: Progress | None
) -> Tensor:
    """Write all buckets, and return their checksums, int64 [p²]."""
    p, s, flat = layout.num_partitions, layout.partition_rows, counts.flatten().numpy()
    offsets = bucket_offsets(counts, layout.edge_bytes)
    size = max(BLOCK, whole_blocks(int(offsets[-1])))
    _allocate(draft / EDGES, size)
    mapped = np.memmap(draft / EDGES, np.uint8, "r+", shape=(size,))
    cursor, done = np.zeros(p * p, np.int64), int(flat.sum())
    for chunk in chunks_of(edges, layout.num_nodes):
        src, dst = new_ids[chunk.src], new_ids[chunk.dst]
        number = (src // s * p + dst // s).numpy()
        places = np.empty(len(number), np.int64)
        take_places(number, cursor, places)
        if (cursor > flat).any():
            raise ValueError(_OTHER_EDGES)
        values: dict[str, Tensor | None] = {"edge_ids": chunk.edge_ids, "src": src % s, "dst": dst % s}
        values |= {"edge_type": chunk.edge_type, "edge_weight": chunk.edge_weight}
        before = 0
        for name, dtype in layout.edge_arrays:
            words = as_integers(torch.as_tensor(values[name], dtype=dtype).contiguous())
            mapped.view(words.dtype)[(offsets[number] + flat[number] * before) // dtype.itemsize + places] = words
            before += dtype.itemsize
        done += len(number)
        if progress is not None:
            progress(done)
    if (cursor != flat).any():
        raise ValueError(_OTHER_EDGES)
    sums = _sort_buckets(mapped, layout, flat, offsets)
    mapped.flush()
    return sums


def _sort_buckets(mapped: np.ndarray, layout: StoreLayout, counts: np.ndarray, offsets: np.ndarray) -> Tensor:
    """Sort every bucket by destination, keeping the order of its edges, and return the checksums."""
    sums = torch.zeros(len(counts), dtype=torch.int64)
    for number, count in enumerate(counts.tolist()):
        bucket = mapped[offsets[number] : offsets[number] + count * layout.edge_bytes]
        parts, before = {}, 0
        for name, dtype in layout.edge_arrays:
            parts[name] = bucket[before : before + count * dtype.itemsize].view(f"u{dtype.itemsize}")
            before += count * dtype.itemsize
        order = np.argsort(parts["dst"], kind="stable")
        for part in parts.values():
            part[:] = part[order]
        sums[number] = checksum(np.ascontiguousarray(bucket))
    return sums


RowsOf = Callable[[int, Tensor], Tensor]
"""Values of a partition's nodes: [n, *row_shape], from the partition's number and the caller's ids."""


def write_rows(draft: Path, rows_of: RowsOf, node_ids: Tensor, layout: StoreLayout, progress: Progress | None) -> None:
    """Write all records and the table of their slots."""
    _allocate(draft / ROWS, layout.num_slots * layout.slot_bytes)
    s, sums = layout.partition_rows, []
    memory = block_aligned(layout.slot_bytes)
    with (draft / ROWS).open("r+b") as file:
        for partition in range(layout.num_partitions):
            memory.zero_()
            own = node_ids[partition * s : (partition + 1) * s]
            if len(own):
                rows = rows_of(partition, own)
                shape = (len(own), *layout.row_shape)
                if rows.shape != shape or rows.dtype != layout.torch_dtype:
                    raise ValueError(
                        f"rows.read returned {list(rows.shape)} {rows.dtype} for {len(own)} ids, but by row_shape and "
                        f"dtype of rows it must be {list(shape)} {layout.torch_dtype}; correct one of them"
                    )
                values = byte_view(rows)
                memory[: len(values)] = values
            sums.append(checksum(memory[: layout.record_bytes]))
            file.write(as_bytes(memory))
            if progress is not None:
                progress(min((partition + 1) * s, layout.num_nodes))
        file.flush()
        os.fsync(file.fileno())
    table = PartitionTable(tuple(range(layout.num_partitions)), tuple(sums))
    files.write_new_file(draft / TABLE, table.as_json(layout))


def _allocate(path: Path, nbytes: int) -> None:
    """Create a file whose blocks are reserved, so that the disk can't become full while it is written."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, nbytes))


def edge_dtypes(edges: EdgeSource) -> tuple[str | None, str | None]:
    """Names of the dtypes of edge types and weights; None: the edges have none."""
    if not isinstance(edges, Graph):
        return None, None
    kind, weight = (None if a is None else name_of(a.dtype) for a in (edges.edge_type, edges.edge_weight))
    return kind, weight


def check_space(folder: Path, nbytes: int) -> None:
    """Check that files fit on the disk."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if nbytes > (free := shutil.disk_usage(existing).free):
        raise CapacityError(
            f"the store needs {format_bytes(nbytes)}, but {existing} has {format_bytes(free)} free; free some space, "
            "or pass a folder on another disk"
        )


def check_row_order(graph: Graph) -> None:
    """Check that the edge ids of every row ascend, by which the rows of a buffer are ordered."""
    if graph.edge_ids is None or not graph.num_edges:
        return
    at = int(_first_descent(graph.indptr.cpu().numpy(), graph.edge_ids.cpu().numpy()))
    if at >= 0:
        raise ValueError(
            f"edge_ids descend within a row, from {int(graph.edge_ids[at])} to {int(graph.edge_ids[at + 1])}; build "
            "the graph with Graph.from_edges, whose rows keep the order of the edges"
        )


@compiled
def _first_descent(indptr, edge_ids):
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1] - 1):
            if edge_ids[k + 1] <= edge_ids[k]:
                return k
    return -1


def check_dtype(layout: StoreLayout) -> None:
    """Check that rows have values, in a dtype that a store supports."""
    if layout.dtype not in DTYPES or not layout.row_bytes:
        raise ValueError(
            f"rows are {list(layout.row_shape)} {layout.dtype}; pass rows with at least one value, in one of "
            f"{', '.join(DTYPES)}"
        )


@contextmanager
def replacing(target: Path, overwrite: bool) -> Iterator[StoreFolder | None]:
    """Check that a folder may be created or replaced, and let nobody write to the store that is replaced.

    Yields:
        The store that is to be replaced; None: there is none.

    Raises:
        FileExistsError: it may not.
        ValueError: an epoch of a buffer, or another call, is writing to the store or replacing it.
    """
    files.remove_unfinished(target.parent)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        yield None
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it, or another folder")
    try:
        replaced = StoreFolder(target, StoreLayout.open(target).build_id)
    except (FileNotFoundError, CorruptFileError):
        raise FileExistsError(f"{target} is not a partition store and is not replaced; pass another folder") from None
    with replaced.writing_alone("replaces"):
        yield replaced


@dataclass(frozen=True)
class RowSource:
    """Where the values of rows come from."""

    row_shape: tuple[int, ...]
    dtype: torch.dtype
    learnt: bool
    values_of: RowsOf


def row_source(rows: Any, num_nodes: int) -> RowSource:
    """Return the source of rows that a caller passed: `LearntInit`, or features of every node.

    Raises:
        ValueError: another number of rows than nodes.
        TypeError: neither, or a store without its size.
    """
    if isinstance(rows, LearntInit):
        return RowSource(rows.row_shape, rows.dtype, True, lambda partition, ids: rows.values(partition, len(ids)))
    store = as_store(rows, "rows")
    check_store("rows", store)
    if (count := len(store)) != num_nodes:
        raise ValueError(f"rows has {count} rows, but there are {num_nodes} nodes; pass one per node")
    return RowSource(tuple(store.row_shape), store.dtype, False, lambda _, ids: store.read(ids).cpu())


@dataclass(frozen=True)
class LearntInit:
    """Initial values of learnt rows: normal, a draw per partition; the optimizer's state begins at 0.

    Rows in half precision have a state in float32, so that a row of 2 bytes per value needs 6.

    Args:
        dim: width of a row.
        std: standard deviation, at least 0.
        seed: of the draws, a 64-bit integer.
        dtype: floating-point dtype of the rows.

    Raises:
        ValueError: a number out of range, or a dtype that is not floating-point.
    """

    dim: int
    std: float = 1e-3
    seed: int = 0
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_at_least("dim", self.dim, 1)
        check_seed(self.seed)
        if not 0 <= self.std < float("inf"):
            raise ValueError(f"std is {self.std}; it must be at least 0 and finite")
        if not self.dtype.is_floating_point:
            raise ValueError(f"dtype is {self.dtype}, but learnt rows are floating; pass torch.float32")

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.dim,)

    def values(self, partition: int, count: int) -> Tensor:
        """Values of a partition, [count, dim]."""
        seed = int(self.seed)  # of which torch uses 32 bits: the others are mixed in
        key = seed * 0x9E3779B1 + (seed >> 32) * 0x85EBCA6B + partition
        generator = torch.Generator().manual_seed(key % 2**63)
        drawn = torch.randn(count, self.dim, generator=generator, dtype=state_dtype(self.dtype)) * self.std
        return drawn.to(self.dtype)

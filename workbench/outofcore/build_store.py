"""Build the files of a partition store in memory that grows with the number of nodes, not with edges or features.

Edges are read twice: once to count those of every bucket, once to put each into its place in the mapped file.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench import files
from workbench.core.capacity import check_fits
from workbench.core.edge_stream import CHUNK_EDGES, EdgeSource, edge_chunks
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.kernels.jit import compiled
from workbench.outofcore.edge_buckets import bucket_offsets
from workbench.outofcore.partition_file import as_bytes, block_aligned, checksum
from workbench.outofcore.partition_table import PartitionTable
from workbench.outofcore.row_source import RowsOf
from workbench.outofcore.store_layout import BLOCK, EDGES, ROWS, TABLE, StoreLayout, name_of, whole_blocks

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
            ids, kind, weight = (None if a is None else a[at].cpu() for a in _edge_arrays(edges))
        ids = torch.arange(first, first + len(src)) if ids is None else ids
        for begin in range(0, len(src), CHUNK_EDGES):
            part = slice(begin, begin + CHUNK_EDGES)
            yield EdgeChunk(*(None if a is None else a[part] for a in (src, dst, ids, kind, weight)))  # type: ignore[arg-type]
        first += len(src)


def _edge_arrays(graph: Graph) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    return graph.edge_ids, graph.edge_type, graph.edge_weight


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
def _places(number, cursor, places):
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
        _places(number, cursor, places)
        if (cursor > flat).any():
            raise ValueError(_OTHER_EDGES)
        values: dict[str, Tensor | None] = {"edge_ids": chunk.edge_ids, "src": src % s, "dst": dst % s}
        values |= {"edge_type": chunk.edge_type, "edge_weight": chunk.edge_weight}
        before = 0
        for name, dtype in layout.edge_arrays:
            width = dtype.itemsize
            at = (offsets[number] + flat[number] * before) // width + places
            _words(mapped, width)[at] = _words_of(torch.as_tensor(values[name], dtype=dtype), width)
            before += width
        done += len(number)
        if progress is not None:
            progress(done)
    if (cursor != flat).any():
        raise ValueError(_OTHER_EDGES)
    sums = _sort_buckets(mapped, layout, flat, offsets)
    mapped.flush()
    return sums


def _words(mapped: np.ndarray, width: int) -> np.ndarray:
    return mapped.view(f"u{width}")


def _words_of(values: Tensor, width: int) -> np.ndarray:
    return values.contiguous().view(torch.uint8).numpy().view(f"u{width}")


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
                values = rows_of(partition, own).contiguous().view(-1).view(torch.uint8)
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

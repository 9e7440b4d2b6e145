"""`PartitionStore`: a graph and the rows of its nodes on disk, in p partitions and p² edge buckets (MariusGNN).

Nodes get ids of the store, in which partition i is a range; everything that uses a store speaks of these ids, and
`node_ids` maps them to the caller's.
"""

import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import open_arrays, save_arrays
from workbench.core.edge_stream import EdgeSource, check_repeatable, count_nodes
from workbench.core.errors import CorruptFileError, check_at_least, check_ids
from workbench.core.graph import Graph
from workbench.core.units import format_bytes
from workbench.outofcore import build_store
from workbench.outofcore.build_store import row_source
from workbench.outofcore.store_files import PartitionFile, block_aligned, bucket_offsets, read_table
from workbench.outofcore.store_layout import BLOCK, EDGES, INDEX, ROWS, StoreFolder, StoreLayout, name_of, whole_blocks

_KIND = "partition index"
_SWAPS = 20
"""Attempts to read the header of a store that others replace again and again."""


@dataclass(frozen=True, eq=False, repr=False)
class PartitionStore:
    """An opened store; `PartitionBuffer` reads it.

    Args:
        folder: where it is.
        layout: its sizes.
        node_ids: int64 [num_nodes], the caller's id of every node of the store.
        bucket_edges: int64 [p, p], edges from partition i to partition j.
        bucket_checksums: int64 [p²], XXH3 of every bucket.
    """

    folder: Path
    layout: StoreLayout
    node_ids: Tensor
    bucket_edges: Tensor
    bucket_checksums: Tensor

    @staticmethod
    def build(
        folder: str | os.PathLike[str],
        edges: EdgeSource,
        *,
        rows: Any,
        num_partitions: int,
        num_nodes: int | None = None,
        train_idx: Tensor | None = None,
        seed: int = 0,
        overwrite: bool = False,
        progress: build_store.Progress | None = None,
    ) -> "PartitionStore":
        """Write a store and open it.

        Nodes are divided at random into partitions of equal size. Edges are read twice, in chunks, and rows once, a
        partition at a time, so that memory grows with the number of nodes alone. The folder appears when it is
        complete; an error or an interrupt leaves none.

        Args:
            folder: to create.
            edges: a graph, in memory or memory-mapped, or pairs (sources, destinations) of consecutive edges that can
                be read twice, such as an `EdgeFile`; only a graph has types, weights and ids of edges.
            rows: features by the caller's id, a tensor, an array or a store, which are only read; or `LearntInit`, for
                rows that training writes, with an optimizer state of the same size.
            num_partitions: number p of partitions.
            num_nodes: number of nodes of a stream of edges.
            train_idx: integer, training nodes, which get the first ids; None: all nodes are in random order.
            seed: of the assignment of nodes to partitions.
            overwrite: replace a store that nobody is writing to; handles of it are refused from then on.
            progress: called with the number of edges read so far, up to twice that of the graph, then with that
                of rows.

        Raises:
            FileExistsError: the folder exists and `overwrite` is not set, or is not a store, or another process creates
                it meanwhile.
            CapacityError: the disk has less space than the store needs, or memory is too small for p² counters.
            ValueError: a number out of range, another number of rows than nodes, rows whose `read` returns another
                shape or dtype than they state, edges that can be read only once, or an epoch of a buffer is writing to
                the store that is to be replaced; the message names the process.
            TypeError: an argument of another type.
            IndexError: an id out of range.
            OSError: the disk is full or reports an error.

        Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.
        """
        check_repeatable(edges)
        count = count_nodes(edges, num_nodes)
        check_at_least("num_partitions", num_partitions, 1, most=max(1, count))
        train = None if train_idx is None else check_ids("train_idx", train_idx, count, unique=True).cpu()
        source = row_source(rows, count)
        target = Path(folder).resolve()
        with build_store.replacing(target, overwrite) as replaced:
            if isinstance(edges, Graph):
                build_store.check_row_order(edges)
            node_ids = build_store.assign_nodes(count, train, seed)
            new_ids = torch.empty_like(node_ids)
            new_ids[node_ids] = torch.arange(count)
            num_train = 0 if train is None else len(train)
            sizes = count, int(num_partitions), num_train, tuple(source.row_shape), name_of(source.dtype)
            layout = StoreLayout(*sizes, source.learnt, 0, *build_store.edge_dtypes(edges), uuid.uuid4().hex)
            build_store.check_dtype(layout)
            counts = build_store.count_buckets(edges, new_ids, layout, progress)
            layout = replace(layout, num_edges=int(counts.sum()))
            edge_size = whole_blocks(int(bucket_offsets(counts, layout.edge_bytes)[-1]))
            build_store.check_space(target.parent, layout.num_slots * layout.slot_bytes + edge_size + 8 * count)
            with files.new_folder(target, replace=replaced is not None) as draft:
                checksums = build_store.write_edges(draft, edges, new_ids, layout, counts, progress)
                build_store.write_rows(draft, source.values_of, node_ids, layout, progress)
                arrays = {"node_ids": node_ids, "bucket_edges": counts, "bucket_checksums": checksums}
                save_arrays(draft / INDEX, arrays, kind=_KIND)
                layout.save(draft)
                if replaced is not None:
                    replaced.check_path()
        store = PartitionStore.open(target)
        if store.layout != layout:
            raise ValueError(f"{target} was replaced by another process as soon as it was built; open it again")
        return store

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> "PartitionStore":
        """Open a store; headers, sizes of files and the table of records are checked, contents when they are read.

        All paths of a folder open the same store. A store that is rebuilt later refuses handles from before.

        Raises:
            FileNotFoundError: the folder or one of its files is missing.
            CorruptFileError: a file was modified, or is that of another store.
        """
        root = Path(folder).resolve()
        files.remove_unfinished(root.parent, of=root.name)
        layout = _read_header(root)
        while True:
            try:
                store, error = PartitionStore._of_layout(root, layout), None
            except (OSError, ValueError) as found:
                store, error = None, found
            before, layout = layout, _read_header(root)
            if layout != before:
                continue  # it was replaced meanwhile
            if store is None:
                raise error  # type: ignore[misc]
            return store

    @staticmethod
    def _of_layout(root: Path, layout: StoreLayout) -> "PartitionStore":
        arrays = open_arrays(root / INDEX, kind=_KIND, verify=True)
        p = layout.num_partitions
        shapes = {"node_ids": (layout.num_nodes,), "bucket_edges": (p, p), "bucket_checksums": (p * p,)}
        for name, shape in shapes.items():
            if name not in arrays or tuple(arrays[name].shape) != shape:
                raise CorruptFileError(f"{root / INDEX} is the index of another store: {name} is not {list(shape)}")
        folder = StoreFolder(root, layout.build_id)
        read_table(folder, layout)
        folder.check_size(ROWS, layout.num_slots * layout.slot_bytes, layout.remedy)
        edge_size = whole_blocks(int(bucket_offsets(arrays["bucket_edges"], layout.edge_bytes)[-1]))
        folder.check_size(EDGES, max(BLOCK, edge_size), layout.remedy)
        return PartitionStore(root, layout, **{name: arrays[name] for name in shapes})

    def open_folder(self) -> StoreFolder:
        """Open the folder, to read and write its files.

        Raises:
            FileNotFoundError: the store was moved or deleted.
            ValueError: it was rebuilt since this handle was opened.
        """
        return StoreFolder(self.folder, self.layout.build_id)

    @property
    def num_nodes(self) -> int:
        return self.layout.num_nodes

    @property
    def num_edges(self) -> int:
        return self.layout.num_edges

    @property
    def num_partitions(self) -> int:
        return self.layout.num_partitions

    @property
    def partition_rows(self) -> int:
        """Nodes per partition s; partition i has the ids [i·s, (i + 1)·s)."""
        return self.layout.partition_rows

    @property
    def num_train_partitions(self) -> int:
        """Number of partitions with training nodes, the first ones; 0 if they were not packed."""
        return self.layout.num_train_partitions

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.layout.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.torch_dtype

    @property
    def learnt(self) -> bool:
        """Whether the rows have an optimizer state and are written back."""
        return self.layout.learnt

    @property
    def partition_bytes(self) -> int:
        """Bytes that reading or writing one partition moves, padding included."""
        return self.layout.slot_bytes

    def ids_of(self, nodes: Tensor) -> Tensor:
        """Ids of the store for ids of the caller, int64; reads all of `node_ids`.

        Args:
            nodes: integer [n], ids of the caller.

        Raises:
            IndexError: an id out of range.
        """
        nodes = check_ids("nodes", nodes, self.num_nodes).cpu()
        new = torch.empty(self.num_nodes, dtype=torch.int64)
        new[self.node_ids] = torch.arange(self.num_nodes)
        return new[nodes]

    def read(self, *, state: bool = False) -> Tensor:
        """Read the values of all nodes, or their optimizer state, into memory: [num_nodes, *row_shape] by store id.

        Args:
            state: the state of learnt rows instead of their values.

        Rows that another process or thread writes meanwhile are those of any moment, each partition as a whole.

        Raises:
            ValueError: the rows have no state, or the store was rebuilt since it was opened.
            CorruptFileError: a partition is damaged.
        """
        layout = self.layout
        if state and not layout.learnt:
            raise ValueError("state is True, but these rows are features; only learnt rows have an optimizer state")
        file, memory = PartitionFile(self.open_folder(), layout, direct=False), block_aligned(layout.slot_bytes)
        dtype, begin = layout.torch_dtype, 0
        if state:
            dtype, begin = layout.state_dtype, layout.first_state_row * layout.state_row_bytes
        size = layout.partition_rows * (layout.state_row_bytes if state else layout.row_bytes)
        out = torch.empty(self.num_nodes, *layout.row_shape, dtype=dtype)
        for partition in range(self.num_partitions):
            file.read(partition, memory)
            part = memory[begin : begin + size].view(dtype).view(-1, *layout.row_shape)
            first, count = partition * layout.partition_rows, layout.nodes_of(partition)
            out[first : first + count] = part[:count]
        return out

    def damaged(self) -> list[int]:
        """Partitions whose records do not match their checksums; reads all of them."""
        return PartitionFile(self.open_folder(), self.layout, direct=False).damaged()

    def __repr__(self) -> str:
        kind = "learnt rows" if self.learnt else "rows"
        return (
            f"PartitionStore({self.num_nodes} {kind} of {list(self.row_shape)} {self.layout.dtype} in "
            f"{self.num_partitions} partitions of {format_bytes(self.partition_bytes)}, {self.num_edges} edges)"
        )


def _read_header(root: Path) -> StoreLayout:
    """Read the header of a store, which is missing for a moment while another process replaces the store."""
    for _ in range(_SWAPS):
        files.restore(root)
        with suppress(FileNotFoundError):
            return StoreLayout.open(root)
        if not root.is_dir():
            break
        time.sleep(0.001)
    return StoreLayout.open(root)

"""Splitting blocks with compiled kernels: for each part, copy its rows and relabel their sources."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import num_chunks, run_tasks

_PREFETCH_DISTANCE = 16  # items
_LABEL_LIMIT = 2**31 - 1
_MIN_EDGES_PER_THREAD = 1 << 14
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Piece(NamedTuple):
    """One part of a batch, on the batch's device.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first.
        parent: int64 [num_inputs], maps each local id to the local id in the batch.
    """

    node_ids: Tensor
    blocks: tuple[Block, ...]
    parent: Tensor


class _Scratch:
    """Scratch memory of one thread.

    `nodes` lists the nodes of the current part; `labels[node]` is `base` + the node's local id. Labels below `base` are
    left from earlier parts, so nothing needs clearing between parts. `row_starts` are the offsets, in the current
    block, of the part's rows.
    """

    def __init__(self, num_nodes: int) -> None:
        dtype = torch.int32 if num_nodes < _LABEL_LIMIT else torch.int64
        self.nodes = torch.empty(num_nodes + 1, dtype=dtype).numpy()  # + 1: _relabel also writes nodes that are not new
        self.row_starts = torch.empty(num_nodes, dtype=torch.int64).numpy()
        self.labels = torch.zeros(num_nodes, dtype=dtype).numpy()
        self.base = 1

    def begin(self, seeds: Tensor) -> int:
        """Start a new part with its seeds as the first nodes."""
        if self.base + len(self.labels) > _LABEL_LIMIT and self.labels.dtype.itemsize == 4:
            self.labels[:] = 0
            self.base = 1
        _label_seeds(seeds.numpy(), self.nodes, self.labels, self.base)
        return len(seeds)


class _Rows(NamedTuple):
    """The arrays of a block as NumPy arrays; `fields` has the name, dtype and values, viewed as integers, per field."""

    starts: np.ndarray
    indices: np.ndarray
    fields: list[tuple[str, torch.dtype, np.ndarray]]

    @staticmethod
    def of(block: Block) -> "_Rows":
        tensors = ((name, getattr(block, name)) for name in ("edge_ids", "edge_weight", "edge_type"))
        fields = [(name, t.dtype, _as_words(t.contiguous())) for name, t in tensors if t is not None]
        return _Rows(block.indptr.numpy(), block.indices.numpy(), fields)


def _as_words(values: Tensor) -> np.ndarray:
    """View a contiguous vector of any dtype as integers of the same size, so that one kernel copies every dtype."""
    return values.view(_WORDS[values.element_size()]).numpy()


def split_rows_compiled(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Split a CPU batch into parts, several in parallel, starting with the part that has the most seeds.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids.
        blocks: input layer first.
        order: int64 [num_seeds], seeds grouped by part.
        bounds: num_parts + 1 offsets of the groups in `order`.

    Returns:
        One piece per group.
    """
    groups = [order[lo:hi] for lo, hi in pairwise(bounds)]
    waiting = deque(sorted(range(len(groups)), key=lambda p: -len(groups[p])))
    pieces: list[Piece | None] = [None] * len(groups)
    layers = [_Rows.of(block) for block in reversed(blocks)]

    def work() -> None:
        scratch = _Scratch(len(node_ids))
        while True:
            try:
                part = waiting.popleft()
            except IndexError:
                return
            pieces[part] = _split_part(node_ids, layers, groups[part], scratch)

    run_tasks([work] * min(len(groups), num_chunks(sum(block.num_edges for block in blocks), _MIN_EDGES_PER_THREAD)))
    return [piece for piece in pieces if piece is not None]


def _split_part(all_ids: Tensor, layers: list[_Rows], seeds: Tensor, scratch: _Scratch) -> Piece:
    count = scratch.begin(seeds)
    blocks: list[Block] = []
    for rows in layers:
        blocks.append(_extract_rows(rows, scratch, count))
        count = blocks[-1].num_src
    scratch.base += count
    parent, node_ids = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
    _copy_nodes(scratch.nodes, all_ids.numpy(), parent.numpy(), node_ids.numpy())
    return Piece(node_ids, tuple(reversed(blocks)), parent)


def _extract_rows(rows: _Rows, scratch: _Scratch, num_dst: int) -> Block:
    """Copy the rows of the first `num_dst` nodes of the part and append new sources to its nodes."""
    indptr = torch.empty(num_dst + 1, dtype=torch.int64)
    ends = indptr.numpy()
    num_edges = _locate_rows(rows.starts, scratch.nodes, scratch.row_starts, ends)
    indices = torch.empty(num_edges, dtype=torch.int32 if rows.indices.itemsize == 4 else torch.int64)
    _copy_rows(rows.indices, scratch.row_starts, ends, indices.numpy())
    num_src = _relabel(indices.numpy(), scratch.nodes, num_dst, scratch.labels, scratch.base)
    fields = {}
    for name, dtype, words in rows.fields:
        fields[name] = torch.empty(num_edges, dtype=dtype)
        _copy_rows(words, scratch.row_starts, ends, _as_words(fields[name]))
    return Block(indptr, indices, num_src=num_src, num_dst=num_dst, **fields)


@compiled
def _label_seeds(seeds, nodes, labels, base):
    for i in range(len(seeds)):
        nodes[i] = seeds[i]
        labels[seeds[i]] = base + i


@compiled
def _locate_rows(starts, nodes, row_starts, indptr):
    """Fill the rows' offsets in the block (`row_starts`) and in the part (`indptr`); return the part's edges."""
    last = len(indptr) - 2
    total = 0
    indptr[0] = 0
    for i in range(last + 1):
        prefetch(starts, np.int64(nodes[min(i + _PREFETCH_DISTANCE, last)]))
        row_starts[i] = starts[nodes[i]]
        total += starts[nodes[i] + 1] - row_starts[i]
        indptr[i + 1] = total
    return total


@compiled
def _copy_rows(values, row_starts, indptr, out):
    last = len(indptr) - 2
    for i in range(last + 1):
        prefetch(values, row_starts[min(i + _PREFETCH_DISTANCE, last)])
        begin, source = indptr[i], row_starts[i]
        for k in range(indptr[i + 1] - indptr[i]):
            out[np.uint64(begin + k)] = values[np.uint64(source + k)]  # unsigned: skips numba's negative-index check


@compiled
def _relabel(indices, nodes, num_dst, labels, base):
    """Replace sources by local ids; return the part's number of nodes.

    This is a separate pass over all edges, because the ends of rows are mispredicted branches, each of which would
    stall the label lookups as well. The update is branch-free for the same reason: a source is always written to
    `nodes`, and `count` advances only if the source is new.
    """
    count = num_dst
    last = len(indices) - 1
    for e in range(last + 1):
        prefetch(labels, np.int64(indices[min(e + _PREFETCH_DISTANCE, last)]))
        source = indices[e]
        label = labels[np.uint64(source)]
        is_new = label < base
        label = base + count if is_new else label
        labels[np.uint64(source)] = label
        nodes[count] = source
        count += is_new
        indices[e] = label - base
    return count


@compiled
def _copy_nodes(nodes, node_ids, parent, out):
    last = len(parent) - 1
    for i in range(last + 1):
        prefetch(node_ids, np.int64(nodes[min(i + _PREFETCH_DISTANCE, last)]))
        parent[i] = nodes[i]
        out[i] = node_ids[nodes[i]]

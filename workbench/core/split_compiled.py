"""Splitting a batch with compiled kernels: for each part its rows are copied whole, then their sources renumbered."""

from collections import deque
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import num_chunks, run_tasks

_AHEAD = 16  # items by which memory is asked for what is needed next
_LABEL_LIMIT = 2**31 - 1
_MIN_EDGES_PER_THREAD = 1 << 14
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Scratch:
    """One thread's memory: `nodes` lists the current part's nodes, `labels` maps a node to base + its local id.

    Labels below `base` are left from earlier parts, so nothing is cleared between parts. `begins` says where the rows
    of the block at hand begin.
    """

    def __init__(self, num_nodes: int) -> None:
        dtype = torch.int32 if num_nodes < _LABEL_LIMIT else torch.int64
        self.nodes = torch.empty(num_nodes + 1, dtype=dtype).numpy()  # one more: the kernel writes before it knows
        self.begins = torch.empty(num_nodes, dtype=torch.int64).numpy()
        self.labels = torch.zeros(num_nodes, dtype=dtype).numpy()
        self.base = 1

    def begin(self, seeds: Tensor) -> int:
        """Make the seeds the first nodes of a new part."""
        if self.base + len(self.labels) > _LABEL_LIMIT and self.labels.dtype.itemsize == 4:
            self.labels[:] = 0
            self.base = 1
        _label_seeds(seeds.numpy(), self.nodes, self.labels, self.base)
        return len(seeds)


class _Rows(NamedTuple):
    """A block as kernels take it; `fields`: name, dtype and values as whole numbers."""

    starts: np.ndarray
    indices: np.ndarray
    fields: list[tuple[str, torch.dtype, np.ndarray]]

    @staticmethod
    def of(block: Block) -> "_Rows":
        given = ((name, getattr(block, name)) for name in ("edge_ids", "edge_weight", "edge_type"))
        fields = [(name, t.dtype, _as_words(t.contiguous())) for name, t in given if t is not None]
        return _Rows(block.indptr.numpy(), block.indices.numpy(), fields)


def _as_words(values: Tensor) -> np.ndarray:
    """A contiguous vector of any dtype as whole numbers, to be copied."""
    return values.view(_WORDS[values.element_size()]).numpy()


def split_rows_compiled(mb: MiniBatch, order: Tensor, bounds: list[int]) -> list[MiniBatch]:
    """Cut a CPU batch into parts, several at once, the one with most seeds first.

    Args:
        mb: the batch.
        order: int64 [num_seeds], seeds grouped by part.
        bounds: positions in `order` where groups begin, and its length.
    """
    groups = [order[lo:hi] for lo, hi in pairwise(bounds)]
    waiting = deque(sorted(range(len(groups)), key=lambda p: -len(groups[p])))
    micro: list[MiniBatch | None] = [None] * len(groups)
    layers = [_Rows.of(block) for block in reversed(mb.blocks)]

    def work() -> None:
        scratch = _Scratch(mb.num_inputs)
        while True:
            try:
                part = waiting.popleft()
            except IndexError:
                return
            micro[part] = _split_part(mb, layers, groups[part], scratch)

    run_tasks([work] * min(len(groups), num_chunks(mb.num_edges, _MIN_EDGES_PER_THREAD)))
    return [m for m in micro if m is not None]


def _split_part(mb: MiniBatch, layers: list[_Rows], seeds: Tensor, scratch: _Scratch) -> MiniBatch:
    count = scratch.begin(seeds)
    blocks: list[Block] = []
    for rows in layers:
        blocks.append(_take_rows(rows, scratch, count))
        count = blocks[-1].num_src
    scratch.base += count
    parent, node_ids = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
    _list_nodes(scratch.nodes, mb.node_ids.numpy(), parent.numpy(), node_ids.numpy())
    return MiniBatch(node_ids, tuple(reversed(blocks)), parent=parent, step=mb.step)


def _take_rows(rows: _Rows, scratch: _Scratch, num_dst: int) -> Block:
    """The rows of the first `num_dst` nodes of the part; new sources join its nodes."""
    indptr = torch.empty(num_dst + 1, dtype=torch.int64)
    ends = indptr.numpy()
    num_edges = _find_rows(rows.starts, scratch.nodes, scratch.begins, ends)
    indices = torch.empty(num_edges, dtype=torch.int32 if rows.indices.itemsize == 4 else torch.int64)
    _copy_rows(rows.indices, scratch.begins, ends, indices.numpy())
    num_src = _relabel(indices.numpy(), scratch.nodes, num_dst, scratch.labels, scratch.base)
    fields = {}
    for name, dtype, words in rows.fields:
        fields[name] = torch.empty(num_edges, dtype=dtype)
        _copy_rows(words, scratch.begins, ends, _as_words(fields[name]))
    return Block(indptr, indices, num_src=num_src, num_dst=num_dst, **fields)


@compiled
def _label_seeds(seeds, nodes, labels, base):
    for i in range(len(seeds)):
        nodes[i] = seeds[i]
        labels[seeds[i]] = base + i


@compiled
def _find_rows(starts, nodes, begins, indptr):
    """Fill where rows begin in the block and in the part; return the part's edges."""
    last = len(indptr) - 2
    total = 0
    indptr[0] = 0
    for i in range(last + 1):
        prefetch(starts, np.int64(nodes[min(i + _AHEAD, last)]))
        begins[i] = starts[nodes[i]]
        total += starts[nodes[i] + 1] - begins[i]
        indptr[i + 1] = total
    return total


@compiled
def _copy_rows(values, begins, indptr, out):
    last = len(indptr) - 2
    for i in range(last + 1):
        prefetch(values, begins[min(i + _AHEAD, last)])
        begin, source = indptr[i], begins[i]
        for k in range(indptr[i + 1] - indptr[i]):
            out[np.uint64(begin + k)] = values[np.uint64(source + k)]  # unsigned: numba looks for no negative index


@compiled
def _relabel(indices, nodes, num_dst, labels, base):
    """Replace sources by local ids; return the number of the part's nodes.

    A pass of its own: the end of a row can't be predicted, and every miss would wait for labels too. Nor can whether a
    source is new: it is stored either way, and the count says whether it stays.
    """
    count = num_dst
    last = len(indices) - 1
    for e in range(last + 1):
        prefetch(labels, np.int64(indices[min(e + _AHEAD, last)]))
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
def _list_nodes(nodes, node_ids, parent, out):
    last = len(parent) - 1
    for i in range(last + 1):
        prefetch(node_ids, np.int64(nodes[min(i + _AHEAD, last)]))
        parent[i] = nodes[i]
        out[i] = node_ids[nodes[i]]

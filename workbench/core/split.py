"""Splitting a batch into micro-batches: a part of the seeds with every edge that the batch has below them.

Betty (Yang et al., ASPLOS 2023), section 4.2: from the output block inwards a part keeps the whole rows of its
destinations; these, then the new sources, are the next block's destinations. Nothing is sampled again.
"""

from collections import deque
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_vector
from workbench.core.minibatch import Block, MiniBatch
from workbench.core.split_torch import split_rows_torch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import num_chunks, run_tasks

_LABEL_LIMIT = 2**31 - 1
_MIN_EDGES_PER_THREAD = 1 << 14
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def split_batch(mb: MiniBatch, part: Tensor) -> list[MiniBatch]:
    """Cut a batch into one micro-batch a part of its seeds; gradients summed over them are those of the whole batch.

    A micro-batch holds its seeds in the order of the batch, their rows whole and in order, and sources renumbered:
    destinations first, then by first appearance. `parent` says which local id of `mb` each of its nodes was.

    Args:
        mb: the batch, on any device; without `exchanges`.
        part: int64 or int32 [num_seeds], non-negative label of every seed.

    Returns:
        A micro-batch for every label that occurs, in the order of the labels.

    Raises:
        TypeError: `part` is not an integer tensor.
        ValueError: `part` has another length or a negative label, or the batch has exchanges.

    Source: Betty (ASPLOS 2023), section 4.2.
    """
    if mb.exchanges is not None:
        raise ValueError(
            f"the batch has {len(mb.exchanges)} exchanges: its blocks read rows of other processes, so it can't be cut "
            "from one process alone; split before the batch is made cooperative"
        )
    order, bounds = _seeds_by_part(part, mb.num_seeds)
    order = order.to(mb.device)
    micro = (split_rows if _is_compiled(mb) else split_rows_torch)(mb, order, bounds)
    shared = [layer for layer in range(1, len(mb.blocks)) if _is_row_prefix(mb.blocks[layer], mb.blocks[layer - 1])]
    return [_share_rows(m, shared) for m in micro] if shared else micro


def _is_compiled(mb: MiniBatch) -> bool:
    """Kernels see neither other devices nor autograd."""
    return mb.device.type == "cpu" and not any(
        b.edge_weight is not None and b.edge_weight.requires_grad for b in mb.blocks
    )


def _seeds_by_part(part: Tensor, num_seeds: int) -> tuple[Tensor, list[int]]:
    """Seeds grouped by label, on the CPU, and where each non-empty group begins and ends."""
    check_vector("part", part, num_seeds, ID_DTYPES)
    if part.dim() != 1:
        raise ValueError(f"part has shape {tuple(part.shape)}; it must be a vector with one label a seed")
    if not num_seeds:
        return torch.empty(0, dtype=torch.int64), [0]
    labels = part.detach().to("cpu", torch.int64).contiguous()
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < 0:
        raise ValueError(f"part holds {low}; labels must not be negative (drop seeds by sampling without them)")
    if high > 4 * num_seeds + 1024:  # sparse labels: counting them would cost more than the batch
        labels = torch.unique(labels, return_inverse=True)[1]
    counts = torch.bincount(labels)
    ends = counts.cumsum(0)
    order = torch.empty(num_seeds, dtype=torch.int64)
    _group_rows(labels.numpy(), (ends - counts).numpy(), order.numpy())
    return order, [0, *ends[counts > 0].tolist()]


def _share_rows(micro: MiniBatch, layers: list[int]) -> MiniBatch:
    """Where blocks of the batch are row prefixes of one CSR, make those of its part so too: they have the same rows."""
    blocks = list(micro.blocks)
    for layer in layers:
        blocks[layer] = _row_prefix(blocks[layer - 1], blocks[layer])
    return replace(micro, blocks=tuple(blocks))


def _is_row_prefix(outer: Block, inner: Block) -> bool:
    """Whether the outer block's arrays begin where the inner's do."""
    pairs = zip(outer._tensors().values(), inner._tensors().values(), strict=True)
    return all(
        (a is None) == (b is None) and (a is None or b is None or a.data_ptr() == b.data_ptr()) for a, b in pairs
    )


def _row_prefix(inner: Block, outer: Block) -> Block:
    """The outer block with its arrays as views of the inner's."""
    views = {name: t[: outer.num_edges] for name, t in inner._tensors().items() if t is not None and name != "indptr"}
    return replace(outer, indptr=inner.indptr[: outer.num_dst + 1], **views)


class _Scratch:
    """One thread's memory: `nodes` lists the current part's nodes, `labels` maps a node to base + its local id.

    Entries below `base` are left from earlier parts, so nothing is cleared between parts.
    """

    def __init__(self, num_nodes: int) -> None:
        dtype = torch.int32 if num_nodes < _LABEL_LIMIT else torch.int64
        self.nodes = torch.empty(num_nodes + 1, dtype=dtype).numpy()  # one more: the kernel writes before it knows
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
    """A block as kernels take it; `fields`: name, tensor, the same as whole numbers, and how many of them an edge."""

    starts: np.ndarray
    indices: np.ndarray
    fields: list[tuple[str, Tensor, np.ndarray, int]]

    @staticmethod
    def of(block: Block) -> "_Rows":
        given = ((name, getattr(block, name)) for name in ("edge_ids", "edge_weight", "edge_type"))
        fields = [(name, t, _as_words(t.contiguous()), t[:1].numel() or 1) for name, t in given if t is not None]
        return _Rows(block.indptr.numpy(), block.indices.numpy(), fields)


def _as_words(values: Tensor) -> np.ndarray:
    """A contiguous tensor of any dtype as a vector of whole numbers, to be copied."""
    return values.view(-1).view(_WORDS[values.element_size()]).numpy()


def split_rows(mb: MiniBatch, order: Tensor, bounds: list[int]) -> list[MiniBatch]:
    """The compiled form of `split_batch`, for CPU batches: parts in parallel, the one with most seeds first.

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
    num_edges = _row_offsets(rows.starts, scratch.nodes, ends)
    indices = torch.empty(num_edges, dtype=torch.int32 if rows.indices.itemsize == 4 else torch.int64)
    num_src = _relabel_rows(
        rows.starts, rows.indices, scratch.nodes, num_dst, scratch.labels, scratch.base, indices.numpy()
    )
    fields = {}
    for name, values, words, width in rows.fields:
        fields[name] = torch.empty((num_edges, *values.shape[1:]), dtype=values.dtype)
        _copy_rows(rows.starts, words, width, scratch.nodes, ends, _as_words(fields[name]))
    return Block(indptr, indices, num_src=num_src, num_dst=num_dst, **fields)


@compiled
def _group_rows(labels, cursor, order):
    for i in range(len(labels)):
        slot = cursor[labels[i]]
        cursor[labels[i]] = slot + 1
        order[slot] = i


@compiled
def _label_seeds(seeds, nodes, labels, base):
    for i in range(len(seeds)):
        nodes[i] = seeds[i]
        labels[seeds[i]] = base + i


@compiled
def _row_offsets(starts, nodes, indptr):
    """Fill the part's `indptr`; return its number of edges."""
    total = 0
    indptr[0] = 0
    for i in range(len(indptr) - 1):
        row = nodes[i]
        total += starts[row + 1] - starts[row]
        indptr[i + 1] = total
    return total


@compiled
def _relabel_rows(starts, indices, nodes, num_dst, labels, base, out):
    """Write the rows' sources as local ids; return the number of the part's nodes.

    Whether a source is new can't be predicted, so it is stored either way and the count decides whether it stays.
    """
    count = num_dst
    edge = 0
    for i in range(num_dst):
        row = nodes[i]
        for e in range(starts[row], starts[row + 1]):
            source = indices[e]
            label = labels[source]
            is_new = label < base
            label = base + count if is_new else label
            labels[source] = label
            nodes[count] = source
            count += is_new
            out[edge] = label - base
            edge += 1
    return count


@compiled
def _copy_rows(starts, values, width, nodes, indptr, out):
    for i in range(len(indptr) - 1):
        shift = starts[nodes[i]] - indptr[i]
        for e in range(indptr[i] * width, indptr[i + 1] * width):
            out[e] = values[e + shift * width]


@compiled
def _list_nodes(nodes, node_ids, parent, out):
    for i in range(len(parent)):
        parent[i] = nodes[i]
        out[i] = node_ids[nodes[i]]

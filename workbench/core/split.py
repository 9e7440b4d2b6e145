"""Splitting blocks by seeds into micro-batches that keep every edge of their computation graph.

Betty (Yang et al., ASPLOS 2023), section 4.2: starting at the output block, a micro-batch copies the rows of its
destinations completely; these destinations, followed by the new sources, are the destinations of the next block
inwards. Nothing is sampled again. Blocks come input layer first, as everywhere. `MiniBatch.split` and
`MiniBatch.select` wrap these functions.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block, SharedRows
from workbench.core.errors import ID_DTYPES, check_ids, check_tensors, check_vector
from workbench.core.shared_storage import same_record
from workbench.kernels.buffers import filled
from workbench.kernels.csr import group_rows, offsets
from workbench.kernels.gather import as_integers
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch
from workbench.kernels.threads import num_chunks, run_tasks


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


def split_blocks(node_ids: Tensor, blocks: Sequence[Block], part: Tensor) -> list[Piece]:
    """Split blocks into one piece per part of the seeds.

    A piece contains its seeds in the batch's order, and every row complete and in order. Its sources are relabelled:
    destinations first, then new sources by first appearance.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids, on any device.
        part: int64 or int32 [num_seeds], non-negative part number of each seed.

    Returns:
        One piece per part that has seeds, in the order of the part numbers.

    Source: Betty (ASPLOS 2023), section 4.2.
    """
    return _split(node_ids, blocks, *_seeds_by_part(part, num_seeds(node_ids, blocks)))


def select_blocks(node_ids: Tensor, blocks: Sequence[Block], groups: Sequence[Tensor]) -> list[Piece]:
    """Extract one piece per group of seeds; unlike in `split_blocks`, groups may overlap and omit seeds.

    Args:
        node_ids: int64 [num_inputs], raw-graph ids, on any device.
        groups: int64 [any] per group, positions of distinct seeds in the required order.
    """
    count = num_seeds(node_ids, blocks)
    rows = [check_ids("group", group, count, unique=True) for group in groups]
    bounds = list(accumulate((len(group) for group in rows), initial=0))
    return _split(node_ids, blocks, torch.cat(rows), bounds) if rows else []


def num_seeds(node_ids: Tensor, blocks: Sequence[Block]) -> int:
    """Return the number of destinations of the output block; without blocks, the number of nodes."""
    return blocks[-1].num_dst if blocks else len(node_ids)


def _split(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Extract one piece per group of seeds `order[bounds[i]:bounds[i + 1]]`."""
    order = order.to(node_ids.device)
    split_rows = split_rows_compiled if _runs_compiled(node_ids, blocks) else split_rows_torch
    pieces = split_rows(node_ids, blocks, order, bounds)
    shared = [layer for layer, is_prefix in enumerate(row_prefixes(blocks)) if is_prefix]
    return [_share_rows(piece, shared) for piece in pieces] if shared else pieces


def _runs_compiled(node_ids: Tensor, blocks: Sequence[Block]) -> bool:
    """Return whether the compiled kernels can be used: they support neither other devices nor autograd."""
    return node_ids.device.type == "cpu" and not any(
        block.edge_weight is not None and block.edge_weight.requires_grad for block in blocks
    )


def _seeds_by_part(part: Tensor, num_seeds: int) -> tuple[Tensor, list[int]]:
    """Group seeds by part, on the CPU; return them and the offsets of the non-empty groups."""
    check_tensors(part=part)
    check_vector("part", part, num_seeds, ID_DTYPES)
    if not num_seeds:
        return torch.empty(0, dtype=torch.int64), [0]
    labels = part.detach().to("cpu", torch.int64).contiguous()
    low, high = int(labels.numpy().min()), int(labels.numpy().max())  # torch would wake OpenMP threads, which spin
    if low < 0:
        raise ValueError(f"part contains {low}; part numbers can't be negative (to drop seeds, sample without them)")
    if high > 4 * num_seeds + 1024:  # sparse part numbers: a counting sort over them would cost more than the batch
        labels = torch.unique(labels, return_inverse=True)[1]
        high = int(labels.max())
    groups = group_rows(labels, torch.from_numpy(np.arange(num_seeds)), high + 1, num_seeds)
    ends = groups.indptr[1:]
    order = torch.from_numpy(groups.indices.numpy().astype(np.int64, copy=False))
    return order, [0, *ends[groups.indptr.diff() > 0].tolist()]


def _share_rows(piece: Piece, layers: list[int]) -> Piece:
    """Make blocks of a piece views of the block below if those of the batch are: their rows are equal."""
    blocks = list(piece.blocks)
    for layer in layers:
        blocks[layer] = first_rows(blocks[layer - 1], blocks[layer].num_src, blocks[layer].num_dst)
    return piece._replace(blocks=tuple(blocks))


_PREFETCH_DISTANCE = 16  # items

_LABEL_LIMIT = 2**31 - 1

_MIN_EDGES_PER_THREAD = 1 << 14


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
        self.labels = filled(num_nodes, value=0, dtype=dtype).numpy()
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
        fields = [(name, t.dtype, as_integers(t.contiguous())) for name, t in tensors if t is not None]
        return _Rows(block.indptr.numpy(), block.indices.numpy(), fields)


def split_rows_compiled(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Split a CPU batch into parts, several in parallel, starting with the part that has the most seeds.

    Args:
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
        _copy_rows(words, scratch.row_starts, ends, as_integers(fields[name]))
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


def split_rows_torch(node_ids: Tensor, blocks: Sequence[Block], order: Tensor, bounds: list[int]) -> list[Piece]:
    """Split a batch into parts on any device, with the same result as `split_rows_compiled`.

    The nodes of all parts are one list of entries (part, node), sorted by part.

    Args:
        order: int64 [num_seeds], seeds grouped by part.
        bounds: num_parts + 1 offsets of the groups in `order`.

    Returns:
        One piece per group.
    """
    num_parts, device = len(bounds) - 1, node_ids.device
    sizes = torch.tensor(bounds, device=device).diff()
    part, node = torch.repeat_interleave(torch.arange(num_parts, device=device), sizes), order
    layers: list[list[Block]] = []
    for block in reversed(blocks):
        edges, indptr = _edges_of_rows(block, node)
        edge_part = torch.repeat_interleave(part, indptr.diff())
        sources = torch.cat((node, block.indices[edges].to(torch.int64)))
        rank, local, part_of, node_of = _first_appearances(torch.cat((part, edge_part)), sources, len(node_ids))
        layers.append(
            _blocks_by_part(
                block, edges, indptr, local[rank[len(node) :]], _ends(part, num_parts), _ends(part_of, num_parts)
            )
        )
        part, node = part_of, node_of
    blocks_by_part = zip(*reversed(layers), strict=True) if layers else ((),) * num_parts
    bounds = [0, *_ends(part, num_parts)]
    return [
        Piece(node_ids[node[lo:hi]], part_blocks, node[lo:hi].clone())
        for (lo, hi), part_blocks in zip(pairwise(bounds), blocks_by_part, strict=True)
    ]


def _ends(part: Tensor, num_parts: int) -> list[int]:
    """Return the end offset of each part's entries."""
    return torch.bincount(part, minlength=num_parts).cumsum(0).tolist()


def _edges_of_rows(block: Block, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the positions in the block of the rows' edges, row by row, and the `indptr` over them."""
    starts, degrees = block.indptr[rows], block.in_degrees()[rows]
    indptr = offsets(degrees)
    shift = torch.repeat_interleave(starts - indptr[:-1], degrees)
    return shift + torch.arange(len(shift), device=rows.device), indptr


def _first_appearances(part: Tensor, node: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Number the distinct entries (part, node) of each part by first appearance.

    Returns:
        `rank`, the index of each entry's distinct entry; `local`, the local id of each distinct entry; part and node of
        the distinct entries, ordered by (part, local id).
    """
    keys, rank = torch.unique(part * num_nodes + node, return_inverse=True)
    first = torch.full_like(keys, len(part)).scatter_reduce_(
        0, rank, torch.arange(len(part), device=part.device), "amin"
    )
    order = torch.argsort(first)
    order = order[torch.argsort(part[first[order]], stable=True)]
    part_of = part[first[order]]
    starts = torch.searchsorted(part_of, part_of)
    local = torch.empty_like(keys)
    local[order] = torch.arange(len(keys), device=part.device) - starts
    return rank, local, part_of, node[first[order]]


def _blocks_by_part(
    block: Block, edges: Tensor, indptr: Tensor, indices: Tensor, dst_ends: list[int], src_ends: list[int]
) -> list[Block]:
    """Cut the arrays of all parts into one block per part, as copies, so that no part keeps the others alive."""
    fields = {n: t for n, t in block._tensors().items() if t is not None and n not in ("indptr", "indices")}
    indices = indices.to(block.indices.dtype)
    edge_ends = indptr[torch.tensor([0, *dst_ends], device=indptr.device)].tolist()
    num_src = [hi - lo for lo, hi in pairwise([0, *src_ends])]
    return [
        Block(
            indptr[lo : hi + 1] - begin,
            indices[begin:end].clone(),
            num_src=sources,
            num_dst=hi - lo,
            **{name: values[edges[begin:end]] for name, values in fields.items()},
        )
        for (lo, hi), (begin, end), sources in zip(pairwise([0, *dst_ends]), pairwise(edge_ends), num_src, strict=True)
    ]


def first_rows(whole: Block, num_src: int, num_dst: int) -> Block:
    """Return a block of the first rows of a valid block, whose arrays are views of its; nothing is checked again.

    Args:
        num_src: number of sources, all that the rows have.
        num_dst: number of rows.
    """
    indptr = whole.indptr.numpy() if whole.device.type == "cpu" else whole.indptr  # NumPy reads a value faster
    end = int(indptr[num_dst])
    views = {name: t[:end] for name, t in whole._tensors().items() if t is not None}
    views["indptr"] = whole.indptr[: num_dst + 1]
    return same_record(whole, **views, num_src=num_src, num_dst=num_dst)


def is_row_prefix(outer: Block, inner: Block) -> bool:
    """Return whether a block's rows are the first rows of another one in the same memory.

    Args:
        outer: the block with fewer rows.
        inner: the block with more rows.
    """
    if outer.num_dst > inner.num_dst:
        return False
    pairs = zip(outer._tensors().values(), inner._tensors().values(), strict=True)
    return all((a is None) == (b is None) and (a is None or b is None or _begin_together(a, b)) for a, b in pairs)


def _begin_together(a: Tensor, b: Tensor) -> bool:
    """Return whether both are views of one storage from the same element on."""
    return a.storage_offset() == b.storage_offset() and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def row_prefixes(blocks: Sequence[Block]) -> list[bool]:
    """Return for each block whether its rows are the first rows of the block before it."""
    return [False, *(is_row_prefix(outer, inner) for inner, outer in pairwise(blocks))][: len(blocks)]


def share_rows(blocks: Sequence[Block]) -> None:
    """Let new blocks that are row prefixes of one CSR derive their destinations and transposes once for all.

    Args:
        blocks: input layer first; blocks that share with others already keep doing so.
    """
    group: list[Block] = []
    for block in blocks:
        if "shared_rows" in block.__dict__:
            continue
        if group and not is_row_prefix(block, group[-1]):
            _connect(group)
            group = []
        group.append(block)
    _connect(group)


def _connect(group: list[Block]) -> None:
    if len(group) > 1:
        shared = SharedRows(group)
        for block in group:
            block.__dict__["shared_rows"] = shared

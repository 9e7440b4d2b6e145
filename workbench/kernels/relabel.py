"""Relabelling raw ids to local ids, numbered in order of first appearance.

One pass over the edges looks up every id in a map from raw to local ids. Entries of earlier batches are not cleared: an
entry is valid only if it is at least the map's base, which grows by the number of ids of each batch.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch

_PREFETCH_DISTANCE = 32  # ids
_MAX_FREE_MAPS = 4


def _duplicate_seed(seed: int) -> str:
    return f"seeds contain {seed} more than once; pass each id once (torch.unique)"


def invalid_source(source: int, num_nodes: int) -> IndexError:
    """Return the error for a graph that contains an impossible id."""
    return IndexError(
        f"the graph's indices contain {source}; sources must be in [0, {num_nodes}): call graph.validate()"
    )


@compiled
def _register(ids, entries, base, nodes):
    """Number `ids` from 0; return how many precede the first duplicate."""
    for i in range(len(ids)):
        if entries[ids[i]] >= base:
            return i
        entries[ids[i]] = base + i
        nodes[i] = ids[i]
    return len(ids)


@compiled
def _relabel(ids, num_nodes, entries, base, count, nodes, local):
    """Look up all `ids` and number the new ones, without a branch, because new ids are unpredictable.

    `nodes` needs one spare element at its end.
    """
    last, limit = len(ids) - 1, np.uint64(num_nodes)
    for e in range(len(ids)):
        raw = np.uint64(ids[e])  # a negative id is a large number, and numba checks no unsigned index for negative ones
        if raw >= limit:
            return -1 - e
        prefetch(entries, np.int64(ids[min(e + _PREFETCH_DISTANCE, last)]))
        label = np.int64(entries[raw]) - base
        is_new = np.int64(label < 0)
        label += is_new * (count - label)
        entries[raw] = base + label
        nodes[np.uint64(count)] = ids[e]
        count += is_new
        local[e] = label
    return count


class _Map:
    """Scratch memory: `entries[raw id] - base` is the local id of an id of the current batch."""

    def __init__(self, size: int) -> None:
        wide = size >= 1 << 30
        self.entries = np.zeros(size, np.int64 if wide else np.int32)
        self.limit = np.iinfo(self.entries.dtype).max
        self.base = 1

    def start(self) -> None:
        if self.base > self.limit - len(self.entries) - 1:
            self.entries[:] = 0
            self.base = 1


_free: list[_Map] = []
_lock = threading.Lock()


def _reset_lock() -> None:
    """Replace the lock in a forked child, where a thread that does not exist may hold it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)


@contextmanager
def borrowed_map(size: int) -> Iterator[_Map]:
    """Yield a map for ids below `size`; the largest few maps are reused for later batches.

    The map returns to the pool only if the block succeeds: an interrupt between a kernel and the update of `base` would
    leave entries that look valid to later batches.
    """
    with _lock:
        position = next((i for i, m in enumerate(_free) if len(m.entries) >= size), None)
        scratch = _free.pop(position) if position is not None else None
    scratch = scratch or _Map(size)
    scratch.start()
    yield scratch
    with _lock:
        _free[:] = sorted([*_free, scratch], key=lambda m: -len(m.entries))[:_MAX_FREE_MAPS]


class Relabeler:
    """Numbers the nodes of a batch while its layers are sampled, starting with the seeds; created by `relabeler(…)`."""

    def __init__(self, scratch: _Map, num_nodes: int) -> None:
        self._map, self._num_nodes = scratch, num_nodes

    def add_seeds(self, seeds: Tensor) -> None:
        self._nodes = self.node_ids = torch.empty_like(seeds)  # raw ids by local id, int64
        self._count = _register(seeds.numpy(), self._map.entries, self._map.base, self.node_ids.numpy())
        if self._count < seeds.numel():
            raise ValueError(_duplicate_seed(int(seeds[self._count])))

    def __call__(self, ids: Tensor, *, overwrite: bool = False, out: Tensor | None = None) -> Tensor:
        """Return the local ids of raw ids; new ids get the next numbers.

        Args:
            ids: int32 or int64 [n].
            overwrite: the local ids may replace `ids`.
            out: [n], memory for the local ids, used if it has their dtype.
        """
        size, raw = min(self._num_nodes, self._count + ids.numel()), ids.numpy()
        self._make_room(size + 1)
        out = ids if out is None and overwrite else out
        local = torch.empty(len(raw), dtype=local_dtype(size)) if out is None or out.dtype != local_dtype(size) else out
        nodes, scratch = self._nodes.numpy(), self._map
        count = _relabel(raw, self._num_nodes, scratch.entries, scratch.base, self._count, nodes, local.numpy())
        if count < 0:
            raise invalid_source(int(ids[-1 - count]), self._num_nodes)
        self._keep(self._nodes, count)
        return local

    def _make_room(self, size: int) -> None:
        """Let `_nodes` have room for `size` ids, keeping those that it has."""
        if len(self._nodes) < size:
            nodes = torch.empty(size, dtype=torch.int64)
            nodes.numpy()[: self._count] = self.node_ids.numpy()  # a torch copy would wake OpenMP threads, which spin
            self._nodes = nodes

    def _keep(self, nodes: Tensor, count: int) -> None:
        self._nodes, self.node_ids, self._count = nodes, nodes[:count], count

    def close(self) -> None:
        """Invalidate this batch's entries by raising the base."""
        self._map.base += self._count


def local_dtype(size: int) -> torch.dtype:
    """Return the dtype of local ids below `size`."""
    return torch.int32 if size < 2**31 else torch.int64


class TorchRelabeler:
    """Numbers the nodes of a batch in plain torch, on any device, by sorting instead of a map."""

    def __init__(self, seeds: Tensor) -> None:
        values, counts = torch.unique(seeds, return_counts=True)
        if len(values) < len(seeds):
            raise ValueError(_duplicate_seed(int(values[counts > 1][0])))
        self.node_ids = seeds

    def __call__(self, ids: Tensor, *, overwrite: bool = False, out: Tensor | None = None) -> Tensor:
        both = torch.cat([self.node_ids, ids.to(torch.int64)])
        values, inverse = torch.unique(both, return_inverse=True)
        first = torch.full_like(values, len(both))
        first.scatter_reduce_(0, inverse, torch.arange(len(both), device=both.device), "amin")
        order = torch.argsort(first)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=both.device)
        known = len(self.node_ids)
        self.node_ids = values[order]
        return rank[inverse[known:]].to(local_dtype(len(values)))


@contextmanager
def relabeler(num_nodes: int, seeds: Tensor) -> Iterator[Relabeler | TorchRelabeler]:
    """Yield a function that numbers the nodes of a batch: seeds first, then others in order of first appearance.

    Args:
        num_nodes: exclusive upper bound of the ids.
        seeds: int64 [num_seeds], distinct; numbered 0, 1, ….

    Raises:
        ValueError: if a seed occurs twice.
    """
    if seeds.device.type != "cpu":
        yield TorchRelabeler(seeds)
        return
    with borrowed_map(num_nodes) as scratch:
        labels = Relabeler(scratch, num_nodes)
        labels.add_seeds(seeds)
        yield labels
        labels.close()

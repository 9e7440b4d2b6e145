"""Raw ids to local ids, numbered in order of first appearance.

A pass over the edges looks every id up in a map from raw to local ids. Entries of earlier batches are not cleared: an
entry counts only if it is at least the map's base, which moves up by the number of ids that a batch used.
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

_AHEAD = 32  # ids between the one looked up and the one asked for
_MOST_KEPT = 4


def _twice(seed: int) -> str:
    return f"seeds hold {seed} more than once; pass each id once (torch.unique)"


@compiled
def _register(ids, entries, base, nodes):
    """Number `ids` from 0 on; return how many came before the first duplicate."""
    for i in range(len(ids)):
        if entries[ids[i]] >= base:
            return i
        entries[ids[i]] = base + i
        nodes[i] = ids[i]
    return len(ids)


@compiled
def _relabel(ids, num_nodes, entries, base, count, nodes, local):
    """Look up all `ids`; whether one is new can't be predicted, so there is no branch on it.

    `nodes` needs one spare place at its end.
    """
    last = len(ids) - 1
    for e in range(len(ids)):
        if not 0 <= ids[e] < num_nodes:
            return -1 - e
        prefetch(entries, np.int64(ids[min(e + _AHEAD, last)]))
        label = np.int64(entries[ids[e]]) - base
        is_new = np.int64(label < 0)
        label += is_new * (count - label)
        entries[ids[e]] = base + label
        nodes[count] = ids[e]
        count += is_new
        local[e] = label
    return count


class _Map:
    """Scratch memory: `entries[raw id] - base` is the local id of an id seen in this batch."""

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


def _forget_lock() -> None:
    """In a forked child the lock may be held for ever by a thread that does not exist there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


@contextmanager
def _borrowed_map(size: int) -> Iterator[_Map]:
    """A map for ids below `size`; the largest few are kept for later batches.

    It returns to the pool only if the block succeeds: an interrupt between a kernel and the update of `base` would
    leave entries that later batches take for their own.
    """
    with _lock:
        found = next((i for i, m in enumerate(_free) if len(m.entries) >= size), None)
        scratch = _free.pop(found) if found is not None else None
    scratch = scratch or _Map(size)
    scratch.start()
    yield scratch
    with _lock:
        _free[:] = sorted([*_free, scratch], key=lambda m: -len(m.entries))[:_MOST_KEPT]


class Relabeler:
    """Numbers the nodes of one batch while its layers are drawn, the seeds first; use within `relabeler(…)`."""

    def __init__(self, scratch: _Map, num_nodes: int) -> None:
        self._map, self._num_nodes = scratch, num_nodes
        self._nodes = torch.empty(0, dtype=torch.int64)
        self._count = 0

    def add_seeds(self, seeds: Tensor) -> None:
        self._nodes = torch.empty(len(seeds), dtype=torch.int64)
        self._count = _register(seeds.numpy(), self._map.entries, self._map.base, self._nodes.numpy())
        if self._count < len(seeds):
            raise ValueError(_twice(int(seeds[self._count])))

    @property
    def node_ids(self) -> Tensor:
        """int64: the raw ids seen so far, by local id."""
        return self._nodes[: self._count]

    def __call__(self, ids: Tensor) -> Tensor:
        """Local ids of raw ids; new ones get the next numbers."""
        size = min(self._num_nodes, self._count + len(ids))
        nodes = torch.empty(size + 1, dtype=torch.int64)
        nodes.numpy()[: self._count] = self.node_ids.numpy()  # torch would wake threads that then spin beside ours
        local = ids if size < 2**31 and ids.dtype == torch.int32 else torch.empty(len(ids), dtype=local_dtype(size))
        scratch = self._map
        count = _relabel(
            ids.numpy(), self._num_nodes, scratch.entries, scratch.base, self._count, nodes.numpy(), local.numpy()
        )
        if count < 0:
            bad = int(ids[-1 - count])
            raise IndexError(f"the graph's indices hold {bad}; sources lie in [0, {self._num_nodes}): graph.validate()")
        self._nodes, self._count = nodes, count
        return local

    def close(self) -> None:
        """Invalidate this batch's entries: later batches have a higher base."""
        self._map.base += self._count


def local_dtype(size: int) -> torch.dtype:
    """Dtype of local ids below `size`."""
    return torch.int32 if size < 2**31 else torch.int64


class TorchRelabeler:
    """`Relabeler` in plain torch, for any device: sorts instead of a map."""

    def __init__(self, seeds: Tensor) -> None:
        values, counts = torch.unique(seeds, return_counts=True)
        if len(values) < len(seeds):
            raise ValueError(_twice(int(values[counts > 1][0])))
        self.node_ids = seeds

    def __call__(self, ids: Tensor) -> Tensor:
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
    """Number the nodes of a batch, seeds first, then in order of first appearance.

    Args:
        num_nodes: ids lie in [0, num_nodes).
        seeds: int64, each once; numbered 0, 1, ….

    Raises:
        ValueError: a seed twice.
    """
    if seeds.device.type != "cpu":
        yield TorchRelabeler(seeds)
        return
    with _borrowed_map(num_nodes) as scratch:
        labels = Relabeler(scratch, num_nodes)
        labels.add_seeds(seeds)
        yield labels
        labels.close()

"""Relabelling raw ids to local ids, numbered in order of first appearance; `IdIndex` numbers ids in ascending order.

One pass over the edges looks up every id in a map from raw to local ids. Entries of earlier batches are not cleared: an
entry is valid only if it is at least the map's base, which grows by the number of ids of each batch.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.csr import index_dtype, offsets
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import lowest_bit, popcount, prefetch
from workbench.kernels.threads import parallel_rows

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

    num_edges = None  # `TorchRelabeler` counts the nodes' in-edges, for which a GPU's host would have to wait

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
            out: [n], memory for the local ids, used if it has their dtype.
        """
        size, raw = min(self._num_nodes, self._count + ids.numel()), ids.numpy()
        self._make_room(size + 1)
        out = ids if out is None and overwrite else out
        local = torch.empty(len(raw), dtype=index_dtype(size)) if out is None or out.dtype != index_dtype(size) else out
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


class TorchRelabeler:
    """Numbers the nodes of a batch in plain torch, on any device, by sorting instead of a map.

    The host waits once per call: for the number of ids, together with their range and, given `indptr`, the number of
    their in-edges, which sizes the next layer's rows.

    Args:
        seeds: int64 [num_seeds], distinct.
        num_nodes: exclusive upper bound of the ids; None: not checked.
        indptr: int64 [num_nodes + 1], offsets of the graph's rows; None: in-edges are not counted.
    """

    def __init__(self, seeds: Tensor, num_nodes: int | None = None, indptr: Tensor | None = None) -> None:
        self._num_nodes, self._indptr = num_nodes, indptr
        self.node_ids, self.num_edges = seeds, None if indptr is None else 0
        if not len(seeds):
            return
        ids = seeds.sort().values
        repeated = ids[1:] == ids[:-1]
        if self._facts(repeated.sum(), ids)[0]:
            raise ValueError(_duplicate_seed(int(ids[1:][repeated][0])))

    def _facts(self, count: Tensor, ids: Tensor, is_new: Tensor | None = None) -> list[int]:
        """Read a count, and the smallest and the largest of sorted ids; count the in-edges of those that are new."""
        facts = [count, ids[0], ids[-1]]
        if self._indptr is not None and self._num_nodes is not None:
            degrees = rows_of_ids(self._indptr, ids.clamp(0, self._num_nodes - 1))[1]
            facts.append((degrees if is_new is None else degrees * is_new).sum())
        read = torch.stack(facts).tolist()
        if self._indptr is not None:
            self.num_edges = read[3]
        return read

    def __call__(self, ids: Tensor, *, overwrite: bool = False, out: Tensor | None = None) -> Tensor:
        known = len(self.node_ids)
        both = torch.cat([self.node_ids, ids.to(torch.int64)])
        if not len(both):
            return ids.to(torch.int32)
        values, order = both.sort(stable=True)
        starts_run = torch.ones_like(values, dtype=torch.bool)
        torch.ne(values[1:], values[:-1], out=starts_run[1:])
        is_first = torch.empty_like(starts_run).index_put_((order,), starts_run)  # the first of equal ids, by place
        number = torch.cumsum(is_first, 0)
        count, low, high, *_ = self._facts(number[-1], values, starts_run)
        if self._num_nodes is not None and (low < 0 or high >= self._num_nodes):
            raise invalid_source(low if low < 0 else high, self._num_nodes)
        runs = torch.where(starts_run, torch.arange(len(both), device=both.device), 0).cummax(0).values
        local = torch.empty_like(both, dtype=index_dtype(count))
        local[order] = (number[order[runs]] - 1).to(local.dtype)
        self.node_ids = both[torch.nonzero_static(is_first, size=count)[:, 0]]
        return local[known:].clone()  # a storage of exact size


def rows_of_ids(indptr: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the CSR rows of int64 ids in range begin, and their lengths, in plain torch."""
    starts = indptr[ids]
    return starts, indptr[ids + 1] - starts


@contextmanager
def relabeler(num_nodes: int, seeds: Tensor, indptr: Tensor | None = None) -> Iterator[Relabeler | TorchRelabeler]:
    """Yield a function that numbers the nodes of a batch: seeds first, then others in order of first appearance.

    Args:
        num_nodes: exclusive upper bound of the ids.
        seeds: int64 [num_seeds], distinct; numbered 0, 1, ….
        indptr: int64 [num_nodes + 1], offsets of the graph's rows, to know the number of the nodes' in-edges on a GPU.
    """
    with _numbering(Relabeler, TorchRelabeler, num_nodes, seeds, indptr) as labels:
        yield labels


@contextmanager
def _numbering(fast: Any, plain: Any, num_nodes: int, seeds: Tensor, indptr: Tensor | None = None) -> Iterator[Any]:
    if seeds.device.type != "cpu":
        yield plain(seeds, num_nodes, indptr)
        return
    with borrowed_map(num_nodes) as scratch:
        labels = fast(scratch, num_nodes)
        labels.add_seeds(seeds)
        yield labels
        labels.close()


_MIN_EDGES = 1 << 16  # per thread

_ONE = np.uint64(1)

_LOW_BITS = np.uint64(63)


class SplitIds(NamedTuple):
    """The ids of a relabeler divided into those of its rank and those of other ranks.

    Args:
        own: int64, ids of the rank: those that the relabeler began with, then new ones in order of first appearance.
        halo: int64, ids of other ranks, grouped by owner, ascending within a group.
        counts: int64 [num_ranks], ids per group of `halo`.
        table: int32 or int64, for each number the id's position in `own`, or −1 − its position in `halo`; unused if
            there is no halo, since the numbers are the positions then.
    """

    own: Tensor
    halo: Tensor
    counts: Tensor
    table: Tensor


class OwnedRelabeler(Relabeler):
    """Numbers ids as `Relabeler` does; it begins with ids of one rank. Created by `owned_relabeler(…)`."""

    def answer(self, ids: Tensor, owner: Tensor, rank: int) -> Tensor | None:
        """Number ids that others ask for, int64; None if one is not the rank's: then raise, to drop the map."""
        nodes = torch.empty(self._count + len(ids) + 1, dtype=torch.int64)
        numbers, numbered, scratch = torch.empty_like(ids), nodes.numpy(), self._map
        numbered[: self._count] = self.node_ids.numpy()
        arrays = [t.numpy() for t in (ids, owner)]
        count = _answer(*arrays, rank, scratch.entries, scratch.base, self._count, numbered, numbers.numpy())
        if count < 0:
            return None
        self._keep(nodes, count)
        return numbers

    def split(self, num_old: int, owner: Tensor, rank: int, num_ranks: int) -> SplitIds:
        """Divide all ids, of which the first `num_old` are the rank's; it ends the use of this relabeler."""
        if num_ranks == 1:
            return _all_own(self.node_ids)
        words, counts = np.zeros(-(-self._num_nodes // 64), np.uint64), torch.zeros(num_ranks, dtype=torch.int64)
        table = torch.empty(self._count, dtype=index_dtype(self._count))
        nodes, owners, places = self.node_ids.numpy(), owner.numpy(), table.numpy()
        num_own = _separate(nodes, num_old, owners, rank, words, counts.numpy(), places)
        halo = torch.empty(self._count - num_own, dtype=torch.int64)
        if len(halo):
            starts, scratch = offsets(counts).numpy(), self._map
            _group(words, owners, scratch.entries, scratch.base, starts, halo.numpy(), places)
        return SplitIds(self.node_ids[:num_own], halo, counts, table)


class TorchOwnedRelabeler(TorchRelabeler):
    """`OwnedRelabeler` in plain torch, on any device; its oracle."""

    def answer(self, ids: Tensor, owner: Tensor, rank: int) -> Tensor | None:
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= len(owner) or bool((owner[ids] != rank).any())):
            return None
        return self(ids).long()

    def split(self, num_old: int, owner: Tensor, rank: int, num_ranks: int) -> SplitIds:
        if num_ranks == 1:
            return _all_own(self.node_ids)
        of = owner[self.node_ids].long()
        is_own, ids = of == rank, self.node_ids
        order = torch.argsort(of[~is_own] * len(owner) + ids[~is_own])
        table = torch.empty_like(ids)
        table[is_own] = torch.arange(int(is_own.sum()), device=ids.device)
        table[(~is_own).nonzero()[:, 0][order]] = -1 - torch.arange(len(order), device=ids.device)
        counts = torch.bincount(of[~is_own], minlength=num_ranks)
        return SplitIds(ids[is_own], ids[~is_own][order], counts, table.to(index_dtype(len(ids))))


def _all_own(ids: Tensor) -> SplitIds:
    none = ids.new_empty(0)
    return SplitIds(ids, none, ids.new_zeros(1), none)


@contextmanager
def owned_relabeler(num_nodes: int, own: Tensor) -> Iterator[OwnedRelabeler | TorchOwnedRelabeler]:
    """Yield an object that numbers ids: `own` first, then others in order of first appearance.

    Args:
        num_nodes: exclusive upper bound of the ids.
        own: int64, distinct ids of one rank; numbered 0, 1, ….
    """
    with _numbering(OwnedRelabeler, TorchOwnedRelabeler, num_nodes, own) as labels:
        yield labels


def renumber(numbers: Tensor, split: SplitIds, num_owned: int) -> Tensor:
    """Convert a relabeler's numbers to positions in a rank's ids, followed by its halo: int32 (int64 from 2³¹ ids on).

    Args:
        numbers: int32 or int64; overwritten on the CPU, if the result has their dtype.
        num_owned: ids of the rank, those that others asked for included.
    """
    if not len(split.halo):
        return numbers
    table, dtype = split.table, index_dtype(num_owned + len(split.halo))
    if numbers.device.type != "cpu" or numbers.dtype != dtype:
        places = table[numbers.long()].long()
        return torch.where(places < 0, num_owned - 1 - places, places).to(dtype)
    local, places = numbers.numpy(), table.numpy()
    parallel_rows(lambda lo, hi: _renumber(lo, hi, local, places, num_owned), len(numbers), _MIN_EDGES)
    return numbers


@compiled
def _answer(ids, owner, rank, entries, base, count, nodes, numbers):
    """Look up ids and number the new ones; `nodes` needs one spare element. Return −1 for an id of another rank."""
    last = len(ids) - 1
    for e in range(len(ids)):
        if not 0 <= ids[e] < len(owner) or owner[ids[e]] != rank:
            return -1
        prefetch(entries, ids[min(e + _PREFETCH_DISTANCE, last)])
        prefetch(owner, ids[min(e + _PREFETCH_DISTANCE, last)])
        number = np.int64(entries[ids[e]]) - base
        is_new = np.int64(number < 0)
        number += is_new * (count - number)
        entries[ids[e]] = base + number
        nodes[count] = ids[e]
        count += is_new
        numbers[e] = number
    return count


@compiled
def _separate(nodes, num_old, owner, rank, words, counts, table):
    """Move the rank's ids to the front, without a branch, because owners are unpredictable; return how many they are.

    Others are marked in a bitmap and counted by owner.
    """
    own, last = num_old, len(nodes) - 1
    for i in range(num_old):
        table[i] = i
    for i in range(num_old, len(nodes)):
        prefetch(owner, nodes[min(i + _PREFETCH_DISTANCE, last)])
        node = nodes[i]
        is_own = np.int64(owner[node] == rank)
        table[i] = own
        nodes[own] = node
        own += is_own
        counts[owner[node]] += 1 - is_own
        words[node >> 6] |= np.uint64(1 - is_own) << (np.uint64(node) & _LOW_BITS)
    return own


@compiled
def _group(words, owner, entries, base, cursor, halo, table):
    """Write the marked ids, which ascend, to their owners' groups, and where they are to the table."""
    for word in range(len(words)):
        rest = words[word]
        while rest:
            node = 64 * word + lowest_bit(rest)
            rest &= rest - _ONE
            slot = cursor[owner[node]]
            cursor[owner[node]] = slot + 1
            halo[slot] = node
            table[entries[node] - base] = -1 - slot


@compiled
def _renumber(lo, hi, numbers, table, num_owned):
    for e in range(lo, hi):
        place = np.int64(table[numbers[e]])
        numbers[e] = place + (place < 0) * (num_owned - 1 - 2 * place)


class IdIndex:
    """The distinct ids of a list in ascending order, and the position of any id among them.

    On the CPU it takes 0.25 bytes per possible id, and neither sorts nor searches.

    Args:
        ids: vectors of int64 ids in [0, limit) (not checked) on one device, which may overlap.
        limit: exclusive upper bound of the ids; kept.
    """

    def __init__(self, ids: Iterable[Tensor], limit: int) -> None:
        vectors = [torch.empty(0, dtype=torch.int64), *ids]
        self.limit = limit
        self.ids: Tensor
        self._words: np.ndarray | None = None
        if vectors[-1].device.type == "cpu":
            self._build(vectors, limit)
        else:
            self.ids = torch.unique(torch.cat([v.to(vectors[-1].device) for v in vectors]))

    def _build(self, vectors: list[Tensor], limit: int) -> None:
        self._words = words = np.zeros(-(-limit // 64), np.uint64)
        self._before = before = np.empty(len(words), np.int64)
        for vector in vectors:
            _mark(vector.contiguous().numpy(), words)
        self.ids = torch.empty(_count(words, before), dtype=torch.int64)
        ids = self.ids.numpy()
        parallel_rows(lambda lo, hi: _list(words, before, ids, lo, hi), len(words))

    def positions(self, ids: Tensor) -> Tensor:
        """Return the position of each id in `self.ids`, −1 for others: int64 [n], on the device of the index.

        Args:
            ids: int64 or int32 [n].
        """
        ids = ids.to(self.ids.device, torch.int64)
        if self._words is None:
            return positions_torch(self.ids, ids)
        found = torch.empty(len(ids), dtype=torch.int64)
        words, before, limit = self._words, self._before, self.limit
        wanted, out = ids.contiguous().numpy(), found.numpy()
        parallel_rows(lambda lo, hi: _positions(words, before, limit, wanted, out, lo, hi), len(ids))
        return found


def positions_torch(sorted_ids: Tensor, ids: Tensor) -> Tensor:
    """Compute `IdIndex.positions` in plain torch, on any device."""
    if not len(sorted_ids):
        return torch.full_like(ids, -1)
    found = torch.searchsorted(sorted_ids, ids).clamp_(max=len(sorted_ids) - 1)
    return torch.where(sorted_ids[found] == ids, found, -1)


@compiled
def _mark(ids, words):
    for i in range(len(ids)):
        words[ids[i] >> 6] |= _ONE << (np.uint64(ids[i]) & _LOW_BITS)


@compiled
def _count(words, before):
    """Count the ids before each word; return their total number."""
    total = 0
    for word in range(len(words)):
        before[word] = total
        total += popcount(words[word])
    return total


@compiled
def _list(words, before, ids, lo, hi):
    for word in range(lo, hi):
        rest, slot = words[word], before[word]
        while rest:
            ids[slot] = 64 * word + lowest_bit(rest)
            rest &= rest - _ONE
            slot += 1


@compiled
def _positions(words, before, limit, ids, out, lo, hi):
    for i in range(lo, hi):
        out[i] = -1
        if 0 <= ids[i] < limit:
            word = words[ids[i] >> 6]
            bit = _ONE << (np.uint64(ids[i]) & _LOW_BITS)
            if word & bit:
                out[i] = before[ids[i] >> 6] + popcount(word & (bit - _ONE))

"""Relabelling on one of several ranks that own the ids: its own come first, those of other ranks follow by owner."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.bits import lowest_bit
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.relabel import Relabeler, TorchRelabeler, borrowed_map, local_dtype
from workbench.kernels.threads import parallel_rows

_PREFETCH_DISTANCE = 32  # ids
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
        table = torch.empty(self._count, dtype=local_dtype(self._count))
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
        return SplitIds(ids[is_own], ids[~is_own][order], counts, table.to(local_dtype(len(ids))))


def _all_own(ids: Tensor) -> SplitIds:
    none = ids.new_empty(0)
    return SplitIds(ids, none, ids.new_zeros(1), none)


@contextmanager
def owned_relabeler(num_nodes: int, own: Tensor) -> Iterator[OwnedRelabeler | TorchOwnedRelabeler]:
    """Yield an object that numbers ids: `own` first, then others in order of first appearance.

    Args:
        num_nodes: exclusive upper bound of the ids.
        own: int64, distinct ids of one rank; numbered 0, 1, ….

    Raises:
        ValueError: if an id occurs twice.
    """
    if own.device.type != "cpu":
        yield TorchOwnedRelabeler(own)
        return
    with borrowed_map(num_nodes) as scratch:
        labels = OwnedRelabeler(scratch, num_nodes)
        labels.add_seeds(own)
        yield labels
        labels.close()


def renumber(numbers: Tensor, split: SplitIds, num_owned: int) -> Tensor:
    """Convert a relabeler's numbers to positions in a rank's ids, followed by its halo.

    Args:
        numbers: int32 or int64; overwritten on the CPU, if the result has their dtype.
        split: the ids.
        num_owned: ids of the rank, those that others asked for included.

    Returns:
        int32 (int64 from 2³¹ ids on).
    """
    if not len(split.halo):
        return numbers
    table, dtype = split.table, local_dtype(num_owned + len(split.halo))
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

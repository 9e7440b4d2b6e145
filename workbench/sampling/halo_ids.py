"""The halo of a layer: of the ids that a rank's rows contain, those of other ranks, grouped by owner."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.csr import offsets
from workbench.kernels.id_index import IdIndex
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.relabel import local_dtype
from workbench.kernels.threads import parallel_rows
from workbench.sampling.owned_graph import OwnedGraph

_PREFETCH_DISTANCE = 32  # ids
_MIN_EDGES = 1 << 16  # per thread


class SplitIds(NamedTuple):
    """Distinct ids divided into those of one rank and those of the others.

    Args:
        own: int64, ids of the rank, in the given order.
        halo: int64, ids of other ranks, grouped by owner, ascending within a group.
        counts: int64 [num_ranks], ids per group of `halo`.
        places: int64 [n], for each given id its position in `own`, or −1 − its position in `halo`.
    """

    own: Tensor
    halo: Tensor
    counts: Tensor
    places: Tensor


def split_ids(ids: Tensor, owned: OwnedGraph) -> SplitIds:
    """Divide distinct ids into those of a rank and those of the others.

    Args:
        ids: int64 [n], each once, nodes of the graph.
        owned: whose owners and rank count.
    """
    if ids.device.type != "cpu":
        return split_ids_torch(ids, owned)
    own, foreign = torch.empty(len(ids) + 1, dtype=torch.int64), torch.empty(len(ids) + 1, dtype=torch.int64)
    owner, rank = owned.owner.numpy(), np.int32(owned.rank)
    num_own = _separate(ids.numpy(), owner, rank, own.numpy(), foreign.numpy())
    own, foreign = own[:num_own], foreign[: len(ids) - num_own]
    index = IdIndex([foreign], owned.graph.num_nodes)
    counts = torch.zeros(owned.num_ranks, dtype=torch.int64)
    _count_owners(index.ids.numpy(), owner, counts.numpy())
    halo, slots = torch.empty_like(index.ids), torch.empty_like(index.ids)
    _group(index.ids.numpy(), owner, offsets(counts)[:-1].clone().numpy(), halo.numpy(), slots.numpy())
    places = torch.empty_like(ids)
    _place(ids.numpy(), owner, rank, index.positions(foreign).numpy(), slots.numpy(), places.numpy())
    return SplitIds(own, halo, counts, places)


def split_ids_torch(ids: Tensor, owned: OwnedGraph) -> SplitIds:
    """Compute `split_ids` in plain torch, on any device."""
    owner = owned.owner[ids]
    is_own = owner == owned.rank
    own, foreign = ids[is_own], ids[~is_own]
    order = torch.argsort(owner[~is_own].long() * owned.graph.num_nodes + foreign)
    slots = torch.empty_like(order)
    slots[order] = torch.arange(len(order), device=ids.device)
    places = torch.empty_like(ids)
    places[is_own] = torch.arange(len(own), device=ids.device)
    places[~is_own] = -1 - slots
    return SplitIds(own, foreign[order], torch.bincount(owner[~is_own], minlength=owned.num_ranks), places)


def local_ids(labels: Tensor, num_dst: int, split: SplitIds, num_owned: int) -> Tensor:
    """Convert numbers of sources in order of first appearance to positions in `[owned | halo]`.

    Args:
        labels: int32 or int64 [num_edges], destinations first, then new sources; on the CPU they are overwritten.
        num_dst: number of destinations.
        split: the new sources by owner.
        num_owned: nodes that the rank owns, those that other ranks ask for included.

    Returns:
        Local ids in the dtype of the labels.
    """
    if not len(split.halo):
        return labels
    new = torch.where(split.places >= 0, num_dst + split.places, num_owned - 1 - split.places)
    table = torch.cat([torch.arange(num_dst, device=new.device), new]).to(local_dtype(num_owned + len(split.halo)))
    if labels.device.type != "cpu" or table.dtype != labels.dtype:
        return table[labels.long()]
    local, new_ids = labels.numpy(), table.numpy()
    parallel_rows(lambda lo, hi: _renumber(lo, hi, local, new_ids), len(labels), _MIN_EDGES)
    return labels


@compiled
def _renumber(lo, hi, labels, table):
    for e in range(lo, hi):
        labels[e] = table[labels[e]]


@compiled
def _separate(ids, owner, rank, own, foreign):
    """Copy the rank's ids and the others, without a branch, because owners are unpredictable."""
    count, last = 0, len(ids) - 1
    for i in range(len(ids)):
        prefetch(owner, ids[min(i + _PREFETCH_DISTANCE, last)])
        own[count] = foreign[i - count] = ids[i]
        count += np.int64(owner[ids[i]] == rank)
    return count


@compiled
def _count_owners(ids, owner, counts):
    for i in range(len(ids)):
        counts[owner[ids[i]]] += 1


@compiled
def _group(ids, owner, cursor, halo, slots):
    """Write ascending ids to their owners' groups."""
    for i in range(len(ids)):
        slot = cursor[owner[ids[i]]]
        cursor[owner[ids[i]]] = slot + 1
        halo[slot] = ids[i]
        slots[i] = slot


@compiled
def _place(ids, owner, rank, positions, slots, places):
    count = 0
    for i in range(len(ids)):
        if owner[ids[i]] == rank:
            places[i] = count
            count += 1
        else:
            places[i] = -1 - slots[positions[i - count]]

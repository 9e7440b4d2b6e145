"""Random walks over nodes of several ranks: the owner of the node that a walk has reached chooses its next step.

A rank sends the node and the step's variate to the owner, and gets the in-neighbour that it chooses, or -1 for a node
without in-edges. The visits are those of `walks.py`, bit for bit.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.normal import mixed_uniform_torch
from workbench.kernels.threads import parallel_rows
from workbench.sampling.all_to_all import AllToAll
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.visits import Neighbors, rank_visits, rank_visits_torch, table_size
from workbench.sampling.walks import Walks, bits_torch, pick_torch, rows_torch

_MIN_ROWS = 256  # per thread


def most_visited_owned(
    owned: OwnedGraph, nodes: Tensor, excluded: Tensor | None, walks: Walks, fanout: int
) -> AllToAll[Neighbors]:
    """Walk from nodes of one rank, and rank the nodes that their walks visit, as `most_visited` does.

    Args:
        owned: the rank's part of the graph.
        nodes: int64 [n], nodes of the rank.
        excluded: int64, CSR positions that must not be walked over, ascending; None: none.
        walks: the walks.
        fanout: nodes to keep per row, at most count · length.

    Returns:
        A generator, which yields twice per step after the first: requests, and the answers to those of other ranks.
    """
    none = torch.empty(0, dtype=torch.int64, device=nodes.device)
    visits = yield from _walk(owned, nodes, none if excluded is None else excluded, walks)
    graph = owned.graph
    if graph.device.type != "cpu":
        return rank_visits_torch(visits, graph.num_nodes, fanout, graph.indices.dtype)
    kept = torch.empty(len(nodes), dtype=torch.int64)
    sources = torch.empty(len(nodes), fanout, dtype=graph.indices.dtype)
    counts = torch.empty(len(nodes), fanout, dtype=torch.int32)
    arrays, size = [t.numpy() for t in (visits, kept, sources, counts)], table_size(visits.shape[1])
    parallel_rows(lambda lo, hi: _rank_rows(lo, hi, *arrays, size), len(nodes), _MIN_ROWS)
    return Neighbors(kept, sources, counts)


@compiled
def _rank_rows(lo, hi, visits, kept, sources, counts, table_slots):
    width = visits.shape[1]
    table, found = np.full(table_slots, -1, np.int32), np.empty(width, np.int64)
    found_counts, slots = np.empty(width, np.int32), np.empty(width, np.int32)
    for i in range(lo, hi):
        kept[i] = 0
        if visits[i, 0] >= 0:
            kept[i] = rank_visits(visits[i], table, found, found_counts, slots, sources[i], counts[i])


def _walk(owned: OwnedGraph, nodes: Tensor, excluded: Tensor, walks: Walks) -> AllToAll[Tensor]:
    """Return the visits of every node's walks, int64 [n, count · length]; -1 for nodes without in-edges."""
    rows, variates = rows_torch(owned.graph, nodes, excluded), walks.variates
    active = (rows[1] > 0).nonzero()[:, 0]
    walker = active.repeat_interleave(walks.count)
    home = [t[walker] for t in rows]
    keys = hash_index_torch(variates.key, nodes)[walker], hash_index_torch(variates.next_key, nodes)[walker]
    first_variate = 2 * walks.length * torch.arange(walks.count, device=nodes.device).repeat(len(active))
    visits = torch.full((len(nodes), walks.count, walks.length), -1, device=nodes.device)
    current = torch.full_like(walker, -1)
    for step in range(walks.length):
        variate = first_variate + 2 * step
        bits = bits_torch(keys, variates, variate + 1)
        if step:
            restarts = mixed_uniform_torch(*keys, variates.cosine, variates.sine, variate) < walks.restart
            away = (~restarts).nonzero()[:, 0]
            current[restarts] = -1
            current[away] = yield from _follow(owned, current[away], bits[away], excluded, walks)
        back = (current < 0).nonzero()[:, 0]
        positions = pick_torch(bits[back], variates, [t[back] for t in home], excluded)
        current[back] = owned.graph.indices[positions].long()
        visits[active, :, step] = current.view(len(active), walks.count)
    return visits.flatten(1)


def _follow(owned: OwnedGraph, at: Tensor, bits: Tensor, excluded: Tensor, walks: Walks) -> AllToAll[Tensor]:
    """Return an in-neighbour of every node, chosen by its owner; -1 for nodes without in-edges."""
    owner = owned.owner[at]
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=owned.num_ranks).tolist()
    requests = [
        torch.stack([a, b]).flatten() for a, b in zip(*(t[order].split(counts) for t in (at, bits)), strict=True)
    ]
    own, requests[owned.rank] = requests[owned.rank], at.new_empty(0)
    asked = yield requests
    chosen = yield [_choose(owned, request, excluded, walks) for request in asked]
    answers = list(chosen)
    answers[owned.rank] = _choose(owned, own, excluded, walks)
    following = torch.empty_like(at)
    following[order] = torch.cat(answers)
    return following


def _choose(owned: OwnedGraph, request: Tensor, excluded: Tensor, walks: Walks) -> Tensor:
    nodes, bits = request.view(2, -1)
    rows = rows_torch(owned.graph, owned.check_owned("nodes that walks have reached", nodes), excluded)
    following = torch.full_like(nodes, -1)
    has_any = (rows[1] > 0).nonzero()[:, 0]
    positions = pick_torch(bits[has_any], walks.variates, [t[has_any] for t in rows], excluded)
    following[has_any] = owned.graph.indices[positions].long()
    return following

"""Random walks with restarts: the inner loop of `RandomWalkSampler`, compiled, and in plain torch for any device.

Step t of walk w of node v uses variates 2 (w · length + t) (whether it restarts) and the next one (which in-edge it
takes) of v's stream: a row depends on the key, on v and on the graph alone. Edges are chosen by their offset in a row,
among those that are not excluded.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.csr_checks import check_sources
from workbench.core.graph import Graph
from workbench.core.variates import Variates
from workbench.kernels.hash import below, below_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.normal import mixed_uniform, mixed_uniform_torch
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import Candidates, candidates, skip_excluded, skip_excluded_torch
from workbench.sampling.visits import Neighbors, rank_visits, rank_visits_torch, table_size

_MIN_ROWS = 8  # per thread: a row costs hundreds of random reads
_VISITS_AT_A_TIME = 1 << 22


class Walks(NamedTuple):
    """The walks from every node.

    Args:
        variates: the random variates.
        count: walks per node.
        length: steps per walk.
        restart: probability that a step after the first goes back to the in-neighbours of the node.
    """

    variates: Variates
    count: int
    length: int
    restart: float


def most_visited(graph: Graph, rows: Candidates, walks: Walks, fanout: int) -> Neighbors:
    """Walk from every node, and rank the nodes that its walks visit.

    Args:
        graph: the graph.
        rows: the in-edges of the nodes.
        walks: the walks.
        fanout: nodes to keep per row, at most count · length.

    Raises:
        IndexError: an in-edge of a visited node comes from outside the graph.
    """
    if graph.device.type != "cpu":
        return most_visited_torch(graph, rows, walks, fanout)
    n = len(rows.nodes)
    kept = torch.empty(n, dtype=torch.int64)
    sources = torch.empty(n, fanout, dtype=graph.indices.dtype)
    counts, invalid = torch.empty(n, fanout, dtype=torch.int32), np.zeros(1, np.bool_)
    starts = tuple(t.numpy() for t in (rows.nodes, rows.starts, rows.degrees, rows.first_excluded))
    edges = tuple(t.numpy() for t in (graph.indptr, graph.indices, rows.excluded))
    out = tuple(t.numpy() for t in (kept, sources, counts))
    size = table_size(walks.count * walks.length)
    parallel_rows(lambda lo, hi: _walk_rows(lo, hi, starts, edges, walks, size, out, invalid), n, _MIN_ROWS)
    if invalid[0]:
        check_sources(graph.indices, graph.num_nodes, IndexError)
    return Neighbors(kept, sources, counts)


@compiled
def _walk_rows(lo, hi, starts, edges, walks, table_slots, out, invalid):
    nodes, row_starts, degrees, first_excluded = starts
    excluded = edges[2]
    kept, sources, counts = out
    visits = np.empty(walks.count * walks.length, np.int64)
    position, current = np.empty(walks.count, np.int64), np.empty(walks.count, np.int64)
    table = np.full(table_slots, -1, np.int32)
    found, found_counts, slots = np.empty_like(visits), np.empty(len(visits), np.int32), np.empty(len(visits), np.int32)
    for i in range(lo, hi):
        kept[i] = 0
        if degrees[i] == 0:
            continue
        keys = (
            np.int64(hash_index(walks.variates.key, nodes[i])),
            np.int64(hash_index(walks.variates.next_key, nodes[i])),
        )
        first = first_excluded[i] if len(excluded) else 0
        if not _walk(keys, row_starts[i], degrees[i], first, edges, walks, position, current, visits):
            invalid[0] = True
            return
        kept[i] = rank_visits(visits, table, found, found_counts, slots, sources[i], counts[i])


@compiled
def _walk(keys, start, degree, first_excluded, edges, walks, position, current, visits):
    """Take all walks of a node step by step, so that their reads overlap; return False at a node outside the graph."""
    indptr, indices, excluded = edges
    cosine, sine = walks.variates.cosine, walks.variates.sine
    for walk in range(walks.count):
        pick = _pick(keys, walks.variates, 2 * walk * walks.length + 1, degree)
        position[walk] = start + skip_excluded(pick, start, excluded, first_excluded)
        prefetch(indices, position[walk])
    for step in range(1, walks.length + 1):
        for walk in range(walks.count):
            node = np.int64(indices[position[walk]])
            if not 0 <= node < len(indptr) - 1:
                return False
            visits[walk * walks.length + step - 1] = node
            current[walk] = node
            prefetch(indptr, node)
        if step == walks.length:
            return True
        for walk in range(walks.count):
            variate = 2 * (walk * walks.length + step)
            row_start, row_degree, first = start, degree, first_excluded
            if mixed_uniform(*keys, cosine, sine, variate) >= walks.restart:
                row_start, row_degree, first = _row(current[walk], indptr, excluded)
                if row_degree == 0:
                    row_start, row_degree, first = start, degree, first_excluded
            pick = _pick(keys, walks.variates, variate + 1, row_degree)
            position[walk] = row_start + skip_excluded(pick, row_start, excluded, first)
            prefetch(indices, position[walk])
    return True


@compiled
def _pick(keys, variates, index, bound):
    """Return an integer in [0, bound): that of the bits of a single stream, or of the mixture's uniform variate."""
    if variates.sine == 0.0:
        return below(hash_index(keys[0], index), bound)
    return min(np.int64(mixed_uniform(*keys, variates.cosine, variates.sine, index) * bound), bound - 1)


@compiled
def _row(node, indptr, excluded):
    """Return where a row begins, its number of candidates, and where its excluded positions begin."""
    start, end = indptr[node], indptr[node + 1]
    if len(excluded) == 0:
        return start, end - start, 0
    first = np.searchsorted(excluded, start)
    return start, end - start - (np.searchsorted(excluded, end) - first), first


def most_visited_torch(graph: Graph, rows: Candidates, walks: Walks, fanout: int) -> Neighbors:
    """Walk and rank as `most_visited` does, in plain torch for any device; the oracle of the compiled kernel."""
    at_a_time = max(1, _VISITS_AT_A_TIME // (walks.count * walks.length))
    found = [
        rank_visits_torch(_walk_torch(graph, nodes, rows.excluded, walks), graph.num_nodes, fanout, graph.indices.dtype)
        for nodes in rows.nodes.split(at_a_time)
    ]
    kept, sources, counts = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Neighbors(kept, sources, counts)


def _walk_torch(graph: Graph, nodes: Tensor, excluded: Tensor, walks: Walks) -> Tensor:
    """Return the visits of every node's walks, int64 [n, count · length]; -1 for nodes without in-edges."""
    home = rows_torch(graph, nodes, excluded)
    active = (home[1] > 0).nonzero()[:, 0]
    walker = active.repeat_interleave(walks.count)
    home = at = [t[walker] for t in home]
    variates = walks.variates
    keys = hash_index_torch(variates.key, nodes)[walker], hash_index_torch(variates.next_key, nodes)[walker]
    first_variate = 2 * walks.length * torch.arange(walks.count, device=nodes.device).repeat(len(active))
    visits = torch.full((len(nodes), walks.count, walks.length), -1, device=nodes.device)
    for step in range(walks.length):
        variate = first_variate + 2 * step
        if step:
            away = rows_torch(graph, visits[active, :, step - 1].flatten(), excluded)
            restarts = mixed_uniform_torch(*keys, variates.cosine, variates.sine, variate) < walks.restart
            restarts |= away[1] == 0
            at = [torch.where(restarts, mine, other) for mine, other in zip(home, away, strict=True)]
        positions = pick_torch(bits_torch(keys, variates, variate + 1), variates, at, excluded)
        visits[active, :, step] = graph.indices[positions].long().view(len(active), walks.count)
    return visits.flatten(1)


def bits_torch(keys: tuple[Tensor, Tensor], variates: Variates, index: Tensor) -> Tensor:
    """Return variates as int64: hashes, or the bits of float64 uniform variates of a mixture.

    Args:
        keys: int64 [n] each, keys of the walkers' streams in this group and the next.
        variates: the random variates.
        index: int64 [n], number of the variate in its stream.
    """
    if variates.sine == 0.0:
        return hash_index_torch(keys[0], index)
    return mixed_uniform_torch(*keys, variates.cosine, variates.sine, index).view(torch.int64)


def pick_torch(bits: Tensor, variates: Variates, rows: list[Tensor], excluded: Tensor) -> Tensor:
    """Choose an in-edge of every row by a variate.

    Args:
        bits: int64 [n], from `bits_torch`.
        variates: the random variates that they are from.
        rows: from `rows_torch`, with at least one candidate each.
        excluded: int64, the excluded CSR positions in ascending order.

    Returns:
        CSR positions, int64 [n].
    """
    starts, bound, first = rows
    if variates.sine == 0.0:
        pick = below_torch(bits, bound)
    else:
        pick = torch.minimum((bits.view(torch.float64) * bound).long(), bound - 1)
    return skip_excluded_torch(pick, starts, excluded, first)


def rows_torch(graph: Graph, nodes: Tensor, excluded: Tensor) -> list[Tensor]:
    """Return where the nodes' rows begin, their numbers of candidates, and where their excluded positions begin."""
    rows = candidates(graph, nodes, excluded)
    return [rows.starts, rows.degrees, rows.first_excluded]

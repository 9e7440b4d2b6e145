"""Random-walk sampling: the nodes that short random walks with restarts visit most become a node's neighbours.

Ying et al.: "Graph convolutional neural networks for web-scale recommender systems" (PinSAGE), KDD 2018; as a recursive
sampler: appendix A.1.3 of Balin et al.: "Cooperative minibatching in graph neural networks".
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_fits, check_seed, check_sources, check_type
from workbench.core.exchange import AllToAll
from workbench.core.graph import Graph
from workbench.core.randomness import Dependence, Purpose, Variates, check_dependence, variates
from workbench.kernels.hash import below, below_torch, hash_index, hash_index_torch, mixed_uniform, mixed_uniform_torch
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch
from workbench.kernels.threads import parallel_rows
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import (
    Candidates,
    Drawn,
    ExcludingSampler,
    candidates,
    check_draw,
    excluded_positions,
    row_offsets,
    skip_excluded,
    skip_excluded_torch,
)

_MAX_LAYERS, _MAX_VISITS = 1000, 2**20

_BYTES_PER_STEP = 10 * 8  # of walks over several ranks, which take all steps of a layer at once

_BYTES_PER_NEIGHBOR = 2 * (8 + 4)  # a source and its count, before and after the rows are packed


class Neighbors(NamedTuple):
    """The neighbours of n nodes in rows of equal width, of which the first `kept[i]` are used.

    Args:
        kept: int64 [n], neighbours per row.
        sources: int32 or int64 [n, width], raw-graph ids, in descending order of their visits.
        counts: int32 [n, width], visits.
    """

    kept: Tensor
    sources: Tensor
    counts: Tensor


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


@dataclass(frozen=True)
class RandomWalkSampler(ExcludingSampler):
    """Random-walk sampler: the nodes that a node's random walks visit most become its neighbours, layer by layer.

    A walk's first step goes to a random in-neighbour of its node v. Every later step restarts with
    `restart_probability`, which means that it goes to a random in-neighbour of v again, and otherwise goes to a random
    in-neighbour of the current node; at a node without in-edges it restarts. All steps count as visits, those to v
    itself too, as in DGL's `PinSAGESampler` (whose walks *end* with that probability, which is another distribution).
    Of nodes visited equally often the one visited first, walk by walk, precedes. A row lists its neighbours in this
    order; nodes without in-edges have none.

    Every step is uniform over the in-edges, whatever their weights and types: a neighbour is not an edge of the graph,
    so the blocks have no edge ids and no edge types.

    Args:
        fanouts: neighbours per node in every layer, **input layer first**; fewer if fewer nodes are visited.
        num_walks: walks per node.
        walk_length: steps per walk.
        restart_probability: probability in [0, 1] that a step after the first restarts.
        weighted: whether the blocks have edge weights: the visits of the neighbours, scaled to sum to their number per
            row, so that a weighted mean over a row is PinSAGE's importance pooling.
        edge_ids: must be false, because a neighbour is not an edge.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`, so that walks change slowly from batch to batch; None:
            independent batches. A smoothed walk keeps a step while both of its variates stay near.

    Raises:
        TypeError: fanouts that are no sequence, or another dependence.
        ValueError: an option out of range, or `edge_ids`.

    >>> import torch, workbench as wb
    >>> cycle = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), num_nodes=3)
    >>> wb.RandomWalkSampler([2]).sample(cycle, torch.tensor([0])).node_ids
    tensor([0, 2, 1])
    """

    fanouts: Sequence[int]
    _: KW_ONLY
    num_walks: int = 100
    walk_length: int = 3
    restart_probability: float = 0.5
    weighted: bool = True
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = True
    reads_other_rows = True
    sources_are_new = True

    def __post_init__(self) -> None:
        check_type("fanouts", self.fanouts, Sequence, "pass one per layer, input layer first: [10, 10]")
        object.__setattr__(self, "fanouts", tuple(self.fanouts))
        check_at_least("the number of fanouts (one per layer)", len(self.fanouts), 1, most=_MAX_LAYERS)
        for layer, fanout in enumerate(self.fanouts):
            check_at_least(f"fanouts[{layer}]", fanout, 1)
        check_at_least("num_walks", self.num_walks, 1, most=_MAX_VISITS)
        check_at_least("walk_length", self.walk_length, 1, most=_MAX_VISITS // self.num_walks)
        value = self.restart_probability
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
            raise ValueError(f"restart_probability is {value!r}; it must be a probability from 0 to 1")
        check_seed(self.seed)
        check_dependence(self.dependence)
        if self.edge_ids:
            raise ValueError(
                "edge_ids is set, but a neighbour that random walks reach is not an edge of the graph; omit edge_ids, "
                "or use NeighborSampler"
            )

    def _draw(self, graph: Graph, rows: Candidates, *, layer: int, step: int) -> Drawn:
        fanout, walks = self._fanout(layer, len(rows.nodes)), self._walks(layer, step)
        return self._packed(most_visited(graph, rows, walks, fanout))

    def draw_owned(
        self, owned: OwnedGraph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> AllToAll[Drawn]:
        """Draw the rows of nodes of one rank; the owners of the nodes that walks reach choose their next steps.

        The arguments are those of `draw`, with the rank's part of the graph and edge ids of any rank.

        Returns:
            A generator for the caller to exchange what it yields, which returns the rows that `draw` gives.

        Raises:
            IndexError: a node of another rank.
            CapacityError: the walks need more memory than is available.
        """
        nodes = owned.check_owned("nodes", check_draw(self, owned.graph, nodes, layer=layer, step=step))
        excluded = excluded_positions(owned.graph, owned.own_edges(exclude_edges))
        visits = self.num_walks * self.walk_length * len(nodes)
        check_fits(f"{visits} steps of walks", _BYTES_PER_STEP * visits, "use more ranks, or fewer seeds")
        fanout, walks = self._fanout(layer, len(nodes)), self._walks(layer, step)
        return self._packed((yield from most_visited_owned(owned, nodes, excluded, walks, fanout)))

    def _fanout(self, layer: int, num_nodes: int) -> int:
        """Return the neighbours per row, at most the visits, after checking that they fit into memory."""
        fanout = min(self.fanouts[layer], self.num_walks * self.walk_length)
        needed = _BYTES_PER_NEIGHBOR * fanout * num_nodes
        check_fits(f"{fanout} neighbours of {num_nodes} nodes", needed, "use smaller fanouts, or fewer seeds")
        return fanout

    def _walks(self, layer: int, step: int) -> Walks:
        drawn = variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence)
        return Walks(drawn, self.num_walks, self.walk_length, float(self.restart_probability))

    def _packed(self, found: Neighbors) -> Drawn:
        indptr = row_offsets(found.kept)
        sources, weight = pack_rows(found, indptr, weighted=self.weighted)
        return Drawn(indptr, sources, weight=weight)


_MIN_ROWS = 8  # per thread: a row costs hundreds of random reads

_VISITS_AT_A_TIME = 1 << 22


def most_visited(graph: Graph, rows: Candidates, walks: Walks, fanout: int) -> Neighbors:
    """Walk from every node, and rank the nodes that its walks visit."""
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
        key, next_key = hash_index(walks.variates.key, nodes[i]), hash_index(walks.variates.next_key, nodes[i])
        keys = np.int64(key), np.int64(next_key)
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
    variates = walks.variates
    active, home, keys, first_variate, visits = _walkers(graph, nodes, excluded, walks)
    at = home
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


def _walkers(
    graph: Graph, nodes: Tensor, excluded: Tensor, walks: Walks
) -> tuple[Tensor, list[Tensor], tuple[Tensor, Tensor], Tensor, Tensor]:
    """The nodes with in-edges; per walk its home row, keys and first variate; and the visits to fill in, all -1."""
    rows = rows_torch(graph, nodes, excluded)
    active = (rows[1] > 0).nonzero()[:, 0]
    walker = active.repeat_interleave(walks.count)
    key, next_key = (hash_index_torch(key, nodes)[walker] for key in (walks.variates.key, walks.variates.next_key))
    first_variate = 2 * walks.length * torch.arange(walks.count, device=nodes.device).repeat(len(active))
    visits = torch.full((len(nodes), walks.count, walks.length), -1, device=nodes.device)
    return active, [t[walker] for t in rows], (key, next_key), first_variate, visits


def bits_torch(keys: tuple[Tensor, Tensor], variates: Variates, index: Tensor) -> Tensor:
    """Return variates as int64: hashes, or the bits of float64 uniform variates of a mixture.

    `keys` are those of the walkers' streams in this group and the next.
    """
    if variates.sine == 0.0:
        return hash_index_torch(keys[0], index)
    return mixed_uniform_torch(*keys, variates.cosine, variates.sine, index).view(torch.int64)


def pick_torch(bits: Tensor, variates: Variates, rows: list[Tensor], excluded: Tensor) -> Tensor:
    """Choose an in-edge (CSR position, int64 [n]) of every row by the variate's bits; `rows` is from `rows_torch`."""
    starts, bound, first = rows
    if variates.sine == 0.0:
        pick = below_torch(bits, bound)
    else:
        pick = torch.minimum((bits.view(torch.float64) * bound).long(), bound - 1)
    return skip_excluded_torch(pick, starts, excluded, first)


def rows_torch(graph: Graph, nodes: Tensor, excluded: Tensor) -> list[Tensor]:
    """Return where the nodes' rows begin, their numbers of candidates, and where their excluded positions begin."""
    rows = candidates(graph, nodes, excluded)
    first = rows.first_excluded if len(excluded) else torch.zeros_like(rows.starts)
    return [rows.starts, rows.degrees, first]


_GAMMA = np.uint64(0x9E3779B97F4A7C15)

_SHIFT = np.uint64(32)

_MIN_PACKED_ROWS = 4096  # per thread


def table_size(num_visits: int) -> int:
    """Return the number of slots of a hash table for so many visits: a power of two, at least twice as many."""
    return 1 << num_visits.bit_length() + 1


@compiled
def rank_visits(visits, table, found, counts, slots, sources, source_counts):
    """Write the most visited nodes and their visits; ties precede in order of the first visit. Return their number.

    `table` contains -1 before and after; `found`, `counts` and `slots` are scratch memory for `len(visits)` nodes.
    """
    distinct = _count_visits(visits, table, found, counts, slots)
    kept = 0
    for j in range(distinct):
        table[slots[j]] = -1
        slot = min(kept, len(sources) - 1)
        if kept == len(sources) and source_counts[slot] >= counts[j]:
            continue
        while slot > 0 and source_counts[slot - 1] < counts[j]:
            sources[slot], source_counts[slot] = sources[slot - 1], source_counts[slot - 1]
            slot -= 1
        sources[slot], source_counts[slot] = found[j], counts[j]
        kept = min(kept + 1, len(sources))
    return kept


@compiled
def _count_visits(visits, table, found, counts, slots):
    """Number distinct nodes by first visit, and count their visits; `table` maps slots to numbers."""
    distinct, mask = 0, len(table) - 1
    for v in range(len(visits)):
        slot = np.int64((np.uint64(visits[v]) * _GAMMA) >> _SHIFT) & mask
        while table[slot] >= 0 and found[table[slot]] != visits[v]:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot], slots[distinct], found[distinct], counts[distinct] = distinct, slot, visits[v], 0
            distinct += 1
        counts[table[slot]] += 1
    return distinct


def rank_visits_torch(visits: Tensor, num_nodes: int, width: int, dtype: torch.dtype) -> Neighbors:
    """Rank the visits of rows, int64 [n, v] in order (-1: none), as `rank_visits` does, in plain torch; its oracle."""
    rows, per_row = visits.shape
    row = torch.arange(rows, device=visits.device).repeat_interleave(per_row)
    keys, order = torch.sort(row * (num_nodes + 1) + visits.flatten() + 1, stable=True)
    keys, counts = torch.unique_consecutive(keys, return_counts=True)
    runs = counts.cumsum(0) - counts
    visited = keys % (num_nodes + 1) > 0
    first, counts, keys = order[runs][visited], counts[visited], keys[visited]  # by the stable sort, the first visit
    row = keys // (num_nodes + 1)
    rank = torch.argsort((row * (per_row + 1) + per_row - counts) * per_row + first % per_row)
    distinct = torch.bincount(row, minlength=rows)
    kept = distinct.clamp(max=width)
    to_row, to_column = _slots(kept)
    chosen = rank[(distinct.cumsum(0) - distinct)[to_row] + to_column]
    sources = torch.zeros(rows, width, dtype=dtype, device=visits.device)
    visits_of = torch.zeros(rows, width, dtype=torch.int32, device=visits.device)
    sources[to_row, to_column] = (keys[chosen] % (num_nodes + 1) - 1).to(dtype)
    visits_of[to_row, to_column] = counts[chosen].to(torch.int32)
    return Neighbors(kept, sources, visits_of)


def _slots(kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row and the column of every neighbour that is kept."""
    row = torch.arange(len(kept), device=kept.device).repeat_interleave(kept)
    return row, torch.arange(len(row), device=kept.device) - row_offsets(kept)[row]


def pack_rows(found: Neighbors, indptr: Tensor, *, weighted: bool) -> tuple[Tensor, Tensor | None]:
    """Pack the neighbours of all rows, and compute their float32 weights: visits, scaled to a mean of 1 per row."""
    if found.sources.device.type != "cpu":
        return pack_rows_torch(found, indptr, weighted=weighted)
    total = int(indptr[-1])
    sources = torch.empty(total, dtype=found.sources.dtype)
    weight = torch.empty(total if weighted else 0, dtype=torch.float32)
    arrays = [t.numpy() for t in (indptr, found.sources, found.counts, sources, weight)]
    parallel_rows(lambda lo, hi: _pack(lo, hi, *arrays), len(found.kept), _MIN_PACKED_ROWS)
    return sources, weight if weighted else None


@compiled
def _pack(lo, hi, indptr, padded, counts, sources, weight):
    for i in range(lo, hi):
        kept, visits = indptr[i + 1] - indptr[i], 0
        for j in range(kept):
            sources[indptr[i] + j] = padded[i, j]
            visits += counts[i, j]
        if len(weight):
            for j in range(kept):
                weight[indptr[i] + j] = np.float64(counts[i, j] * kept) / np.float64(visits)


def pack_rows_torch(found: Neighbors, indptr: Tensor, *, weighted: bool) -> tuple[Tensor, Tensor | None]:
    """Pack as `pack_rows` does, in plain torch for any device."""
    row, column = _slots(found.kept)
    sources = found.sources[row, column]
    if not weighted:
        return sources, None
    scaled = found.counts.long() * found.kept[:, None]
    return sources, (scaled[row, column].double() / found.counts.sum(1)[row].double()).float()


_MIN_OWNED_ROWS = 256  # per thread


def most_visited_owned(
    owned: OwnedGraph, nodes: Tensor, excluded: Tensor | None, walks: Walks, fanout: int
) -> AllToAll[Neighbors]:
    """Walk from nodes of one rank, and rank the nodes that their walks visit, as `most_visited` does.

    The generator yields twice per step after the first: requests, and the answers to those of other ranks.
    """
    none = torch.empty(0, dtype=torch.int64, device=nodes.device)
    visits = yield from _walk_among_ranks(owned, nodes, none if excluded is None else excluded, walks)
    graph = owned.graph
    if graph.device.type != "cpu":
        return rank_visits_torch(visits, graph.num_nodes, fanout, graph.indices.dtype)
    kept = torch.empty(len(nodes), dtype=torch.int64)
    sources = torch.empty(len(nodes), fanout, dtype=graph.indices.dtype)
    counts = torch.empty(len(nodes), fanout, dtype=torch.int32)
    arrays, size = [t.numpy() for t in (visits, kept, sources, counts)], table_size(visits.shape[1])
    parallel_rows(lambda lo, hi: _rank_rows(lo, hi, *arrays, size), len(nodes), _MIN_OWNED_ROWS)
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


def _walk_among_ranks(owned: OwnedGraph, nodes: Tensor, excluded: Tensor, walks: Walks) -> AllToAll[Tensor]:
    """Return the visits of every node's walks, int64 [n, count · length]; -1 for nodes without in-edges."""
    variates = walks.variates
    active, home, keys, first_variate, visits = _walkers(owned.graph, nodes, excluded, walks)
    current = torch.full_like(first_variate, -1)
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

"""Locality-aware sampling: neighbours whose rows a device has buffered are drawn more often, without bias.

Song, Jiang: "Rethinking graph data placement for graph neural network training on multiple GPUs".
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed, check_sources, check_type
from workbench.core.graph import Graph
from workbench.core.randomness import Dependence, Purpose, Variates, check_dependence, variates
from workbench.kernels.hash import TWO_TO_MINUS_53, hash_index, mixed_uniform, mixed_uniform_torch, unit_interval
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lane_instructions import lowest_bit
from workbench.kernels.lanes import LANES, first_lanes, hash_below
from workbench.kernels.relabel import invalid_source
from workbench.kernels.threads import parallel_edges
from workbench.sampling.labor import apply_edge_weight, row_limits
from workbench.sampling.poisson import (
    WEIGHTS,
    Levels,
    check_factors,
    inverse_weights,
    keep_edges,
    prefetch_rows,
    without_excluded,
    write_kept,
)
from workbench.sampling.sampler import (
    Candidates,
    Drawn,
    ExcludingSampler,
    Fanout,
    check_graph,
    checked_fanouts,
    expand_rows,
    is_excluded_torch,
    row_offsets,
)
from workbench.sampling.typed import draw_by_type
from workbench.sampling.weighted import draw_weighted


@dataclass(frozen=True, eq=False)
class LocalitySampler(ExcludingSampler):
    """Locality-aware sampler: draws in-neighbours with probabilities proportional to a factor per node.

    A node of more than k in-edges, for fanout k, keeps the edge from t with probability P_t = min(1, c · φ_t), φ_t the
    factor of t, independently of the others (Poisson sampling). c makes the expected number of edges k. A row of at
    most k edges is kept whole. All destinations of a layer share one variate per source, as those of `LaborSampler`: if
    all factors are equal, the edges are those of LABOR-0.

    Args:
        fanouts: neighbours to draw per layer, **input layer first**; -1: all. A mapping from edge type to number draws
            every type by itself.
        factors: float32 or float64 [num_nodes], φ: at most 256 different values, 2⁻²⁰ to 2²⁰.
            `wb.placement.locality_factors` computes them from the ids of a device's buffer.
        weights: the blocks' `edge_weight`, proportional to 1 / P_t in every row. "mean": Σ weight · h / (edges drawn)
            is an unbiased estimate of the mean over all in-neighbours; "sum": Σ weight · h is one of the sum; "ratio":
            the weights have mean 1 in every row, which estimates the mean with less variance and a bias of order 1 / k.
        biased: the paper's form instead: exactly min(k, in-edges) successive draws without replacement, each
            proportional to the remaining factors, without weights.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`: the variates of consecutive batches depend on each other;
            None: independent batches.

    The weights are multiplied by the graph's `edge_weight`, if it has any.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1, factors out of range or too many different
            ones, unknown `weights`, or a seed that is not a 64-bit integer.
        TypeError: a fanout that is neither an integer nor a mapping of integers, factors of another type, or another
            `dependence`.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs", whose
    draws are biased; weights by inverse inclusion probabilities: Horvitz, Thompson, JASA 47(260), 1952.

    >>> import torch, workbench as wb
    >>> star = wb.Graph.from_edges([1, 2, 3, 4], [0, 0, 0, 0])
    >>> factors = wb.placement.locality_factors(star, torch.tensor([2]), factor=1000)  # row 2 is buffered
    >>> batch = wb.placement.LocalitySampler([1], factors).sample(star, torch.tensor([0]))
    >>> batch.node_ids, batch.blocks[0].edge_weight
    (tensor([0, 2]), tensor([0.2508]))
    """

    fanouts: Sequence[Fanout]
    factors: Tensor
    _: KW_ONLY
    weights: str = "mean"
    biased: bool = False
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = True
    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", checked_fanouts(self.fanouts))
        check_factors(self.factors)
        check_choice("weights", self.weights, WEIGHTS)
        check_seed(self.seed)
        check_dependence(self.dependence)
        _ = self._levels  # computed here, so that the tensor's later changes do not count

    @property
    def num_layers(self) -> int:
        """Number of layers: one per fanout."""
        return len(self.fanouts)

    @cached_property
    def _levels(self) -> Levels:
        return Levels.of(self.factors)

    def _draw(self, graph: Graph, rows: Candidates, *, layer: int, step: int) -> Drawn:
        levels, fanout = self._levels.on(graph), self.fanouts[layer]
        drawn_from = variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence)
        if self.biased:
            draw = partial(draw_local_biased, graph.indices, levels, drawn_from)
        else:
            positions = self.edge_ids or graph.edge_weight is not None or graph.edge_type is not None
            draw = partial(draw_local, graph.indices, levels, drawn_from, weights=self.weights, positions=positions)
        drawn = draw(rows, fanout) if isinstance(fanout, int) else draw_by_type(graph, rows, fanout, draw)
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)


_ONE, _ZERO = np.uint64(1), np.uint64(0)

_MEAN, _RATIO = WEIGHTS.index("mean"), WEIGHTS.index("ratio")


def draw_local(
    indices: Tensor,
    levels: Levels,
    variates: Variates,
    rows: Candidates,
    fanout: int | Tensor,
    *,
    weights: str,
    positions: bool,
) -> Drawn:
    """Draw rows by Poisson sampling with factors.

    Args:
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        fanout: edges to draw in expectation, for all rows or int64 [n]; -1: all.
        weights: one of `WEIGHTS`.
        positions: whether to return the edges' CSR positions.

    Returns:
        The drawn rows, each in CSR order, with float32 weights.
    """
    if rows.positions is not None:
        grouped, sources = rows._replace(positions=None), indices[rows.positions]
        drawn = draw_local(sources, levels, variates, grouped, fanout, weights=weights, positions=True)
        return drawn._replace(positions=rows.positions[drawn.positions] if positions else None)
    limits = row_limits(rows, fanout)
    if indices.device.type != "cpu":
        return draw_local_torch(indices, levels, variates, rows, limits, weights=weights, positions=positions)
    fields = (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded, limits)
    invalid = np.full(1, -1)
    factors = (levels.factors.numpy(), levels.codes.numpy(), WEIGHTS.index(weights))
    args = (tuple(field.numpy() for field in fields), indices.numpy(), factors, tuple(variates), invalid)
    indptr, (sources, kept, weight) = keep_edges(
        lambda lo, hi, slot, *out: _keep_rows(lo, hi, slot, *args, *out),
        row_offsets(rows.degrees),
        [indices.dtype, torch.int64 if positions else None, torch.float32],
    )
    if invalid[0] >= 0:
        raise invalid_source(int(indices[invalid[0]]), len(levels.codes))
    assert sources is not None
    return Drawn(indptr, sources, kept, weight)


@compiled
def _keep_rows(lo, hi, slot, rows, indices, levels, variates, invalid, counts, sources, positions, weights):
    """Count, solve, decide and weigh row by row."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    factors, codes, kind = levels
    found, p = np.empty(len(factors), np.int64), np.empty(len(factors))
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        first, start, end, whole = slot, starts[i], starts[i] + lengths[i], degrees[i] <= limits[i]
        skip, top = first_excluded[i] if len(excluded) else 0, 0
        if not whole:
            if not _count_levels(indices, start, end, excluded, skip, codes, found, invalid):
                counts[i:hi] = 0
                break
            top = _solve(found, factors, limits[i], p)
        for position in range(start, end, LANES):
            left = end - position
            mask = first_lanes(left) if whole else _below(indices, position, left, variates, codes, found, p, top)
            if len(excluded):
                mask, skip = without_excluded(mask, position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)
        counts[i] = slot - first
        if whole:
            for e in range(first, slot):
                weights[e] = 1.0
        else:
            _weigh(sources, first, slot, codes, found, p, np.float64(degrees[i]), kind, weights)


@compiled_inline
def _count_levels(indices, start, end, excluded, skip, codes, found, invalid):
    """Count a row's candidates per level; return False at a source that is out of range."""
    for level in range(len(found)):
        found[level] = 0
    if len(found) == 2:  # the common case, without a store per edge that the next one waits for
        second = 0
        for e in range(start, end):
            if not 0 <= indices[e] < len(codes):
                invalid[0] = e
                return False
            second += codes[indices[e]]
        found[0], found[1] = end - start - second, second
    else:
        for e in range(start, end):
            if not 0 <= indices[e] < len(codes):
                invalid[0] = e
                return False
            found[codes[indices[e]]] += 1
    while skip < len(excluded) and excluded[skip] < end:
        found[codes[indices[excluded[skip]]]] -= 1
        skip += 1
    return True


@compiled_inline
def _solve(found, factors, limit, p):
    """Write each level's probability, whose sum over the row is `limit`; return the first level that has candidates.

    Levels are clamped to 1 from the largest factor on; the rest share what is left of the limit.
    """
    num, top = len(factors), 0
    p[num - 1] = found[num - 1] * factors[num - 1]
    for level in range(num - 2, -1, -1):  # masses of a level and all behind it
        p[level] = p[level + 1] + found[level] * factors[level]
    while top < num - 1 and found[top] == 0:
        top += 1
    level, left = 0, limit
    c = np.float64(left) / p[0]
    while level < num - 1 and found[level] < left and factors[level] * c >= 1.0:
        left -= found[level]
        level += 1
        c = np.float64(left) / p[level]
    for other in range(num):
        p[other] = 1.0 if other < level else min(1.0, factors[other] * c)
        if limit == 0:
            p[other] = -1.0
    return top


@compiled_inline
def _below(indices, position, count, variates, codes, found, p, top):
    """Return which of eight sources have variates of at most the probabilities of their levels.

    Probabilities fall with the level, so few variates pass the comparison with the row's largest one; those are
    compared again.
    """
    key, next_key, cosine, sine = variates
    mask = np.uint64(0)
    if sine != 0.0:
        for b in range(min(count, LANES)):
            source = indices[position + b]
            below = mixed_uniform(key, next_key, cosine, sine, source) <= p[codes[source]]
            mask |= np.uint64(below) << np.uint64(b)
        return mask
    mask = hash_below(indices, position, count, key, np.int64(np.floor(p[top] / TWO_TO_MINUS_53)))
    rest = mask if len(p) > 1 else _ZERO
    while rest != _ZERO:
        bit = rest & (~rest + _ONE)
        source = indices[position + lowest_bit(rest)]
        if unit_interval(hash_index(key, source)) > p[codes[source]]:
            mask &= ~bit
        rest &= ~bit
    return mask


@compiled_inline
def _weigh(sources, first, last, codes, kept, p, degree, kind, weights):
    """Compute `inverse_weights` of the edges kept; `kept` is scratch memory for their number per level."""
    norm, count = 1.0, np.float64(last - first)
    if kind == _MEAN:
        norm = count / degree
    elif kind == _RATIO:
        for level in range(len(kept)):
            kept[level] = 0
        for e in range(first, last):
            kept[codes[sources[e]]] += 1
        total = 0.0
        for level in range(len(kept)):
            total += np.float64(kept[level]) * (1.0 / p[level])
        norm = count / total
    for e in range(first, last):
        weights[e] = norm * (1.0 / p[codes[sources[e]]])


def draw_local_torch(
    indices: Tensor,
    levels: Levels,
    variates: Variates,
    rows: Candidates,
    limits: Tensor,
    *,
    weights: str,
    positions: bool,
) -> Drawn:
    """Draw as `draw_local` does, in plain torch for any device; its oracle."""
    row, position = expand_rows(rows)
    if len(rows.excluded):
        candidate = ~is_excluded_torch(position, rows.excluded)
        row, position = row[candidate], position[candidate]
    sources = indices[position].long()
    code, num = levels.codes[sources].long(), len(levels.factors)
    found = _per_level(row, code, len(limits), num)
    p = _solve_torch(found, levels.factors, limits, rows.degrees <= limits)
    kept = mixed_uniform_torch(*variates, sources) <= p[row, code]
    row, position, code = row[kept], position[kept], code[kept]
    counts, totals = _per_level(row, code, len(limits), num), torch.zeros_like(p[:, 0])
    for level in range(num):
        totals = totals + counts[:, level].double() * (1.0 / p[:, level])
    number = counts.sum(1)
    weight = inverse_weights(weights, 1.0 / p[row, code], number, rows.degrees, totals, row)
    return Drawn(row_offsets(number), indices[position], position if positions else None, weight)


def _per_level(row: Tensor, code: Tensor, num_rows: int, num_levels: int) -> Tensor:
    return torch.bincount(row * num_levels + code, minlength=num_rows * num_levels).view(num_rows, num_levels)


def _solve_torch(found: Tensor, factors: Tensor, limits: Tensor, whole: Tensor) -> Tensor:
    """Solve as `_solve` does, for all rows together: float64 [num_rows, num_levels], 1 for rows kept whole."""
    products = found * factors
    mass = [products[:, -1]]
    for level in range(len(factors) - 2, -1, -1):
        mass.insert(0, mass[0] + products[:, level])
    c, left = limits / mass[0], limits
    clamped, going = torch.zeros_like(found, dtype=torch.bool), ~whole
    for level in range(len(factors) - 1):
        going = going & (found[:, level] < left) & (factors[level] * c >= 1.0)
        left = torch.where(going, left - found[:, level], left)
        c = torch.where(going, left / mass[level + 1], c)
        clamped[:, level] = going
    p = torch.where(clamped | whole[:, None], 1.0, (factors * c[:, None]).clamp(max=1.0))
    return torch.where((limits == 0)[:, None] & ~whole[:, None], -1.0, p)


def draw_local_biased(
    indices: Tensor, levels: Levels, variates: Variates, rows: Candidates, fanout: int | Tensor
) -> Drawn:
    """Draw rows by successive draws without replacement, proportional to the remaining factors, without weights.

    Arguments as for `draw_local`; the rows are in order of arrival, with positions.
    """
    _, position = expand_rows(rows)
    factors = levels.factors[levels.codes[indices[position].long()].long()]
    factors = torch.where(is_excluded_torch(position, rows.excluded), 0.0, factors)
    offsets, none = row_offsets(rows.lengths), position[:0]
    candidates = Graph(offsets, indices[position], edge_weight=factors)
    size = rows.num_edges
    compact = Candidates(rows.nodes, offsets[:-1], rows.lengths, rows.lengths, none, none, num_edges=size)
    drawn = draw_weighted(candidates, compact, fanout, replace=False, variates=variates)
    return drawn._replace(positions=position[drawn.positions])


def locality_factors(graph: Graph, buffered: Tensor, *, factor: float, hops: int = 0) -> Tensor:
    """Compute a factor per node: `factor` for nodes from which sampling can reach the buffer within some hops, else 1.

    Sampling goes from a node to its in-neighbours. A node is 0 hops from the buffer if its row is in it, and j + 1 hops
    if an in-neighbour is j hops away: drawing it leads the next layer to the buffer. So the boost follows out-edges
    from the buffer, against the direction of sampling.

    Args:
        graph: the graph that is sampled.
        buffered: int64 or int32 node ids, each once: the rows that the device reads without cost
            (`placement.buffers[device]`).
        factor: f ≥ 1, by which the nodes' weights are multiplied; 1: plain sampling.
        hops: j; 0 boosts the buffered nodes alone.

    Returns:
        float32 [num_nodes], for `LocalitySampler` and `LadiesSampler`.

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate ids, a factor below 1 or above 2²⁰, or a negative number of hops.
        IndexError: an id out of range.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs".

    >>> path = Graph.from_edges([0, 1, 2], [1, 2, 3])  # 0 → 1 → 2 → 3
    >>> locality_factors(path, torch.tensor([1]), factor=4, hops=1)  # node 2 reads node 1
    tensor([1., 4., 4., 1.])
    """
    check_graph(graph)
    check_at_least("hops", hops, 0)
    buffered = check_ids("buffered", buffered, graph.num_nodes, unique=True).to(graph.device)
    if not 1 <= factor <= 2**20 or math.isnan(factor):
        raise ValueError(f"factor is {factor!r}; it must be from 1 (plain sampling) to 2²⁰")
    near = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    near[buffered] = True
    if hops:
        check_sources(graph.indices, graph.num_nodes, IndexError)
    for _ in range(hops):
        near = _one_hop_more(graph, near)
    return torch.where(near, float(factor), 1.0)


def _one_hop_more(graph: Graph, near: Tensor) -> Tensor:
    """Add the nodes that have an in-neighbour in a set, given and returned as a mask."""
    if near.device.type != "cpu":
        return one_hop_more_torch(graph, near)
    more = torch.empty_like(near)
    arrays = graph.indptr.numpy(), graph.indices.numpy(), near.numpy(), more.numpy()
    parallel_edges(lambda lo, hi: _find_in_neighbor(lo, hi, *arrays), graph.indptr, 1)
    return more


@compiled
def _find_in_neighbor(lo, hi, indptr, indices, near, more):
    for v in range(lo, hi):
        found, e = near[v], indptr[v]
        while not found and e < indptr[v + 1]:
            found = near[indices[e]]
            e += 1
        more[v] = found


def one_hop_more_torch(graph: Graph, near: Tensor) -> Tensor:
    """Compute as `_one_hop_more` does, in plain torch for any device; the oracle of the compiled kernel."""
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes, device=near.device), graph.in_degrees())
    more = near.clone()
    more[rows[near[graph.indices.long()]]] = True
    return more


@dataclass(frozen=True)
class LocalityControl:
    """The controller of the factor f of `wb.placement.locality_factors`, a state machine of one record per epoch.

    After every epoch, with ratio = seconds of data movement / seconds of execution, both since the start:

        ratio ≥ grow_at and f < largest      f doubles
        ratio < shrink_below and f > 1       f becomes the midpoint of the last two factors
        otherwise                            f is settled, and stays

    Args:
        factor: f of the coming epoch.
        previous: f of the epoch before.
        movement_seconds: of data movement since the start.
        execution_seconds: of execution since the start, movement included if `movement_seconds` is a part of it.
        settled: f does not change any more.
        grow_at: ratio from which f doubles.
        shrink_below: ratio below which f returns towards its previous value.
        largest: f is not doubled from this value on.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs": the
    rule and its bounds are those of the published code.

    >>> control = LocalityControl()
    >>> for movement in (5, 3, 0.5):  # of an epoch of 10 seconds
    ...     control = control.next(movement, 10)
    ...     print(control.factor)
    2.0
    4.0
    8.0
    >>> control.ratio
    0.2833333333333333
    """

    factor: float = 1.0
    previous: float = 1.0
    movement_seconds: float = 0.0
    execution_seconds: float = 0.0
    settled: bool = False
    grow_at: float = 0.20
    shrink_below: float = 0.15
    largest: float = 8.0

    def __post_init__(self) -> None:
        if not (0 <= self.shrink_below <= self.grow_at):
            raise ValueError(
                f"shrink_below is {self.shrink_below} and grow_at {self.grow_at}; they must be at least 0 and ascend"
            )
        if not (self.factor >= 1 and self.previous >= 1 and self.largest >= 1):
            raise ValueError(
                f"factor is {self.factor}, previous {self.previous} and largest {self.largest}; they must be at least 1"
            )
        if not (0 <= self.movement_seconds < float("inf") and 0 <= self.execution_seconds < float("inf")):
            raise ValueError(
                f"movement_seconds is {self.movement_seconds} and execution_seconds {self.execution_seconds}; they "
                "must be finite numbers of at least 0"
            )

    @property
    def ratio(self) -> float:
        """Seconds of movement per second of execution since the start; 0 before the first epoch."""
        return self.movement_seconds / self.execution_seconds if self.execution_seconds else 0.0

    def next(self, movement_seconds: float, execution_seconds: float) -> "LocalityControl":
        """Return the state after an epoch.

        Args:
            movement_seconds: of data movement in the epoch.
            execution_seconds: of execution in the epoch, above 0.

        Raises:
            ValueError: seconds that are negative, infinite or not a number, or an epoch without execution.
        """
        _check_seconds(movement_seconds, execution_seconds)
        counted = replace(
            self,
            movement_seconds=self.movement_seconds + movement_seconds,
            execution_seconds=self.execution_seconds + execution_seconds,
        )
        return counted if self.settled else counted._adjusted()

    def _adjusted(self) -> "LocalityControl":
        if self.ratio >= self.grow_at and self.factor < self.largest:
            return replace(self, factor=2 * self.factor, previous=self.factor)
        if self.ratio < self.shrink_below and self.factor > 1:
            return replace(self, factor=(self.factor + self.previous) / 2, previous=self.factor)
        return replace(self, previous=self.factor, settled=True)


def _check_seconds(movement: float, execution: float) -> None:
    for name, seconds in (("movement_seconds", movement), ("execution_seconds", execution)):
        check_type(name, seconds, (int, float), "pass seconds as a number")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"{name} is {seconds}; it must be a finite number of at least 0")
    if not execution:
        raise ValueError("execution_seconds is 0; call next() after an epoch that trained at least one batch")

"""LABOR sampling: layer-neighbour sampling with one variate per source, shared by all destinations of a layer.

Balın, Çatalyürek: "Layer-neighbor sampling: defusing neighborhood explosion in GNNs", NeurIPS 2023.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_seed
from workbench.core.exchange import AllToAll
from workbench.core.graph import Graph
from workbench.core.randomness import Dependence, Purpose, Variates, check_dependence, variates
from workbench.kernels.buffers import filled
from workbench.kernels.hash import (
    TWO_TO_MINUS_53,
    hash_index,
    mixed_normal,
    mixed_normal_torch,
    mixed_uniform_torch,
    normal_quantile,
    normal_quantile_torch,
    unit_interval,
)
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, first_lanes, hash_below
from workbench.sampling.labor_importance import draw_important, draw_important_owned
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.poisson import keep_edges, mark_smallest, prefetch_rows, without_excluded, write_kept
from workbench.sampling.sampler import (
    UNLIMITED,
    Candidates,
    Drawn,
    ExcludingSampler,
    Fanout,
    candidates,
    check_draw,
    checked_fanouts,
    excluded_positions,
    expanded,
    is_excluded_torch,
    row_offsets,
)
from workbench.sampling.typed import draw_by_type
from workbench.sampling.uniform import draw_uniform
from workbench.sampling.weighted import smallest_in_order

Importance = int | Literal["*"]


@dataclass(frozen=True)
class LaborSampler(ExcludingSampler):
    """LABOR sampler: draws about `fanout` in-neighbours of every node per layer, as few distinct ones as possible.

    All destinations of a layer share one variate r_t per source t, so that they choose the same sources where they can.
    LABOR-0 keeps the edge t → s if r_t ≤ k / d_s, for fanout k and d_s in-edges: each row without parallel edges is a
    uniform sample, as of `NeighborSampler`, with about k edges. LABOR-i and LABOR-* keep it if r_t ≤ c_s · π_t, where π
    is optimised in i rounds, or until the expected number of sources converges, and c_s keeps the variance at that of
    `NeighborSampler`; the edges then have weights, with which the mean over a row is the estimate. A row of at most k
    edges is kept whole.

    In a multigraph, the parallel edges of a row share r_t, as in DGL's `LaborSampler`. LABOR-0 then draws each with
    probability k / d_s, but all or none of them: more rows are empty (23 % instead of 0.3 % with 5 sources of 4 edges
    each and k = 5), and the mean over the drawn edges is biased (in-edges from 1, 1 and 2, k = 1: the share of node 1
    in rows that are not empty is 0.53, not 0.67). With `poisson=False` the first edge of a tie is drawn, so that others
    may never be. `NeighborSampler`, and `LocalitySampler` with factors 1 through its weights, have no such bias;
    `Graph.from_edges` merges parallel edges with `undirected=True`, not with "multi".

    Args:
        fanouts: neighbours to draw per layer, **input layer first**; -1: all. A mapping from edge type to number draws
            every type by itself (importance 0 only).
        importance: 0 (LABOR-0), a number of rounds i (LABOR-i), or "*" (LABOR-*).
        poisson: draw `fanout` edges in expectation; False: exactly, those with the smallest r_t / π_t. The weights of
            exact draws are those of Poisson sampling, an approximation.
        layer_dependency: use the same variates in every layer, which again draws fewer distinct nodes.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`: the variates of consecutive batches depend on each other, so
            that the batches reach mostly the same nodes; None: independent batches.

    The blocks' `edge_weight`: with importance, proportional to 1 / min(1, c_s · π_t) and with mean 1 in every row;
    multiplied by the graph's `edge_weight`, if it has any. LABOR-0 gives the graph's weights alone, or none.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1, another `importance`, a mapping together with
            importance, or a seed that is not a 64-bit integer.
        TypeError: a fanout that is neither an integer nor a mapping of integers, or another `dependence`.

    Source: Balın, Çatalyürek: "Layer-neighbor sampling: defusing neighborhood explosion in GNNs", NeurIPS 2023;
    layer dependency: Balın, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", 2025.

    >>> import torch, workbench as wb
    >>> star = wb.Graph.from_edges([2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1])
    >>> batch = wb.LaborSampler([1]).sample(star, torch.tensor([0, 1]))
    >>> batch.blocks[0].indptr.diff().unique().numel()  # both destinations keep the same sources
    1
    """

    fanouts: Sequence[Fanout]
    _: KW_ONLY
    importance: Importance = 0
    poisson: bool = True
    layer_dependency: bool = False
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", checked_fanouts(self.fanouts))
        check_seed(self.seed)
        check_dependence(self.dependence)
        rounds = self.importance
        if rounds != "*" and (isinstance(rounds, bool) or not isinstance(rounds, Integral) or rounds < 0):
            raise ValueError(f'importance is {rounds!r}; pass 0, a number of rounds (at least 1), or "*"')
        object.__setattr__(self, "importance", rounds if rounds == "*" else int(rounds))
        if rounds != 0 and not all(isinstance(fanout, int) for fanout in self.fanouts):
            raise ValueError(
                f"importance is {rounds!r} and fanouts {list(self.fanouts[:9])}; a fanout per edge type is drawn with "
                "importance=0 alone, because π is optimised over all edges of a layer together"
            )

    @property
    def rows_are_independent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a node's row depends on (seed, step, layer, node) alone: π depends on all destinations of a layer."""
        return self.importance == 0

    def _draw(self, graph: Graph, rows: Candidates, *, layer: int, step: int) -> Drawn:
        fanout = self.fanouts[layer]
        shared = 0 if self.layer_dependency else layer
        source_variates = variates(self.seed, Purpose.SAMPLING, step, shared, self.dependence)
        positions = self.edge_ids or graph.edge_weight is not None or graph.edge_type is not None
        options = {"poisson": self.poisson, "variates": source_variates, "positions": positions}
        if self.importance != 0 and isinstance(fanout, int) and fanout != -1:
            rounds = None if self.importance == "*" else int(self.importance)
            drawn = draw_important(rows, graph.indices, fanout, rounds=rounds, num_nodes=graph.num_nodes, **options)
        else:
            draw = partial(draw_shared, graph.indices, **options)
            drawn = draw(rows, fanout) if isinstance(fanout, int) else draw_by_type(graph, rows, fanout, draw)
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)

    @property
    def draw_owned(self) -> Callable[..., AllToAll[Drawn]]:
        """Draws the rows of nodes of one rank: π is computed by the owners of the sources, over the destinations of all
        ranks, as `random_walk.RandomWalkSampler.draw_owned`. Missing for importance 0, whose rows are independent."""
        if self.importance == 0:
            raise AttributeError("LaborSampler with importance=0 draws every row alone; call draw")
        return self._draw_owned

    def _draw_owned(
        self, owned: OwnedGraph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> AllToAll[Drawn]:
        graph, fanout = owned.graph, self.fanouts[layer]
        nodes = owned.check_owned("nodes", check_draw(self, graph, nodes, layer=layer, step=step))
        rows = candidates(graph, nodes, excluded_positions(graph, owned.own_edges(exclude_edges)))
        if not isinstance(fanout, int) or fanout == -1:
            return self._draw(graph, rows, layer=layer, step=step)
        drawn = yield from draw_important_owned(
            owned,
            rows,
            fanout,
            rounds=None if self.importance == "*" else int(self.importance),
            poisson=self.poisson,
            variates=variates(
                self.seed, Purpose.SAMPLING, step, 0 if self.layer_dependency else layer, self.dependence
            ),
            positions=self.edge_ids or graph.edge_weight is not None or graph.edge_type is not None,
        )
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)


def apply_edge_weight(drawn: Drawn, edge_weight: Tensor) -> Drawn:
    """Multiply the weights of drawn rows, 1 if there are none, by the graph's weights by CSR position.

    The product has the wider of the two dtypes: weights of nodes that are rarely drawn exceed the range of float16.
    """
    weight = edge_weight[drawn.positions]
    return drawn._replace(weight=weight if drawn.weight is None else weight * drawn.weight)


def draw_shared(
    indices: Tensor, rows: Candidates, fanout: int | Tensor, *, poisson: bool, variates: Variates, positions: bool
) -> Drawn:
    """Draw rows by LABOR-0, each in CSR order.

    Args:
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        fanout: edges to draw, for all rows or int64 [n]; -1: all.
        poisson: draw `fanout` edges in expectation; otherwise exactly.
        positions: whether to return the edges' CSR positions.
    """
    if rows.positions is not None:
        grouped, sources = rows._replace(positions=None), indices[rows.positions]
        drawn = draw_shared(sources, grouped, fanout, poisson=poisson, variates=variates, positions=True)
        return drawn._replace(positions=rows.positions[drawn.positions] if positions else None)
    if isinstance(fanout, int) and fanout < 0:
        return draw_uniform(rows, indices, -1, replace=False, key=0, positions=positions)
    limits = row_limits(rows, fanout)
    if indices.device.type != "cpu":
        return draw_shared_torch(indices, rows, limits, poisson=poisson, variates=variates, positions=positions)
    return keep_uniform(rows, indices, limits, poisson=poisson, variates=variates, positions=positions)


def row_limits(rows: Candidates, fanout: int | Tensor) -> Tensor:
    """Return the fanout of every row, int64 [n]; -1 becomes a number that exceeds all degrees."""
    if isinstance(fanout, int):
        most = fanout if fanout >= 0 else UNLIMITED
        return filled(len(rows.degrees), value=most, dtype=torch.int64, device=rows.degrees.device)
    return torch.where(fanout < 0, UNLIMITED, fanout)


def draw_shared_torch(
    indices: Tensor, rows: Candidates, limits: Tensor, *, poisson: bool, variates: Variates, positions: bool
) -> Drawn:
    """Draw as `draw_shared` does, in plain torch for any device; its oracle. The host waits for the number of edges."""
    edges = expanded(rows)
    sources, mixed = indices[edges.positions].long(), variates.sine != 0.0
    keys = mixed_normal_torch(*variates, sources) if mixed else mixed_uniform_torch(*variates, sources)
    drawable = ~is_excluded_torch(edges.positions, rows.excluded) if len(rows.excluded) else None
    if poisson:
        probability = limits.double() / rows.degrees.double()
        threshold = normal_quantile_torch(probability) if mixed else probability
        threshold = torch.where(limits > 0, threshold, -torch.inf)
        kept = keys <= threshold[edges.row]
        kept = kept if drawable is None else kept & drawable
        chosen, counts = kept.nonzero()[:, 0], edges.count(kept)
        indptr = row_offsets(counts)
    else:
        indptr = row_offsets(torch.minimum(limits, rows.degrees))
        chosen = smallest_in_order(keys, edges, indptr, drawable)
    position = edges.positions[chosen]
    return Drawn(indptr, indices[position], position if positions else None)


def keep_uniform(
    rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, variates: Variates, positions: bool
) -> Drawn:
    """Draw rows by LABOR-0, as `draw_shared` with consecutive rows and int64 [n] `limits`, the fanout of every row."""
    fields = (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded, limits)
    args = (tuple(field.numpy() for field in fields), indices.numpy(), tuple(variates))
    kernel = _keep_below if poisson else _keep_smallest
    indptr, (sources, kept_positions) = keep_edges(
        lambda lo, hi, slot, *out: kernel(lo, hi, slot, *args, *out),
        row_offsets(rows.degrees),
        [indices.dtype, torch.int64 if positions else None],
    )
    assert sources is not None
    return Drawn(indptr, sources, kept_positions)


@compiled
def _keep_below(lo, hi, slot, rows, indices, variates, counts, sources, positions):
    """Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        first, skip, whole = slot, first_excluded[i] if len(excluded) else 0, degrees[i] <= limits[i]
        threshold = 0.0 if whole else _threshold(np.float64(limits[i]) / np.float64(degrees[i]), variates)
        for position in range(starts[i], starts[i] + lengths[i], LANES):
            left = starts[i] + lengths[i] - position
            mask = first_lanes(left) if whole else _below(indices, position, left, variates, threshold)
            if len(excluded):
                mask, skip = without_excluded(mask, position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)
        counts[i] = slot - first


@compiled_inline
def _threshold(probability, variates):
    """Return what variates are compared with.

    Normals are compared with Φ⁻¹(p), uniform variates in whole numbers: r ≤ p if r · 2⁵³ ≤ ⌊p · 2⁵³⌋.
    """
    if variates[3] != 0.0:
        return normal_quantile(probability)
    return np.floor(probability / TWO_TO_MINUS_53) if probability > 0.0 else -1.0


@compiled_inline
def _below(indices, position, count, variates, threshold):
    """Return which of eight sources have variates of at most the threshold."""
    key, next_key, cosine, sine = variates
    if sine == 0.0:
        return hash_below(indices, position, count, key, np.int64(threshold))
    mask = np.uint64(0)
    for b in range(min(count, LANES)):
        below = mixed_normal(key, next_key, cosine, sine, indices[position + b]) <= threshold
        mask |= np.uint64(below) << np.uint64(b)
    return mask


@compiled
def _keep_smallest(lo, hi, slot, rows, indices, variates, counts, sources, positions):
    """Sequential Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    longest = lengths[lo:hi].max() if hi > lo else 0
    most = min(longest, limits[lo:hi].max()) if hi > lo else 0
    keys, masks = np.empty(longest), np.empty(longest // LANES + 1, np.uint8)
    smallest, offsets = np.empty(most), np.empty(most, np.int64)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i], skip = min(degrees[i], limits[i]), first_excluded[i] if len(excluded) else 0
        if degrees[i] > limits[i]:
            _order_row(indices, starts[i], lengths[i], variates, excluded, skip, keys)
            mark_smallest(masks, keys, lengths[i], smallest[: counts[i]], offsets)
        for j in range(0, lengths[i], LANES):
            position, mask = starts[i] + j, np.uint64(masks[j // LANES])
            if degrees[i] <= limits[i]:
                mask, skip = without_excluded(first_lanes(lengths[i] - j), position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)


@compiled_inline
def _order_row(indices, start, length, variates, excluded, skip, keys):
    """Write a number per edge that orders the sources as their variates r do; infinite if excluded."""
    key, next_key, cosine, sine = variates
    for j in range(length):
        source = indices[start + j]
        if sine == 0.0:
            keys[j] = unit_interval(hash_index(key, source))
        else:
            keys[j] = mixed_normal(key, next_key, cosine, sine, source)
    while skip < len(excluded) and excluded[skip] < start + length:
        keys[excluded[skip] - start] = np.inf
        skip += 1

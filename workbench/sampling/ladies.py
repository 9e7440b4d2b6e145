"""LADIES: layer-dependent importance sampling, which draws a fixed number of nodes for a whole layer.

Zou et al.: "Layer-dependent importance sampling for training deep and large graph convolutional networks", NeurIPS
2019.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_choice, check_seed
from workbench.core.graph import Graph
from workbench.core.randomness import Dependence, Purpose, Variates, check_dependence, variates
from workbench.kernels.hash import mixed_exponential_torch
from workbench.kernels.jit import compiled
from workbench.kernels.relabel import invalid_source
from workbench.sampling.labor import apply_edge_weight
from workbench.sampling.labor_importance import BipartiteLayer, bipartite_layer
from workbench.sampling.poisson import WEIGHTS, Levels, check_factors, inverse_weights, keep_edges, prefetch_rows
from workbench.sampling.sampler import MAX_LAYERS, Candidates, Drawn, ExcludingSampler, row_offsets
from workbench.sampling.uniform import draw_uniform_torch


@dataclass(frozen=True, eq=False)
class LadiesSampler(ExcludingSampler):
    """LADIES sampler: draws up to n distinct nodes per layer, and all edges from them to the layer above.

    The candidates are the in-neighbours of all nodes of the layer above. They are drawn one after the other without
    replacement, each with probability proportional to its importance p_t among those that remain, times its factor.
    Nodes of the layer above stay sources of the block, as in every batch, but their edges are kept only if they are
    drawn. If there are at most n candidates, all edges are kept.

    Args:
        num_nodes: nodes to draw per layer, **input layer first**; -1: all.
        importance: p_t. "edges": the number of edges from t to the layer above, as in the data-placement paper's
            implementation; "squared": Σ 1 / d_s² over those edges, d_s the in-edges of the destination: the squared
            norm of the column of the row-normalised adjacency matrix, as in LADIES.
        factors: float32 or float64 [num_nodes], by which p_t is multiplied (`wb.placement.locality_factors`):
            locality-aware sampling; None: 1.
        weights: the blocks' `edge_weight`. "mean", "sum": inverse inclusion probabilities, given the arrival time of
            the first candidate that is not drawn, with which the mean over the edges drawn, or the sum, is an unbiased
            estimate of that over all in-neighbours. "ratio": the same with mean 1 in every row, with less variance and
            a bias. "published": 1 / p_t with mean 1 in every row, LADIES' own, with a bias.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `Smoothed(kappa)` or `Nested(kappa)`: the variates of consecutive batches depend on each other;
            None: independent batches.

    A node's row depends on the other nodes of its layer (`rows_are_independent` is False). The weights are multiplied
    by the graph's `edge_weight`, if it has any.

    Raises:
        ValueError: no layers, a number of nodes that is neither positive nor -1, an unknown importance or weights,
            factors out of range or too many different ones, or a seed that is not a 64-bit integer.
        TypeError: a number of nodes that is not an integer, factors of another type, or another `dependence`.

    Source: Zou et al., "Layer-dependent importance sampling for training deep and large graph convolutional networks",
    NeurIPS 2019; inclusion probabilities: Cohen, Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.

    >>> import torch, workbench as wb
    >>> star = wb.Graph.from_edges([2, 3, 4, 2, 2], [0, 0, 0, 1, 1], num_nodes=5)
    >>> batch = wb.LadiesSampler([1]).sample(star, torch.tensor([0, 1]))
    >>> batch.num_inputs  # the seeds and one node
    3
    """

    num_nodes: Sequence[int]
    _: KW_ONLY
    importance: str = "edges"
    factors: Tensor | None = None
    weights: str = "mean"
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None

    rows_are_independent = False
    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_nodes", _checked_numbers(self.num_nodes))
        check_choice("importance", self.importance, IMPORTANCE)
        check_choice("weights", self.weights, (*WEIGHTS, "published"))
        if self.factors is not None:
            check_factors(self.factors)
        check_seed(self.seed)
        check_dependence(self.dependence)
        _ = self._levels  # computed here, so that the tensor's later changes do not count

    @property
    def num_layers(self) -> int:
        """Number of layers: one per number of nodes."""
        return len(self.num_nodes)

    @cached_property
    def _levels(self) -> Levels | None:
        return None if self.factors is None else Levels.of(self.factors)

    def _draw(self, graph: Graph, rows: Candidates, *, layer: int, step: int) -> Drawn:
        drawn = draw_layer_wise(
            graph.indices,
            rows,
            self.num_nodes[layer],
            num_nodes=graph.num_nodes,
            levels=None if self._levels is None else self._levels.on(graph),
            importance=self.importance,
            weights=self.weights,
            variates=variates(self.seed, Purpose.SAMPLING, step, layer, self.dependence),
        )
        return drawn if graph.edge_weight is None else apply_edge_weight(drawn, graph.edge_weight)


def _checked_numbers(numbers: Sequence[int]) -> tuple[int, ...]:
    try:
        checked = tuple(operator.index(number) for number in numbers)
    except TypeError:
        raise TypeError(
            f"num_nodes is {numbers!r}; pass a list of integers, nodes to draw per layer, input layer first: [512, 512]"
        ) from None
    check_at_least("number of layers", len(checked), 1, most=MAX_LAYERS)
    for number in checked:
        if number != -1:
            check_at_least("num_nodes", number, 1)
    return checked


IMPORTANCE = ("edges", "squared")

_SUM_BITS = 62


def draw_layer_wise(
    indices: Tensor,
    rows: Candidates,
    limit: int,
    *,
    num_nodes: int,
    levels: Levels | None,
    importance: str,
    weights: str,
    variates: Variates,
) -> Drawn:
    """Draw the rows of a layer, each in CSR order, with positions and float32 weights.

    Args:
        limit: n; -1: all.
        levels: factors of the nodes; None: 1.
    """
    on_cpu = indices.device.type == "cpu"
    number, total, keep = (bipartite_layer, _total, _keep) if on_cpu else (_number_torch, total_torch, keep_torch)
    layer = number(rows, indices, num_nodes, positions=True)
    scale = _scale(layer, importance)
    chosen = _choose(layer, total(layer, scale), scale or 1, limit, levels, variates)
    counts, sources, slots = keep(layer, chosen.inverse)
    positions = slots if layer.positions is None else layer.positions[slots]
    weight = _weights(chosen, layer, slots, counts, weights)
    return Drawn(row_offsets(counts), sources, positions, weight)


class _Chosen(NamedTuple):
    """What is drawn of a layer.

    Args:
        inverse: float64 [num_sources], 1 / P(drawn, given τ); 0: not drawn.
        importance: float64 [num_sources], p_t.
    """

    inverse: Tensor
    importance: Tensor


def _scale(layer: BipartiteLayer, importance: str) -> int:
    """Return what 1 / d² is multiplied by before it becomes a whole number; 0: edges count 1 each."""
    bits = _SUM_BITS - int(layer.offsets[-1]).bit_length()
    return 0 if importance == "edges" else 1 << bits


def _choose(
    layer: BipartiteLayer, total: Tensor, scale: int, limit: int, levels: Levels | None, variates: Variates
) -> _Chosen:
    """Run the race of all candidates."""
    numbers = total.nonzero()[:, 0]
    ids = numbers if layer.ids is None else layer.ids[numbers]
    p = total[numbers].double() / scale
    if levels is not None:
        p = p * levels.factors[levels.codes[ids].long()]
    importance = torch.zeros_like(total, dtype=torch.float64)
    importance[numbers] = p
    inverse = torch.zeros_like(importance)
    if limit < 0 or len(ids) <= limit:
        inverse[numbers] = 1.0
        return _Chosen(inverse, importance)
    times = mixed_exponential_torch(*variates, ids) / p
    tau = torch.kthvalue(times, limit + 1).values
    drawn = times < tau
    # expm1 differs in the last bit between devices, and few nodes are drawn
    exponent = -(p[drawn] * tau).cpu()
    inverse[numbers[drawn]] = (-1.0 / torch.expm1(exponent)).to(inverse.device)
    return _Chosen(inverse, importance)


def _weights(chosen: _Chosen, layer: BipartiteLayer, slots: Tensor, counts: Tensor, kind: str) -> Tensor:
    """Weigh the edges kept; the published form takes p_t for the inclusion probability."""
    row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    number = layer.local[slots].long()
    inverse = chosen.inverse[number] if kind != "published" else chosen.importance[number].reciprocal()
    kind = "ratio" if kind == "published" else kind
    totals = _row_sums(inverse, row, counts) if kind == "ratio" else counts.double()
    return inverse_weights(kind, inverse, counts, layer.degrees, totals, row)


def _row_sums(values: Tensor, row: Tensor, counts: Tensor) -> Tensor:
    """Sum positive values per row, float64, as whole multiples of a power of two."""
    if not len(values):
        return counts.double()
    bits = math.frexp(float(values.max()) * int(counts.max()))[1]
    scale = math.ldexp(1.0, _SUM_BITS - bits)
    return torch.zeros_like(counts).index_add_(0, row, (values * scale).long()).double() / scale


def _total(layer: BipartiteLayer, scale: int) -> Tensor:
    """Sum per source, int64 [num_sources], 1 or scale / d² over its edges."""
    total, invalid = torch.zeros(layer.num_sources, dtype=torch.int64), np.full(1, -1)
    _sum_importance(*layer.rows(), scale, total.numpy(), invalid)
    if invalid[0] >= 0:
        raise invalid_source(int(layer.local[invalid[0]]), layer.num_sources)
    return total


@compiled
def _sum_importance(starts, degrees, local, scale, total, invalid):
    for i in range(len(starts)):
        prefetch_rows(i, len(starts), starts, degrees, local)
        term = 1 if scale == 0 else scale // (max(degrees[i], 1) * max(degrees[i], 1))
        for e in range(starts[i], starts[i] + degrees[i]):
            if not 0 <= local[e] < len(total):
                invalid[0] = e
                return
            total[local[e]] += max(term, 1)


def _keep(layer: BipartiteLayer, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of edges kept per row, and of each the raw source and the slot in the layer's arrays."""
    args = (*layer.rows(), layer.raw.numpy(), inverse.numpy())
    indptr, (sources, slots) = keep_edges(
        lambda lo, hi, slot, *out: _keep_drawn(lo, hi, slot, *args, *out), layer.offsets, [layer.raw.dtype, torch.int64]
    )
    assert sources is not None and slots is not None
    return indptr.diff(), sources, slots


@compiled
def _keep_drawn(lo, hi, slot, starts, degrees, local, raw, inverse, counts, sources, slots):
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, degrees, local)
        first = slot
        for e in range(starts[i], starts[i] + degrees[i]):
            if inverse[local[e]] > 0.0:
                sources[slot], slots[slot] = raw[e], e
                slot += 1
        counts[i] = slot - first


def _number_torch(rows: Candidates, indices: Tensor, num_nodes: int, *, positions: bool) -> BipartiteLayer:
    """Number the sources as `bipartite_layer` does, in plain torch for any device."""
    full = draw_uniform_torch(rows, indices, -1, replace=False, key=0, positions=True)
    ids, local = torch.unique(full.sources.long(), return_inverse=True)
    layer = BipartiteLayer.of_csr(full.indptr, local, ids)
    return layer._replace(raw=full.sources, positions=full.positions)


def total_torch(layer: BipartiteLayer, scale: int) -> Tensor:
    """Sum as `_total` does, for consecutive rows, in plain torch; its oracle."""
    terms = torch.full_like(layer.degrees, scale) // layer.degrees.clamp(min=1).square() if scale else layer.degrees * 0
    total = torch.zeros(layer.num_sources, dtype=torch.int64, device=terms.device)
    return total.index_add_(0, layer.local.long(), terms.clamp(min=1).repeat_interleave(layer.degrees))


def keep_torch(layer: BipartiteLayer, inverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keep edges as `_keep` does, for consecutive rows, in plain torch; its oracle."""
    slots = (inverse[layer.local.long()] > 0).nonzero()[:, 0]
    row = torch.repeat_interleave(torch.arange(len(layer.degrees), device=slots.device), layer.degrees)
    return torch.bincount(row[slots], minlength=len(layer.degrees)), layer.raw[slots], slots

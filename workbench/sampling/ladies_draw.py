"""LADIES' choice: the first n candidates of a race for the whole layer, and all edges from them.

A candidate t arrives at time Exp(1) / p_t. Given the arrival time τ of the first candidate that is not drawn, each
drawn one has arrived before τ with probability 1 − exp(−p_t · τ), independently of the others: weights by its inverse
are unbiased, although the draws are without replacement (Cohen, Kaplan: "Summarizing data using bottom-k sketches",
PODC 2007). What is summed per source or row is summed in whole numbers, whose order does not matter.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.jit import compiled
from workbench.kernels.normal import mixed_exponential_torch
from workbench.kernels.relabel import invalid_source
from workbench.sampling.bipartite_layer import BipartiteLayer, bipartite_layer
from workbench.sampling.candidates import Candidates, row_offsets
from workbench.sampling.inverse_weights import inverse_weights
from workbench.sampling.kept_rows import keep_edges, prefetch_rows
from workbench.sampling.levels import Levels
from workbench.sampling.sampler import Drawn
from workbench.sampling.uniform import draw_uniform_torch

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
    """Draw the rows of a layer.

    Args:
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        rows: the candidates, consecutive in `indices`.
        limit: n; -1: all.
        num_nodes: number of nodes of the graph.
        levels: factors of the nodes; None: 1.
        importance: one of `IMPORTANCE`.
        weights: one of `WEIGHTS`, or "published".
        variates: of the sources.

    Returns:
        The drawn rows, each in CSR order, with positions and float32 weights.
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

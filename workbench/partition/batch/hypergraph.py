"""The batch as a hypergraph: its seeds are the vertices, and every node has a net of the seeds that need it.

A node is loaded once for every part that its net touches, so the connectivity objective Σ weight · (parts touched - 1)
is the number of redundant inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import CapacityError, available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.kernels.csr import offsets
from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.kernels.transpose import Transposed, transpose
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch
from workbench.partition.computation_graph import fair_shares
from workbench.partition.metis import mtkahypar

# Mt-KaHyPar's peak on ogbn-arxiv, one hop and two (0.8 and 5.2 million pins in 8 parts): 92 for each further pin.
BYTES_PER_PIN = 100


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Distinct nets over the seeds of a batch, as a CSR.

    Args:
        indptr: int64 [num_nets + 1].
        pins: int32 [num_pins], the seeds of every net, each once.
        weights: int64 [num_nets], the number of nodes that have this net.
    """

    indptr: Tensor
    pins: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class _Nets:
    """The net of every node of a layer: node i's is row `net[i]` of a CSR, which stores equal nets once."""

    indptr: Tensor
    pins: Tensor
    net: Tensor


def batch_hypergraph(mb: MiniBatch, *, hops: int | None = None, max_bytes: int | None = None) -> Hypergraph:
    """Build the hypergraph of a batch, without nets of a single pin, which no partition cuts.

    A node needs itself in the previous layer. Duplicate edges count once.

    Args:
        hops: number of last blocks to include: 1 gives a net per source of the output block; None: all blocks, a net
            per input node.
        max_bytes: memory that the hypergraph and Mt-KaHyPar's work on it may use, checked before allocating; None: the
            memory that the machine has available.
    """
    blocks = mb.blocks if hops is None else mb.blocks[max(0, len(mb.blocks) - hops) :]
    limit = available_bytes() if max_bytes is None else max_bytes
    seeds = torch.arange(mb.num_seeds)
    nets = _Nets(torch.arange(mb.num_seeds + 1), seeds.to(torch.int32), seeds)
    for block in reversed(blocks):
        nets = _extend_one_hop(nets, block.to("cpu"), mb.num_seeds, limit)
    sizes = nets.indptr.diff()
    cuttable, weights = sizes > 1, torch.bincount(nets.net, minlength=len(sizes))
    return Hypergraph(offsets(sizes[cuttable]), nets.pins[cuttable.repeat_interleave(sizes)], weights[cuttable])


def check_memory(num_pins: int, limit: int, extra_bytes: int = 0) -> None:
    """Refuse a hypergraph that needs more memory than the limit to build and partition.

    Raises:
        CapacityError: with both numbers.
    """
    required = num_pins * BYTES_PER_PIN + extra_bytes
    if required > limit:
        raise CapacityError(
            f"the hypergraph has {num_pins:,} pins and requires {format_bytes(required)} to build and partition, more "
            f"than the limit of {format_bytes(limit)}: use method='star_refined' or 'star', a smaller batch or fanout, "
            "or raise max_bytes"
        )


def _extend_one_hop(nets: _Nets, block: Block, num_seeds: int, limit: int) -> _Nets:
    """Union the nets of a block's destinations into the nets of its sources.

    A first kernel hashes every union, so that the second builds each distinct one once.
    """
    columns = transpose(block.indptr, block.indices, block.num_src)
    sizes, keys = torch.empty(block.num_src, dtype=torch.int64), torch.empty(block.num_src, dtype=torch.int64)
    _over_sources(_hash_unions, columns, nets, block, num_seeds, (sizes, keys), block.num_src)
    first, net = _distinct(keys)
    indptr = offsets(sizes[first])
    check_memory(int(indptr[-1]), limit)
    pins = torch.empty(int(indptr[-1]), dtype=torch.int32)
    _over_sources(_fill_unions, columns, nets, block, num_seeds, (first, indptr, pins), len(first))
    return _Nets(indptr, pins, net)


def _over_sources(
    kernel: Any, columns: Transposed, nets: _Nets, block: Block, num_seeds: int, out: Sequence[Tensor], rows: int
) -> None:
    arrays = [t.numpy() for t in (columns.indptr, columns.rows, nets.indptr, nets.pins, nets.net)]
    results = [t.numpy() for t in out]

    def run(lo: int, hi: int) -> None:
        seen = torch.full((num_seeds,), -1, dtype=torch.int64).numpy()
        kernel(*arrays, block.num_dst, seen, *results, lo, hi)

    parallel_rows(run, rows)


def _distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first position of every distinct key, ascending, and the rank of every position's key among them."""
    values, inverse = torch.unique(keys, return_inverse=True)
    first = torch.full((len(values),), len(keys)).scatter_reduce_(0, inverse, torch.arange(len(keys)), "amin")
    first, order = first.sort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    return first, rank[inverse]


@compiled
def _hash_unions(col_indptr, col_rows, net_indptr, pins, net, num_dst, seen, sizes, keys, lo, hi):
    """Size and order-independent hash of the unions of sources [lo, hi); `seen`: the last source with each pin."""
    for source in range(lo, hi):
        size, key = 0, np.uint64(0)
        begin, end = col_indptr[source], col_indptr[source + 1]
        for edge in range(begin - (source < num_dst), end):
            row = source if edge < begin else col_rows[edge]
            for p in range(net_indptr[net[row]], net_indptr[net[row] + 1]):
                if seen[pins[p]] != source:
                    seen[pins[p]] = source
                    size += 1
                    key += mix64(np.uint64(pins[p]) + np.uint64(1))
        sizes[source] = size
        keys[source] = np.int64(key)


@compiled
def _fill_unions(col_indptr, col_rows, net_indptr, pins, net, num_dst, seen, sources, out_indptr, out, lo, hi):
    """Write the unions of sources[lo:hi]."""
    for i in range(lo, hi):
        source, slot = sources[i], out_indptr[i]
        begin, end = col_indptr[source], col_indptr[source + 1]
        for edge in range(begin - (source < num_dst), end):
            row = source if edge < begin else col_rows[edge]
            for p in range(net_indptr[net[row]], net_indptr[net[row] + 1]):
                if seen[pins[p]] != source:
                    seen[pins[p]] = source
                    out[slot] = pins[p]
                    slot += 1


_MANY_PARTS = 128  # from here on the default preset is too slow

# Memory of the default preset per vertex or net, and part. Measured 3, on ogbn-arxiv from 32 to 128 parts.
_BYTES_PER_NODE_AND_PART = 4


def prepare_hypergraph(batch: PreparedBatch) -> Cut:
    """Minimize the redundant sources of the output block: exact for a batch of one layer."""
    return _prepare(batch, 1)


def prepare_hypergraph_deep(batch: PreparedBatch) -> Cut:
    """Minimize the redundant inputs of the batch: exact for any number of layers."""
    return _prepare(batch, None)


def _prepare(batch: PreparedBatch, hops: int | None) -> Cut:
    options, num_seeds = batch.options, batch.mb.num_seeds
    limit = available_bytes() if options.max_bytes is None else options.max_bytes
    hypergraph = batch_hypergraph(batch.host, hops=hops, max_bytes=limit)
    weights = fair_shares(batch.computation_graph)[:num_seeds] if options.weights is None else options.weights

    def cut(num_parts: int) -> Tensor:
        preset = "DEFAULT" if num_parts < _MANY_PARTS else "LARGE_K"
        nodes = num_seeds + len(hypergraph.weights)
        extra_bytes = nodes * num_parts * _BYTES_PER_NODE_AND_PART if preset == "DEFAULT" else 0
        check_memory(len(hypergraph.pins), limit, extra_bytes)
        return mtkahypar(
            hypergraph.indptr,
            hypergraph.pins,
            hypergraph.weights,
            num_seeds,
            num_parts,
            weights=weights,
            seed=options.seed,
            imbalance=options.imbalance,
            preset=preset,
            time_limit_seconds=options.time_budget_seconds,
        )

    return cut

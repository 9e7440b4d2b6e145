"""The batch as a hypergraph: outputs are vertices, and every node has a net of the outputs that need it.

A node is loaded once for every part that its net touches, so the connectivity objective Σ weight · (parts touched − 1)
is the number of inputs that are loaded more than once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.kernels.transpose import Transposed, transpose

# Mt-KaHyPar's peak on ogbn-arxiv, one hop and two (0.8 and 5.2 million pins in 8 parts): 92 for each further pin.
BYTES_PER_PIN = 100


@dataclass(frozen=True, eq=False)
class Nets:
    """Sets of outputs, no two the same, as a CSR.

    Args:
        indptr: int64 [num_nets + 1].
        pins: int32 [num_pins], outputs of every net, each once.
        weights: int64 [num_nets], how many nodes have this net.
    """

    indptr: Tensor
    pins: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class _Reach:
    """The outputs that need each node of a layer: node i's are net `net[i]` of a CSR; equal ones are stored once."""

    indptr: Tensor
    pins: Tensor
    net: Tensor


def batch_nets(mb: MiniBatch, *, hops: int | None = None, max_bytes: int | None = None) -> Nets:
    """The nets of the nodes that a batch's outputs need; those of a single output are left out, as nothing cuts them.

    A node needs itself in the layer before. Duplicate edges count once.

    Args:
        mb: the batch.
        hops: layers to look back from the outputs, as far as there are any: 1 has a net for every source of the output
            block; None: all layers, a net for every input node.
        max_bytes: memory that the nets and Mt-KaHyPar's work on them may take; None: what the machine has left.

    Raises:
        CapacityError: they would take more; these nets have not been built then.
    """
    blocks = mb.blocks if hops is None else mb.blocks[max(0, len(mb.blocks) - hops) :]
    limit = available_bytes() if max_bytes is None else max_bytes
    own = torch.arange(mb.num_seeds)
    reach = _Reach(torch.arange(mb.num_seeds + 1), own.to(torch.int32), own)
    for block in reversed(blocks):
        reach = _one_hop_more(reach, block.to("cpu"), mb.num_seeds, limit)
    return _cuttable(reach)


def _cuttable(reach: _Reach) -> Nets:
    sizes = reach.indptr.diff()
    weights = torch.bincount(reach.net, minlength=len(sizes))
    kept = sizes > 1
    return Nets(_starts(sizes[kept]), reach.pins[kept.repeat_interleave(sizes)], weights[kept])


def _one_hop_more(reach: _Reach, block: Block, num_outputs: int, limit: int) -> _Reach:
    """The outputs that need each source of a block, from those that need each destination."""
    columns = transpose(block.indptr, block.indices, block.num_src)
    sizes, keys = torch.empty(block.num_src, dtype=torch.int64), torch.empty(block.num_src, dtype=torch.int64)
    _over_sources(_measure, columns, reach, block, num_outputs, (sizes, keys))
    first, net = _distinct(keys)
    indptr = _starts(sizes[first])
    check_room(int(indptr[-1]), limit)
    pins = torch.empty(int(indptr[-1]), dtype=torch.int32)
    _over_sources(_fill, columns, reach, block, num_outputs, (first, indptr, pins), len(first))
    return _Reach(indptr, pins, net)


def _over_sources(
    kernel: Any,
    columns: Transposed,
    reach: _Reach,
    block: Block,
    num_outputs: int,
    out: Sequence[Tensor],
    rows: int = -1,
) -> None:
    arrays = [t.numpy() for t in (columns.indptr, columns.rows, reach.indptr, reach.pins, reach.net)]
    results = [t.numpy() for t in out]

    def run(lo: int, hi: int) -> None:
        seen = torch.full((num_outputs,), -1, dtype=torch.int64).numpy()
        kernel(*arrays, block.num_dst, seen, *results, lo, hi)

    parallel_rows(run, block.num_src if rows < 0 else rows)


def _distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The first position of every key, rising, and for every position the rank of its key among these."""
    values, inverse = torch.unique(keys, return_inverse=True)
    first = torch.full((len(values),), len(keys)).scatter_reduce_(0, inverse, torch.arange(len(keys)), "amin")
    first, order = first.sort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    return first, rank[inverse]


def _starts(sizes: Tensor) -> Tensor:
    indptr = torch.zeros(len(sizes) + 1, dtype=torch.int64)
    torch.cumsum(sizes, 0, out=indptr[1:])
    return indptr


def check_room(pins: int, limit: int, more_bytes: int = 0) -> None:
    """Refuse a hypergraph that takes more than `limit` bytes to build and cut, `more_bytes` beside those of its pins.

    Raises:
        CapacityError: with the numbers.
    """
    needed = pins * BYTES_PER_PIN + more_bytes
    if needed > limit:
        raise CapacityError(
            f"the hypergraph has {pins:,} pins and takes {format_bytes(needed)} to build and cut, more than the "
            f"{format_bytes(limit)} it may: use method='star_refined' or 'star', a smaller batch or fanout, or raise "
            "max_bytes"
        )


@compiled
def _measure(col_indptr, col_rows, net_indptr, pins, net, num_dst, seen, sizes, keys, lo, hi):
    """Sizes of the unions of sources [lo, hi), and a sum of hashes that equal sets share; `seen`: pins' last ones."""
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
def _fill(col_indptr, col_rows, net_indptr, pins, net, num_dst, seen, sources, out_indptr, out, lo, hi):
    """The unions of sources[lo:hi]."""
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

"""Fused kernels of the uniform draw on a GPU, in Triton: the hashes of a row's draws, and Floyd's algorithm.

In plain torch the same takes about 60 small kernels per layer, whose intermediates go through memory. CUDA builds of
torch bring Triton. `workbench.kernels.jit.triton_kernels` imports this module for the first draw on a GPU; the torch
form is the oracle, and what runs where Triton is missing.
"""

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

MOST_DRAWS = 64
"""Draws per row at most: each is compared with the earlier ones of its row, which stay in registers."""

_ROWS = 32  # per program


def picks(key: int, nodes: Tensor, degrees: Tensor, count: int, *, replace: bool) -> Tensor:
    """Compute `workbench.sampling.uniform.picks_torch` in one kernel.

    Args:
        key: stream of the layer.
        nodes: int64 [n], which select the rows' streams.
        degrees: int64 [n], edges to draw from; without `replace` more than `count`.
        count: draws per row, 1 to `MOST_DRAWS`.
        replace: draw with replacement.

    Returns:
        int64 [n, count].
    """
    out = torch.empty(len(nodes), count, dtype=torch.int64, device=nodes.device)
    width = 1 << (count - 1).bit_length()
    if len(nodes):
        arrays = out, nodes.contiguous(), degrees.contiguous()
        grid = (triton.cdiv(len(nodes), _ROWS),)
        kernel: Any = _pick_rows
        with torch.cuda.device_of(nodes):  # Triton launches on the current one
            kernel[grid](*arrays, key, len(nodes), count, replace, width, _ROWS)
    return out


@triton.jit
def _hash_index(key, index):
    """Return `workbench.kernels.hash.hash_index` of unsigned 64-bit numbers."""
    word = key + (index + 1) * 0x9E3779B97F4A7C15
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    return word ^ (word >> 31)


@triton.jit
def _below(bits, bound):
    """Return `workbench.kernels.hash.below` of unsigned 64-bit numbers."""
    return ((bits >> 32) * bound + (((bits & 0xFFFFFFFF) * bound) >> 32)) >> 32


@triton.jit
def _pick_rows(
    out,
    nodes,
    degrees,
    key: tl.int64,
    num_rows,
    count,
    replace: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
):
    """Draw for some rows at a time, for all of them draw 0, then draw 1, …"""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    lane, inside = tl.arange(0, width), row < num_rows
    degree = tl.load(degrees + row, mask=inside, other=1)
    node = tl.load(nodes + row, mask=inside, other=0)
    stream = _hash_index(tl.cast(key, tl.uint64), node.to(tl.uint64))
    drawn = tl.full((rows, width), -1, tl.int64)
    for j in range(count):
        bits = _hash_index(stream, tl.full((rows,), 0, tl.uint64) + tl.cast(j, tl.uint64))
        if replace:
            pick = _below(bits, degree.to(tl.uint64)).to(tl.int64)
        else:
            top = degree - count + j
            pick = _below(bits, (top + 1).to(tl.uint64)).to(tl.int64)
            repeated = tl.max((drawn == pick[:, None]).to(tl.int32), 1)
            pick = tl.where(repeated > 0, top, pick)
        drawn = tl.where(lane[None, :] == j, pick[:, None], drawn)
    places = out + row[:, None].to(tl.int64) * count + lane[None, :]
    tl.store(places, drawn, mask=inside[:, None] & (lane < count)[None, :])

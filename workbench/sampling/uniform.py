"""Uniform draws from each row: a subset by Floyd's algorithm, or independent draws with replacement.

Draw j of node v uses variate j of v's stream, so a row depends on the key and v alone.
"""

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from torch import Tensor

from workbench.kernels.buffers import to_device
from workbench.kernels.hash import below, below_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled, compiled_inline, triton_kernels
from workbench.kernels.lane_instructions import broadcast, hash_bits, lowest_bit, pointer_to, prefetch
from workbench.kernels.lanes import LANES, copy
from workbench.kernels.threads import parallel_edges
from workbench.sampling.sampler import (
    Candidates,
    Drawn,
    drawn_offsets,
    draws_with_replacement,
    expand_offsets,
    expanded,
    skip_excluded,
    skip_excluded_torch,
)

_GROUP = 32  # rows whose reads overlap

_WIDE = 1024  # fanout from which the largest degree is computed, to allocate smaller buffers

_NO_POSITIONS, _NEVER = np.empty(0, np.int64), np.empty(0, np.bool_)


def draw_uniform(
    rows: Candidates, indices: Tensor, fanout: int | Tensor, *, replace: bool, key: int, positions: bool
) -> Drawn:
    """Draw each row's edges with equal probability, from the graph's sources by CSR position.

    A fanout is for all rows, or int64 [n]; a row with no more candidates keeps them all, in CSR order; -1: all.
    """
    if rows.positions is not None:
        grouped = rows._replace(positions=None)
        drawn = draw_uniform(grouped, rows.positions, fanout, replace=replace, key=key, positions=False)
        return Drawn(drawn.indptr, indices[drawn.sources], drawn.sources if positions else None)
    if indices.device.type != "cpu":
        return draw_uniform_torch(rows, indices, fanout, replace=replace, key=key, positions=positions)
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    sources = torch.empty(int(indptr.numpy()[-1]), dtype=indices.dtype)
    drawn_positions = torch.empty(sources.numel(), dtype=torch.int64) if positions else None
    replaced = draws_with_replacement(rows.nodes.numel(), fanout, replace).numpy() if replace else _NEVER
    nodes, starts, degrees, offsets = (t.numpy() for t in (rows.nodes, rows.starts, rows.degrees, indptr))
    excluded, first_excluded, by_position = (t.numpy() for t in (rows.excluded, rows.first_excluded, indices))
    row_arrays, width = (nodes, starts, degrees, replaced, offsets), _buffer_width(rows, fanout, replace)
    out = sources.numpy(), _NO_POSITIONS if drawn_positions is None else drawn_positions.numpy()

    def draw(lo: int, hi: int) -> None:
        _draw_rows(lo, hi, row_arrays, excluded, first_excluded, by_position, width, key, *out)

    def copy_whole(lo: int, hi: int) -> None:
        _copy_rows(lo, hi, starts, excluded, first_excluded, by_position, offsets, *out)

    parallel_edges(copy_whole if isinstance(fanout, int) and fanout < 0 else draw, indptr)
    return Drawn(indptr, sources, drawn_positions)


def _buffer_width(rows: Candidates, fanout: int | Tensor, replace: bool) -> int:
    """Return the number of picks per row that buffers need."""
    if isinstance(fanout, int) and 0 < fanout <= _WIDE:
        return fanout
    return max(1, _largest(fanout) if replace else min(_largest(fanout), _largest(rows.degrees)))


def _largest(values: int | Tensor) -> int:
    if isinstance(values, int):
        return values
    return int(values.numpy().max(initial=0))  # torch would wake OpenMP threads, whose spinning slows kernels


@compiled
def _pick_with_replacement(row_key, degree, picks):
    for j in range(len(picks)):
        picks[j] = below(hash_index(row_key, j), degree)


@compiled
def _draw_rows(lo, hi, rows, excluded, first_excluded, indices, width, key, sources, positions):
    """Draw rows [lo, hi); all positions of a group are picked and prefetched before the first is read.

    Each loop does one thing for all rows of a group, because which rows are long and what they draw is unpredictable.
    The loops over edges create no views: each would cost a reference count.
    """
    nodes, starts, degrees, replaced, indptr = rows
    buffer, draws = np.empty(_GROUP * width + TOGETHER, np.int64), np.empty(_GROUP * TOGETHER, np.int32)
    equal, high, order = np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64), np.empty(2 * _GROUP, np.int64)
    table = np.full(1 << (int(np.log2(width)) + 2) if width > SCAN_UP_TO else 1, -1, np.int64)
    used = np.empty(width, np.int64)
    for group in range(lo, hi, _GROUP):
        num_drawn, num_whole = _order_rows(group, min(group + _GROUP, hi), degrees, replaced, indptr, order)
        for r in range(num_whole):
            prefetch(indices, starts[order[_GROUP + r]])
        for r in range(num_drawn if not len(replaced) else 0):
            i = order[r]
            count = indptr[i + 1] - indptr[i]
            if count <= TOGETHER:
                row_key = np.int64(hash_index(key, nodes[i]))
                equal[r], high[r] = draw_together(row_key, degrees[i], count, draws, r * TOGETHER)
        filled = 0
        for r in range(num_drawn):
            i = order[r]
            count, start = indptr[i + 1] - indptr[i], 0 if len(excluded) else starts[i]
            if count <= TOGETHER and not len(replaced):
                pick_together(draws, r * TOGETHER, equal[r], high[r], degrees[i], count, start, buffer, filled)
            else:
                row_key, picks = np.int64(hash_index(key, nodes[i])), buffer[filled : filled + count]
                _pick_singly(row_key, degrees[i], picks, len(replaced) > 0, table, used)
                picks += start
            if len(excluded):
                for j in range(filled, filled + count):
                    buffer[j] = starts[i] + skip_excluded(buffer[j], starts[i], excluded, first_excluded[i])
            for j in range(filled, filled + count):
                prefetch(indices, buffer[j])
            filled += count
        for r in range(num_whole):
            i = order[_GROUP + r]
            first = first_excluded[i] if len(excluded) else 0
            _copy_row(starts[i], first, excluded, indptr[i], indptr[i + 1], indices, sources, positions)
        filled = 0
        for r in range(num_drawn):
            i = order[r]
            offset, count = indptr[i], indptr[i + 1] - indptr[i]
            for j in range(count):
                sources[offset + j] = indices[buffer[filled + j]]
            if len(positions):
                for j in range(count):
                    positions[offset + j] = buffer[filled + j]
            filled += count


@compiled_inline
def _order_rows(lo, hi, degrees, replaced, indptr, order):
    """Write the rows to draw from to the first half of `order`, and those to copy whole to the second half."""
    num_drawn, num_whole = 0, 0
    for i in range(lo, hi):  # without a branch
        whole = degrees[i] == indptr[i + 1] - indptr[i] and not (len(replaced) > 0 and replaced[i] and degrees[i] > 0)
        order[num_drawn], order[_GROUP + num_whole] = i, i
        num_drawn, num_whole = num_drawn + np.int64(not whole), num_whole + np.int64(whole)
    return num_drawn, num_whole


@compiled
def _pick_singly(row_key, degree, picks, replace, table, used):
    if replace:
        _pick_with_replacement(row_key, degree, picks)
    elif len(picks) <= SCAN_UP_TO:
        pick_scanning(row_key, degree, picks)
    else:
        pick_many(row_key, degree, picks, table, used)


@compiled
def _copy_rows(lo, hi, starts, excluded, first_excluded, indices, indptr, sources, positions):
    """Copy rows [lo, hi) whole, for fanout -1: compiled in a seventh of the time of `_draw_rows`."""
    for i in range(lo, hi):
        prefetch(indices, starts[min(i + _GROUP, hi - 1)])
        first = first_excluded[i] if len(excluded) else 0
        _copy_row(starts[i], first, excluded, indptr[i], indptr[i + 1], indices, sources, positions)


@compiled_inline
def _copy_row(start, first, excluded, lo, hi, indices, sources, positions):
    """Copy all edges of a row that are not excluded, from CSR position `start` on, to slots [lo, hi)."""
    if len(excluded) == 0:
        for e in range(lo, hi, LANES):
            copy(indices, start + e - lo, hi - e, sources, e)
        for e in range(lo, hi if len(positions) else lo):
            positions[e] = start + e - lo
        return
    position = start
    for e in range(lo, hi):
        while first < len(excluded) and excluded[first] == position:
            first += 1
            position += 1
        sources[e] = indices[position]
        if len(positions):
            positions[e] = position
        position += 1


_PICKS_AT_A_TIME = 1 << 24  # which bounds the memory for rounds that are computed together


def _picks(key: int, nodes: Tensor, degrees: Tensor, count: int, *, replace: bool) -> Tensor:
    """Compute `picks_torch`, on a GPU with Triton in one kernel."""
    fused = triton_kernels("triton_draws", nodes)
    compute = picks_torch if fused is None or count > fused.MOST_DRAWS else fused.picks
    return compute(key, nodes, degrees, count, replace=replace)


def picks_torch(key: int, nodes: Tensor, degrees: Tensor, count: int, *, replace: bool) -> Tensor:
    """Return int64 [rows, count], the picks of `pick_together` or `_pick_singly`; all rounds are computed together.

    Draw j of Floyd's algorithm is replaced by d - k + j if it was picked before: if it equals an earlier draw, or if it
    is d - k + i, for i < j, and draw i was replaced. Chains of the second kind are followed by doubling.
    """
    rounds = torch.arange(count, device=degrees.device)
    bits = hash_index_torch(hash_index_torch(key, nodes)[:, None], rounds)
    if replace:
        return below_torch(bits, degrees[:, None])
    base = (degrees - count)[:, None]
    top = base + rounds
    draws = below_torch(bits, top + 1)
    if count == 1:
        return draws
    ordered, place = draws.sort(dim=1, stable=True)
    replaced = torch.zeros_like(draws, dtype=torch.bool).scatter_(1, place[:, 1:], ordered[:, 1:] == ordered[:, :-1])
    earlier = draws - base
    earlier = torch.where(earlier < 0, rounds, earlier)
    for _ in range((count - 1).bit_length()):
        replaced, earlier = replaced | replaced.gather(1, earlier), earlier.gather(1, earlier)
    return torch.where(replaced, top, draws)


def draw_uniform_torch(
    rows: Candidates, indices: Tensor, fanout: int | Tensor, *, replace: bool, key: int, positions: bool
) -> Drawn:
    """Draw as `draw_uniform` does, in plain torch for any device; the oracle of the compiled kernel.

    The host waits once, for the numbers of edges and of rows of which a part is drawn (not if all edges are); for
    fanouts by row also for the lengths of such rows.
    """
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    if isinstance(fanout, int) and fanout < 0 and not len(rows.excluded) and rows.num_edges is not None:
        edges = expanded(rows).positions
        return Drawn(indptr, indices[edges], edges if positions else None)
    counts = indptr.diff()
    random = counts < rows.degrees
    if replace:
        random = (rows.degrees > 0) & (to_device(torch.as_tensor(fanout), indices.device) >= 0)
    size, num_random = torch.stack([indptr[-1], random.sum()]).tolist()
    row = expand_offsets(indptr, size)
    pick = torch.arange(size, device=indices.device) - indptr[row]
    partial = torch.nonzero_static(random, size=num_random)[:, 0]
    for count in _row_lengths(fanout, counts[partial]):
        chosen = partial if isinstance(fanout, int) else (random & (counts == count)).nonzero()[:, 0]
        for some in chosen.split(max(1, _PICKS_AT_A_TIME // count)):
            slots = indptr[some][:, None] + torch.arange(count, device=row.device)
            pick[slots] = _picks(key, rows.nodes[some], rows.degrees[some], count, replace=replace)
    if len(rows.excluded):
        edges = skip_excluded_torch(pick, rows.starts[row], rows.excluded, rows.first_excluded[row])
    else:
        edges = pick + rows.starts[row]
    return Drawn(indptr, indices[edges], edges if positions else None)


def _row_lengths(fanout: int | Tensor, counts: Tensor) -> list[int]:
    """Return the lengths of rows of which a part is drawn; of a number, they are the fanout, and no GPU is asked."""
    lengths = [fanout] if isinstance(fanout, int) else torch.unique(counts).tolist()
    return [length for length in lengths if length > 0 and len(counts)]


TOGETHER = 32  # draws of a row at most that are made together, and elements that `pick_together` writes at most

SCAN_UP_TO = 64  # draws up to which comparing with all earlier picks beats a hash table

_LOW_32 = 0xFFFFFFFF

_HALF, _WORD = ir.IntType(32), ir.IntType(64)

_ZERO, _ONE = np.uint64(0), np.uint64(1)


def _joined(builder: Any, parts: list[Any]) -> Any:
    """Concatenate vectors, pairwise."""
    while len(parts) > 1:
        both = ir.VectorType(_HALF, 2 * parts[0].type.count)
        order = ir.Constant(both, list(range(both.count)))
        parts = [builder.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _any(builder: Any, masks: list[Any]) -> Any:
    while len(masks) > 1:
        rest = masks[2 * (len(masks) // 2) :]
        masks = [builder.or_(a, b) for a, b in zip(masks[::2], masks[1::2], strict=False)] + rest
    return masks[0]


def _draw(builder: Any, key: Any, base: Any, first: int) -> Any:
    """Return draws `first` to `first + 7` as 32-bit integers: `kernels.hash.below` of their hashes."""
    index = ir.Constant(ir.VectorType(_WORD, LANES), list(range(first, first + LANES)))
    bits, low = hash_bits(builder, key, index), broadcast(builder, _LOW_32)
    shift = broadcast(builder, 32)
    bound = builder.and_(builder.add(builder.add(broadcast(builder, base), index), broadcast(builder, 1)), low)
    upper = builder.mul(builder.lshr(bits, shift), bound)
    lower = builder.lshr(builder.mul(builder.and_(bits, low), bound), shift)
    return builder.trunc(builder.lshr(builder.add(upper, lower), shift), ir.VectorType(_HALF, LANES))


def _draws(count: int) -> Any:
    """Return an instruction that makes `count` draws.

    It writes them to `out[slot : slot + count]`, and returns two sets of bits: draws that equal an earlier one, and
    draws of at least `base`, which is d - k.
    """

    @intrinsic
    def draws(typing_context, key, base, out, slot):
        def generate(context, builder, signature, args):
            key, base, out, slot = args
            drawn = _joined(builder, [_draw(builder, key, base, first) for first in range(0, count, LANES)])
            pointer = pointer_to(context, builder, signature.args[2], out, slot)
            builder.store(drawn, builder.bitcast(pointer, drawn.type.as_pointer()), align=4)
            none, equal = ir.Constant(drawn.type, [-1] * count), []
            for shift in range(1, count):  # against the draw `shift` before
                order = ir.Constant(drawn.type, [count - shift + lane for lane in range(count)])
                equal.append(builder.icmp_signed("==", drawn, builder.shuffle_vector(none, drawn, order)))
            eight = builder.trunc(broadcast(builder, base), ir.VectorType(_HALF, LANES))
            least = _joined(builder, [eight] * (count // LANES))
            found = [_any(builder, equal), builder.icmp_signed(">=", drawn, least)]
            words = [builder.zext(builder.bitcast(mask, ir.IntType(count)), _WORD) for mask in found]
            return context.make_tuple(builder, signature.return_type, words)

        return types.UniTuple(types.uint64, 2)(types.int64, types.int64, out, types.int64), generate

    return draws


def _writes(count: int) -> Any:
    """Return an instruction that writes `start` plus the picks: `count` draws, or `base + j` for repeated draws j."""

    @intrinsic
    def writes(typing_context, draws, first_draw, repeated, base, start, out, slot):
        def generate(context, builder, signature, args):
            draws, first_draw, repeated, base, start, out, slot = args
            kind, wide = ir.VectorType(_HALF, LANES), ir.VectorType(_WORD, LANES)
            source = pointer_to(context, builder, signature.args[0], draws, first_draw)
            whole = builder.load(builder.bitcast(source, ir.VectorType(_HALF, count).as_pointer()), align=4)
            for first in range(0, count, LANES):
                index = ir.Constant(wide, list(range(first, first + LANES)))
                lanes = ir.Constant(kind, list(range(first, first + LANES)))
                drawn = builder.sext(builder.shuffle_vector(whole, whole, lanes), wide)
                bits = builder.trunc(builder.lshr(repeated, ir.Constant(_WORD, first)), ir.IntType(LANES))
                mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), LANES))
                picks = builder.select(mask, builder.add(broadcast(builder, base), index), drawn)
                place = builder.add(slot, ir.Constant(_WORD, first))
                target = pointer_to(context, builder, signature.args[5], out, place)
                positions = builder.add(picks, broadcast(builder, start))
                builder.store(positions, builder.bitcast(target, wide.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(draws, types.int64, types.uint64, types.int64, types.int64, out, types.int64), generate

    return writes


_draws_8, _draws_16, _draws_32 = _draws(8), _draws(16), _draws(32)

_writes_8, _writes_16, _writes_32 = _writes(8), _writes(16), _writes(32)


@compiled_inline
def draw_together(row_key, degree, count, draws, first):
    """Make `count` draws, at most 32, and write them to int32 `draws[first : first + 32]`.

    Returns:
        Two sets of bits: draws that equal an earlier one, and draws of at least `degree - count`.
    """
    base = degree - count
    if count <= 8:
        return _draws_8(row_key, base, draws, first)
    if count <= 16:
        return _draws_16(row_key, base, draws, first)
    return _draws_32(row_key, base, draws, first)


@compiled_inline
def pick_together(draws, first, equal, high, degree, count, start, out, slot):
    """Write `start` plus the picks to `out[slot : slot + count]`; up to 32 elements change.

    Args:
        draws: int32, of `draw_together`, from `first` on.
        equal: first set that it returned.
        high: second set.
        out: int64.
    """
    base, within = degree - count, (_ONE << np.uint64(count)) - _ONE
    repeated, rest = equal & within, high & within
    while rest != _ZERO:
        j = lowest_bit(rest)
        rest &= rest - _ONE
        repeated |= ((repeated >> np.uint64(draws[first + j] - base)) & _ONE) << np.uint64(j)
    if count <= 8:
        _writes_8(draws, first, repeated, base, start, out, slot)
    elif count <= 16:
        _writes_16(draws, first, repeated, base, start, out, slot)
    else:
        _writes_32(draws, first, repeated, base, start, out, slot)


@compiled
def pick_scanning(row_key, degree, picks):
    """Pick with a linear scan for repetitions."""
    for j in range(len(picks)):
        top = degree - len(picks) + j
        pick = below(hash_index(row_key, j), top + 1)
        repeated = False
        for earlier in range(j):  # no early exit: the loop is vectorized, and a repetition is rare
            repeated |= picks[earlier] == pick
        picks[j] = top if repeated else pick


@compiled
def pick_many(row_key, degree, picks, table, used):
    """Pick with a hash table for repetitions; `table` is empty before and after."""
    for j in range(len(picks)):
        top = degree - len(picks) + j
        pick = below(hash_index(row_key, j), top + 1)
        if not _insert(table, used, j, pick):
            pick = top
            _insert(table, used, j, top)
        picks[j] = pick
    for j in range(len(picks)):
        table[used[j]] = -1


@compiled
def _insert(table, used, count, pick):
    """Insert `pick` into the open-addressing table; return False if it was present."""
    slot = np.int64(hash_index(0, pick)) & (len(table) - 1)
    while table[slot] >= 0:
        if table[slot] == pick:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = pick
    used[count] = slot
    return True

"""Floyd's subset sampling: k distinct numbers below d, each subset of k equally likely.

For j = 0, …, k - 1, draw t_j uniformly from 0, …, d - k + j and pick t_j, or d - k + j if t_j has been picked already.
Draw j is the j-th variate of the row's stream.

Up to 32 draws are made together, in vector instructions. Draw j is repeated if t_j equals an earlier t_i (whatever
became of draw i, t_i is picked by then), or if it equals what an earlier repeated draw picked instead, d - k + i.

R. W. Floyd, in: Bentley, "Programming pearls: a sample of brilliance", CACM 30(9), 1987.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from workbench.kernels.bits import lowest_bit
from workbench.kernels.hash import below, hash_index
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lane_instructions import LANES, broadcast, hash_bits, pointer_to

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
        first: of the row.
        equal: first set that it returned.
        high: second set.
        degree: d.
        count: k.
        start: added to the picks.
        out: int64.
        slot: of the first pick.
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

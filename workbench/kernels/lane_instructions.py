"""Instructions of the processor that numba has no name for: bits of a word, prefetches, and lanes of eight elements."""

from typing import Any

from llvmlite import ir
from llvmlite.binding import llvm_version_info
from numba.core import cgutils, types
from numba.extending import intrinsic

from workbench.kernels.hash import _GAMMA, _MIX_1, _MIX_2, TWO_TO_MINUS_53, _signed
from workbench.kernels.jit import compiled_inline


@intrinsic
def _popcount(typing_context, word):
    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate


@intrinsic
def _lowest_bit(typing_context, word):
    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.int64(types.uint64), generate


@compiled_inline
def popcount(word):
    """Count the bits of a uint64 that are set."""
    return _popcount(word)  # pyright: ignore[reportCallIssue]


@compiled_inline
def lowest_bit(word):
    """Return the index of the lowest bit of a uint64 that is set; 64 if none is."""
    return _lowest_bit(word)  # pyright: ignore[reportCallIssue]


_CACHE_LINE = 64

_MAX_BYTES_AHEAD = 12288

_MAX_ROWS_AHEAD = 32


@intrinsic
def _prefetch(typing_context, address):
    """Prefetch the cache line at `address`; never faults."""

    def generate(context, builder, signature, args):
        number = context.cast(builder, args[0], signature.args[0], types.intp)
        pointer = builder.inttoptr(number, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        call = builder.module.declare_intrinsic("llvm.prefetch", (pointer.type,), kind)
        builder.call(call, [pointer, flag(0), flag(3), flag(1)])  # read access, keep in all cache levels, data cache
        return context.get_dummy_value()

    return types.void(address), generate


@compiled_inline
def prefetch_row(array, row):
    """Prefetch all of `array[row]`."""
    start = array.ctypes.data + row * array.strides[0]
    for address in range(start, start + array.strides[0], _CACHE_LINE):
        _prefetch(address)  # pyright: ignore[reportCallIssue]


@compiled_inline
def prefetch_columns(array, row, lo, hi):
    """Prefetch `array[row, lo:hi]`."""
    start = array.ctypes.data + row * array.strides[0]
    for address in range(start + lo * array.itemsize, start + hi * array.itemsize, _CACHE_LINE):
        _prefetch(address)  # pyright: ignore[reportCallIssue]


@compiled_inline
def rows_ahead(row_bytes):
    """Return the prefetch distance in rows: far enough to hide the latency, few enough for the L1 cache (measured)."""
    return max(1, min(_MAX_ROWS_AHEAD, _MAX_BYTES_AHEAD // max(1, row_bytes)))


@compiled_inline
def prefetch(array, index):
    """Prefetch `array[index]` of a vector."""
    _prefetch(array.ctypes.data + index * array.strides[0])  # pyright: ignore[reportCallIssue]


LANES = 8

_BIT, _BYTE, _HALF, _WORD, _REAL = (*(ir.IntType(bits) for bits in (1, LANES, 32, 64)), ir.DoubleType())

_BITS, _HALVES, _WORDS, _REALS = (ir.VectorType(kind, LANES) for kind in (_BIT, _HALF, _WORD, _REAL))

_POINTERS = ir.VectorType(ir.PointerType(), LANES)


# Compressing stores are microcode on AMD's Zen 4, over 100 cycles each: LABOR spent two thirds of its time there.
# Compressing in a register and a masked store are fast everywhere.
_HAS_COMPRESS = llvm_version_info >= (20, 0, 0)


def broadcast(builder: Any, value: Any) -> Any:
    """Return a vector whose elements are all equal to a 64-bit value, a Python integer or a Python float."""
    if isinstance(value, float):
        return ir.Constant(_REALS, [value] * LANES)
    if isinstance(value, int):
        return ir.Constant(_WORDS, [_signed(value)] * LANES)
    empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(_HALF, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(_HALVES, [0] * LANES))


def pointer_to(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _load(context: Any, builder: Any, kind: Any, array: Any, index: Any, mask: Any) -> Any:
    """Read the elements from `array[index]` on that a mask selects; the others are 0, and their memory is not read."""
    vector = ir.VectorType(context.get_data_type(kind.dtype), LANES)
    pointer = pointer_to(context, builder, kind, array, index)
    signature = ir.FunctionType(vector, [pointer.type, _HALF, _BITS, vector])
    load = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.load.{_suffix(kind)}.p0")
    zeros = ir.Constant(vector, [0] * LANES)
    return builder.call(load, [pointer, ir.Constant(_HALF, kind.dtype.bitwidth // 8), mask, zeros])


def _store(context: Any, builder: Any, kind: Any, values: Any, array: Any, index: Any, mask: Any) -> None:
    """Write the elements that a mask selects to `array[index]` on; the memory of the others is not touched."""
    pointer = pointer_to(context, builder, kind, array, index)
    signature = ir.FunctionType(ir.VoidType(), [values.type, pointer.type, _HALF, _BITS])
    store = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.store.{_suffix(kind)}.p0")
    builder.call(store, [values, pointer, ir.Constant(_HALF, kind.dtype.bitwidth // 8), mask])


def _load_ids(context: Any, builder: Any, kind: Any, array: Any, index: Any, mask: Any) -> Any:
    ids = _load(context, builder, kind, array, index, mask)
    return ids if kind.dtype.bitwidth == 64 else builder.sext(ids, _WORDS)


def _suffix(kind: Any) -> str:
    return f"v{LANES}{'f' if isinstance(kind.dtype, types.Float) else 'i'}{kind.dtype.bitwidth}"


def _present(builder: Any, count: Any) -> Any:
    """Return the mask of the first `count` lanes."""
    return builder.icmp_signed("<", ir.Constant(_WORDS, list(range(LANES))), broadcast(builder, count))


def _as_integer(builder: Any, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, _BYTE), _WORD)


def hash_bits(builder: Any, key: Any, index: Any) -> Any:
    """Compute `kernels.hash.hash_index` of eight 64-bit words."""

    def mixed(word: Any, shift: int, factor: int) -> Any:
        word = builder.xor(word, builder.lshr(word, broadcast(builder, shift)))
        return builder.mul(word, broadcast(builder, factor))

    steps = builder.mul(builder.add(index, broadcast(builder, 1)), broadcast(builder, _GAMMA))
    word = mixed(mixed(builder.add(broadcast(builder, key), steps), 30, _MIX_1), 27, _MIX_2)
    return builder.xor(word, builder.lshr(word, broadcast(builder, 31)))


def _hash(builder: Any, key: Any, index: Any) -> Any:
    """Compute the upper 53 bits of the hashes."""
    return builder.lshr(hash_bits(builder, key, index), broadcast(builder, 11))


@intrinsic
def hash_below(typing_context, array, index, count, key, threshold):
    def generate(context, builder, signature, args):
        array, index, count, key, threshold = args
        present = _present(builder, count)
        ids = _load_ids(context, builder, signature.args[0], array, index, present)
        below = builder.icmp_signed("<=", _hash(builder, key, ids), broadcast(builder, threshold))
        return _as_integer(builder, builder.and_(below, present))

    return types.uint64(array, types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def hash_units(typing_context, array, index, count, key, out, slot):
    def generate(context, builder, signature, args):
        array, index, count, key, out, slot = args
        ids = _load_ids(context, builder, signature.args[0], array, index, _present(builder, count))
        units = builder.fmul(builder.uitofp(_hash(builder, key, ids), _REALS), broadcast(builder, TWO_TO_MINUS_53))
        pointer = builder.bitcast(pointer_to(context, builder, signature.args[4], out, slot), _REALS.as_pointer())
        builder.store(units, pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64, out, types.int64), generate


@intrinsic
def gather(typing_context, table, array, index, count, out, slot):
    def generate(context, builder, signature, args):
        table, array, index, count, out, slot = args
        present = _present(builder, count)
        offsets = builder.shl(
            _load_ids(context, builder, signature.args[1], array, index, present), broadcast(builder, 3)
        )
        start = builder.ptrtoint(context.make_array(signature.args[0])(context, builder, table).data, _WORD)
        pointers = builder.inttoptr(builder.add(broadcast(builder, start), offsets), _POINTERS)
        kind = ir.FunctionType(_REALS, [_POINTERS, _HALF, _BITS, _REALS])
        gather = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.gather.v{LANES}f64.v{LANES}p0")
        values = builder.call(gather, [pointers, ir.Constant(_HALF, 8), present, broadcast(builder, 0.0)])
        pointer = builder.bitcast(pointer_to(context, builder, signature.args[4], out, slot), _REALS.as_pointer())
        builder.store(values, pointer, align=8)
        return context.get_dummy_value()

    return types.void(table, array, types.int64, types.int64, out, types.int64), generate


@intrinsic
def multiply(typing_context, array, index, other, factor):
    def generate(context, builder, signature, args):
        array, index, other, factor = args
        kind, vector = signature.args[0], _REALS.as_pointer()
        pointers = [builder.bitcast(pointer_to(context, builder, kind, a, index), vector) for a in (array, other)]
        first, second = (builder.load(pointer, align=8) for pointer in pointers)
        builder.store(builder.fmul(builder.fmul(first, second), broadcast(builder, factor)), pointers[0], align=8)
        return context.get_dummy_value()

    return types.void(array, types.int64, other, types.float64), generate


@intrinsic
def at_most_one(typing_context, array, index, count):
    def generate(context, builder, signature, args):
        array, index, count = args
        present = _present(builder, count)
        values = _load(context, builder, signature.args[0], array, index, present)
        few = builder.fcmp_ordered("<=", values, broadcast(builder, 1.0))
        return _as_integer(builder, builder.and_(few, present))

    return types.uint64(array, types.int64, types.int64), generate


@intrinsic
def clamped_sum(typing_context, array, blocks, factor, scale):
    result = types.UniTuple(types.int64, 2)

    def generate(context, builder, signature, args):
        array, blocks, factor, scale = args
        total = cgutils.alloca_once_value(builder, ir.Constant(_WORDS, [0] * LANES))
        small = cgutils.alloca_once_value(builder, ir.Constant(_WORD, 0))
        with cgutils.for_range(builder, blocks) as loop:
            index = builder.mul(loop.index, ir.Constant(_WORD, LANES))
            pointer = pointer_to(context, builder, signature.args[0], array, index)
            values = builder.load(builder.bitcast(pointer, _REALS.as_pointer()), align=8)
            products = builder.fmul(values, broadcast(builder, factor))
            clamped = builder.fcmp_ordered("<=", products, broadcast(builder, 1.0))
            terms = builder.select(clamped, broadcast(builder, 1.0), products)
            whole = builder.fptosi(builder.fmul(terms, broadcast(builder, scale)), _WORDS)
            builder.store(builder.add(builder.load(total), whole), total)
            count = builder.zext(builder.ctpop(builder.bitcast(clamped, _BYTE)), _WORD)
            builder.store(builder.add(builder.load(small), count), small)
        lanes = builder.load(total)
        summed = ir.Constant(_WORD, 0)
        for lane in range(LANES):
            summed = builder.add(summed, builder.extract_element(lanes, ir.Constant(_HALF, lane)))
        return context.make_tuple(builder, signature.return_type, [summed, builder.load(small)])

    return result(array, types.int64, types.float64, types.float64), generate


@intrinsic
def compress(typing_context, array, index, mask, out, slot):
    def generate(context, builder, signature, args):
        array, index, mask, out, slot = args
        selected = builder.bitcast(builder.trunc(mask, _BYTE), _BITS)
        values = _load(context, builder, signature.args[0], array, index, selected)
        suffix = _suffix(signature.args[0])
        if _HAS_COMPRESS:
            name = f"llvm.experimental.vector.compress.{suffix}"
            kind = ir.FunctionType(values.type, [values.type, _BITS, values.type])
            together = cgutils.get_or_insert_function(builder.module, kind, name)
            packed = builder.call(together, [values, selected, ir.Constant(values.type, ir.Undefined)])
            _store(context, builder, signature.args[3], packed, out, slot, _present(builder, builder.ctpop(mask)))
        else:
            pointer = pointer_to(context, builder, signature.args[3], out, slot)
            kind = ir.FunctionType(ir.VoidType(), [values.type, pointer.type, _BITS])
            name = f"llvm.masked.compressstore.{suffix}"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [values, pointer, selected])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64, out, types.int64), generate


@intrinsic
def copy(typing_context, array, index, count, out, slot):
    def generate(context, builder, signature, args):
        array, index, count, out, slot = args
        present = _present(builder, count)
        values = _load(context, builder, signature.args[0], array, index, present)
        _store(context, builder, signature.args[3], values, out, slot, present)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, out, types.int64), generate

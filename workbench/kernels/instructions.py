"""Bit operations on 64-bit words, each one instruction of the processor."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

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

"""Software prefetch, so that cache misses of random reads overlap."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from workbench.kernels.jit import compiled_inline

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

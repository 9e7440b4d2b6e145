"""Ask the processor for what lies at random places before it is needed: reads then overlap, not wait in turn."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from workbench.kernels.jit import compiled

_CACHE_LINE = 64
_AHEAD_BYTES = 12288
_MOST_AHEAD = 32


@intrinsic
def _prefetch(typing_context, address):
    """Hint that `address` will be read; never faults."""

    def generate(context, builder, signature, args):
        number = context.cast(builder, args[0], signature.args[0], types.intp)
        pointer = builder.inttoptr(number, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        call = builder.module.declare_intrinsic("llvm.prefetch", (pointer.type,), kind)
        builder.call(call, [pointer, flag(0), flag(3), flag(1)])  # for reading, keep in all caches, data
        return context.get_dummy_value()

    return types.void(address), generate


@compiled
def prefetch_row(array, row):
    """Hint that all of `array[row]` will be read."""
    start = array.ctypes.data + row * array.strides[0]
    for address in range(start, start + array.strides[0], _CACHE_LINE):
        _prefetch(address)  # pyright: ignore[reportCallIssue]


@compiled
def prefetch_columns(array, row, lo, hi):
    """Hint that `array[row, lo:hi]` will be read."""
    start = array.ctypes.data + row * array.strides[0]
    for address in range(start + lo * array.itemsize, start + hi * array.itemsize, _CACHE_LINE):
        _prefetch(address)  # pyright: ignore[reportCallIssue]


@compiled
def rows_ahead(row_bytes):
    """How many rows ahead to ask: enough to hide the latency, few enough to stay in the first cache (measured)."""
    return max(1, min(_MOST_AHEAD, _AHEAD_BYTES // max(1, row_bytes)))


@compiled
def prefetch(array, index):
    """Hint that `array[index]` of a vector will be read."""
    _prefetch(array.ctypes.data + index * array.strides[0])  # pyright: ignore[reportCallIssue]

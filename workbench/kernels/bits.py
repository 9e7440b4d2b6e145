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

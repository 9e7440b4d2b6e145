"""Bit counts of 64-bit words, each one instruction of the processor."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def popcount(typing_context, word):
    """Count the bits that are set."""

    def generate(context, builder, signature, args):
        return builder.ctpop(context.cast(builder, args[0], signature.args[0], types.uint64))

    return types.int64(word), generate


@intrinsic
def lowest_bit(typing_context, word):
    """Return the index of the lowest bit that is set; 64 if none is."""

    def generate(context, builder, signature, args):
        number = context.cast(builder, args[0], signature.args[0], types.uint64)
        return builder.cttz(number, ir.IntType(1)(0))

    return types.int64(word), generate

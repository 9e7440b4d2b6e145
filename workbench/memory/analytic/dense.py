"""What operations on whole tensors hold: linear layers, activations, norms, dropout."""

from collections.abc import Mapping, Sequence

from torch import nn

from workbench.kernels.mask import CHANNELS_PER_WORD, ROW_WORD_BYTES
from workbench.kernels.segment import MESSAGE_BYTES
from workbench.memory.analytic.tape import Shadow, Tape

NORMS: tuple[type[nn.Module], ...] = (nn.Identity, nn.BatchNorm1d, nn.LayerNorm)
SAVE_RESULT: tuple[type[nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.Sigmoid)
SAVE_INPUT: tuple[type[nn.Module], ...] = (nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU)
"""Activations by what they keep for the backward pass; no others are known."""


def parameters_of(tape: Tape, module: nn.Module, *, accumulating: bool) -> dict[int, Shadow]:
    """Shadows of a module's parameters by the identity of the parameter."""
    return {
        id(p): tape.parameter(p.shape, p.element_size(), accumulating=accumulating)
        for p in module.parameters()
        if p.requires_grad
    }


def linear(tape: Tape, x: Shadow, out_dim: int, weight: Shadow | None, bias: Shadow | None = None) -> Shadow:
    """`x @ weight + bias`: the input is saved for the weight's gradient. A weight that is frozen is None."""
    out = tape.new(x.rows, out_dim, x.itemsize)
    rows, cols, wants = x.rows, x.cols, x.source is not None

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        for_x = tape.new(rows, cols, grad.itemsize) if wants else None
        for_weight = None if weight is None else tape.new(cols, grad.cols, grad.itemsize)
        for_bias = None if bias is None else tape.new(grad.cols, 1, grad.itemsize)
        return for_x, for_weight, for_bias

    tape.record([out], [x, weight, bias], backward, saves=[] if weight is None else [x])
    return out


def linear_and_own(
    tape: Tape, x: Shadow, num_dst: int, out_dim: int, weight: Shadow | None, bias: Shadow | None = None
) -> tuple[Shadow, Shadow]:
    """`workbench.nn.own.linear_and_own`: the own rows share the room of `x`, their gradient that of its gradient."""
    out, own = tape.new(x.rows, out_dim, x.itemsize), x.view(num_dst, is_view=True).detached()
    rows, cols, itemsize, wants = x.rows, x.cols, x.itemsize, x.source is not None

    def backward(grad: Shadow | None, _own: Shadow | None = None) -> Sequence[Shadow | None]:
        if grad is None or grad.itemsize != itemsize:
            grad = tape.new(rows, out_dim, itemsize)
        for_x = tape.new(rows, cols, itemsize) if wants else None
        for_weight = None if weight is None else tape.new(cols, out_dim, itemsize)
        return for_x, for_weight, None if bias is None else tape.new(out_dim, 1, itemsize)

    tape.record([out, own] if wants else [out], [x, weight, bias], backward, saves=[x])
    return out, own


def cast(tape: Tape, x: Shadow, itemsize: int) -> Shadow:
    """The tensor in another precision: a copy, or itself."""
    if x.itemsize == itemsize:
        return x
    out, before = tape.new(x.rows, x.cols, itemsize), x.itemsize
    tape.record([out], [x], lambda grad: [tape.new(grad.rows, grad.cols, before)])
    return out


def add(tape: Tape, a: Shadow, b: Shadow) -> Shadow:
    out = tape.like(a)
    tape.record([out], [a, b], lambda grad: [grad.detached(), grad.detached()])
    return out


def add_bias(tape: Tape, x: Shadow, bias: nn.Parameter | None, parameters: Mapping[int, Shadow]) -> Shadow:
    """`x + bias`, whether the bias learns or not; `x` itself without one."""
    if bias is None:
        return x
    out = tape.like(x)
    learned = parameters.get(id(bias))

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        return grad, None if learned is None else tape.new(grad.cols, 1, grad.itemsize)

    tape.record([out], [x, learned], backward)
    return out


def scale(tape: Tape, x: Shadow, factor: Shadow | None = None) -> Shadow:
    """`x` times one number, or one a row; a factor that is learned needs `x` again."""
    out = tape.like(x)
    learned = factor is not None and factor.source is not None

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        for_x = tape.like(grad)
        if not learned:
            return for_x, None
        tape.touch(grad.nbytes)
        return for_x, tape.new(1, 1, grad.itemsize)

    tape.record([out], [x, factor], backward, saves=[x, factor] if learned else [factor])
    return out


def activate(tape: Tape, x: Shadow, module: nn.Module) -> Shadow:
    """An activation of `SAVE_RESULT` or `SAVE_INPUT`."""
    out = tape.like(x)
    tape.record([out], [x], lambda grad: [tape.like(grad)], saves=[out if type(module) in SAVE_RESULT else x])
    return out


def normalise(tape: Tape, x: Shadow, module: nn.Module, parameters: Mapping[int, Shadow]) -> Shadow:
    """LayerNorm and BatchNorm save their input and its statistics."""
    if isinstance(module, nn.Identity):
        return x
    out, channels = tape.like(x), x.cols
    count = x.rows if isinstance(module, nn.LayerNorm) else channels
    statistics = [tape.new(count, 1, x.itemsize) for _ in range(2)]
    weight, bias = (parameters.get(id(p)) for p in (module.weight, module.bias))

    def backward(grad: Shadow) -> Sequence[Shadow | None]:
        return tape.like(grad), tape.new(channels, 1, grad.itemsize), tape.new(channels, 1, grad.itemsize)

    tape.record([out], [x, weight, bias], backward, saves=[x, *statistics])
    return out


def dropout(tape: Tape, x: Shadow) -> Shadow:
    """`workbench.nn.dropout.HashDropout`: saves ids, which are the batch's own."""
    out = _masked(tape, x)
    tape.record([out], [x], lambda grad: [_masked(tape, grad)])
    return out


def _masked(tape: Tape, x: Shadow) -> Shadow:
    """The compiled form makes the result alone; the torch form hashes a range of rows at a time."""
    out = tape.like(x)
    if tape.on_cuda or x.itemsize < 4:
        words = -(-x.cols // CHANNELS_PER_WORD)
        rows = min(x.rows, max(1, MESSAGE_BYTES // (ROW_WORD_BYTES * words)))
        bits = tape.ledger.hold(rows * words * 8, tape.term)
        tape.touch(2 * rows * words * CHANNELS_PER_WORD * 8)
        del bits
    return out

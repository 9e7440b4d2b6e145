"""Dense operations on fake tensors: linear layers, activations, normalisation, dropout."""

from collections.abc import Mapping, Sequence

from torch import nn

from workbench.kernels.mask import CHANNELS_PER_WORD, ROW_WORD_BYTES
from workbench.kernels.segment import MESSAGE_BYTES
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor

NORMS: tuple[type[nn.Module], ...] = (nn.Identity, nn.BatchNorm1d, nn.LayerNorm)
SAVE_RESULT: tuple[type[nn.Module], ...] = (nn.ReLU, nn.Tanh, nn.Sigmoid)
SAVE_INPUT: tuple[type[nn.Module], ...] = (nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU)
"""The supported activations, by the tensor that they save for the backward pass."""


def parameters_of(autograd: FakeAutograd, module: nn.Module, *, accumulating: bool) -> dict[int, FakeTensor]:
    """Fake tensors for a module's trainable parameters, keyed by the `id` of the parameter."""
    return {
        id(p): autograd.parameter(p.shape, p.element_size(), accumulating=accumulating)
        for p in module.parameters()
        if p.requires_grad
    }


def linear(
    autograd: FakeAutograd, x: FakeTensor, out_dim: int, weight: FakeTensor | None, bias: FakeTensor | None = None
) -> FakeTensor:
    """`x @ weight + bias`: saves the input for the weight's gradient. Pass None for a frozen weight."""
    out = autograd.empty(x.rows, out_dim, x.itemsize)
    rows, cols, needs_grad = x.rows, x.cols, x.requires_grad

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_x = autograd.empty(rows, cols, grad.itemsize) if needs_grad else None
        for_weight = None if weight is None else autograd.empty(cols, grad.cols, grad.itemsize)
        for_bias = None if bias is None else autograd.empty(grad.cols, 1, grad.itemsize)
        return for_x, for_weight, for_bias

    autograd.record([out], [x, weight, bias], backward, saves=[] if weight is None else [x])
    return out


def linear_with_self(
    autograd: FakeAutograd,
    x: FakeTensor,
    num_dst: int,
    out_dim: int,
    weight: FakeTensor | None,
    bias: FakeTensor | None = None,
) -> tuple[FakeTensor, FakeTensor]:
    """A linear layer that also returns the destinations' rows of its input, as `workbench.nn.linear_with_self` does.

    The returned rows share the storage of `x`, and their gradient shares the storage of its gradient.
    """
    out, h_self = autograd.empty(x.rows, out_dim, x.itemsize), x.view(num_dst, is_view=True).detach()
    rows, cols, itemsize, needs_grad = x.rows, x.cols, x.itemsize, x.requires_grad

    def backward(grad: FakeTensor | None, _h_self_grad: FakeTensor | None = None) -> Sequence[FakeTensor | None]:
        if grad is None or grad.itemsize != itemsize:
            grad = autograd.empty(rows, out_dim, itemsize)
        for_x = autograd.empty(rows, cols, itemsize) if needs_grad else None
        for_weight = None if weight is None else autograd.empty(cols, out_dim, itemsize)
        return for_x, for_weight, None if bias is None else autograd.empty(out_dim, 1, itemsize)

    autograd.record([out, h_self] if needs_grad else [out], [x, weight, bias], backward, saves=[x, weight])
    return out, h_self


def cast(autograd: FakeAutograd, x: FakeTensor, itemsize: int) -> FakeTensor:
    """Convert to another precision: a copy, or the tensor itself where the precision is the same."""
    if x.itemsize == itemsize:
        return x
    out, original = autograd.empty(x.rows, x.cols, itemsize), x.itemsize
    autograd.record([out], [x], lambda grad: [autograd.empty(grad.rows, grad.cols, original)])
    return out


def add(autograd: FakeAutograd, a: FakeTensor, b: FakeTensor) -> FakeTensor:
    """`a + b`; both gradients share the storage of the result's gradient."""
    out = autograd.empty_like(a)
    autograd.record([out], [a, b], lambda grad: [grad.detach(), grad.detach()])
    return out


def add_in_place(autograd: FakeAutograd, a: FakeTensor, b: FakeTensor) -> FakeTensor:
    """`a + b` in the memory of `a`; both gradients share the storage of the result's gradient."""
    out = a.view().detach()
    autograd.record([out], [a, b], lambda grad: [grad.detach(), grad.detach()])
    return out


def add_bias(
    autograd: FakeAutograd, x: FakeTensor, bias: nn.Parameter | None, parameters: Mapping[int, FakeTensor]
) -> FakeTensor:
    """`x + bias`, trainable or frozen; `x` itself if `bias` is None."""
    if bias is None:
        return x
    out = autograd.empty_like(x)
    learned = parameters.get(id(bias))

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return grad, None if learned is None else autograd.empty(grad.cols, 1, grad.itemsize)

    autograd.record([out], [x, learned], backward)
    return out


def scale(autograd: FakeAutograd, x: FakeTensor, factor: FakeTensor | None = None) -> FakeTensor:
    """`x` times a scalar or one factor per row; a trainable factor saves `x` for its gradient."""
    out = autograd.empty_like(x)
    learned = factor is not None and factor.requires_grad

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_x = autograd.empty_like(grad)
        if not learned:
            return for_x, None
        autograd.allocate_temporary(grad.nbytes)
        return for_x, autograd.empty(1, 1, grad.itemsize)

    autograd.record([out], [x, factor], backward, saves=[x, factor] if learned else [factor])
    return out


def activate(autograd: FakeAutograd, x: FakeTensor, module: nn.Module) -> FakeTensor:
    """Apply an activation of `SAVE_RESULT` or `SAVE_INPUT`."""
    out = autograd.empty_like(x)
    autograd.record(
        [out], [x], lambda grad: [autograd.empty_like(grad)], saves=[out if type(module) in SAVE_RESULT else x]
    )
    return out


def normalise(
    autograd: FakeAutograd, x: FakeTensor, module: nn.Module, parameters: Mapping[int, FakeTensor]
) -> FakeTensor:
    """Apply LayerNorm or BatchNorm, which save their input and its statistics."""
    if isinstance(module, nn.Identity):
        return x
    out, channels = autograd.empty_like(x), x.cols
    count = x.rows if isinstance(module, nn.LayerNorm) else channels
    statistics = [autograd.empty(count, 1, x.itemsize) for _ in range(2)]
    weight, bias = (parameters.get(id(p)) for p in (module.weight, module.bias))

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        return (
            autograd.empty_like(grad),
            autograd.empty(channels, 1, grad.itemsize),
            autograd.empty(channels, 1, grad.itemsize),
        )

    autograd.record([out], [x, weight, bias], backward, saves=[x, *statistics])
    return out


def dropout(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    """Apply `workbench.nn.dropout.HashDropout`, which saves node ids that the batch contains already."""
    out = _masked(autograd, x)
    autograd.record([out], [x], lambda grad: [_masked(autograd, grad)])
    return out


def _masked(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    """The compiled form allocates only the result; the torch form also hashes one range of rows at a time."""
    out = autograd.empty_like(x)
    allocate_mask_workspace(autograd, x)
    return out


def allocate_mask_workspace(autograd: FakeAutograd, x: FakeTensor) -> None:
    """Allocate and free what `workbench.kernels.mask.apply_mask` needs besides its result."""
    if autograd.on_cuda or x.itemsize < 4:
        words = -(-x.cols // CHANNELS_PER_WORD)
        rows = min(x.rows, max(1, MESSAGE_BYTES // (ROW_WORD_BYTES * words)))
        bits = autograd.allocator.allocate(rows * words * 8, autograd.term)
        autograd.allocate_temporary(2 * rows * words * CHANNELS_PER_WORD * 8)
        del bits

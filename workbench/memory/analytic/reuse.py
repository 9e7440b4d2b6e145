"""The layers of `workbench.nn.reuse` on fake tensors: buffers that outlive the step, and what is allocated besides."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeBlock, FakeTensor
from workbench.memory.analytic.layers import allocate_mask_workspace, edge_weight, message_chunk, normalise
from workbench.nn.linear_with_self import multiplies_first
from workbench.nn.reuse.layers import ReusingGCNLayer, ReusingGINLayer, ReusingSAGELayer
from workbench.nn.reuse.workspace import capacity


def take(autograd: FakeAutograd, name: Any, rows: int, cols: int, itemsize: int, term: str) -> FakeTensor:
    """`Workspace.take`: the buffer of a name, allocated anew if it is too small."""
    nbytes, buffers = capacity(rows * cols) * itemsize, autograd.buffers
    if name not in buffers or buffers[name].nbytes < nbytes:
        buffers.pop(name, None)
        buffers[name] = autograd.allocator.allocate(nbytes, term)
    return FakeTensor(buffers[name], rows, cols, itemsize)


def keep_buffers(autograd: FakeAutograd, earlier: FakeAutograd) -> None:
    """Allocate the buffers that an earlier step has left behind."""
    allocate = autograd.allocator.allocate
    autograd.buffers = {name: allocate(buffer.nbytes, buffer.term) for name, buffer in earlier.buffers.items()}


def _owns(autograd: FakeAutograd, x: FakeTensor) -> bool:
    return any(x.storage is buffer for buffer in autograd.buffers.values())


def _result(autograd: FakeAutograd, layer: Any, rows: int, cols: int, itemsize: int, name: str) -> FakeTensor:
    if name == "output" and layer.is_last:
        return autograd.empty(rows, cols, itemsize)
    return take(autograd, (name, layer.position), rows, cols, itemsize, "hidden")


def _aggregate_linear(
    autograd: FakeAutograd,
    layer: Any,
    block: FakeBlock,
    h: FakeTensor,
    weights: Sequence[FakeTensor | None],
    shape: tuple[int, int],
    *,
    in_mlp: bool = False,
) -> FakeTensor:
    """`AggregateLinear`; weights are W, b and W_self, None for those without a gradient; `in_mlp` is GIN's."""
    sizes, itemsize, (in_dim, out_dim) = block.sizes, h.itemsize, shape
    dims = sizes.num_src, sizes.num_dst, in_dim, out_dim
    first = not in_mlp and multiplies_first(*dims, compiled=not autograd.on_cuda)
    if not in_mlp:
        take(autograd, ("scale", layer.position), sizes.num_dst, 1, itemsize, "aggregator")
    out = _result(autograd, layer, sizes.num_dst, out_dim, itemsize, "hidden" if in_mlp else "output")
    width = out_dim if first else in_dim
    if first:
        take(autograd, "product", sizes.num_src, out_dim, itemsize, "aggregator")
    else:
        take(autograd, ("aggregate", layer.position), sizes.num_dst, in_dim, itemsize, "aggregator")
    _edges(autograd, block, width, itemsize, transposed=False)
    needs_grad, is_buffer, position = h.requires_grad, _owns(autograd, h), layer.position
    needed = [weight is not None for weight in weights]

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_h = _input_gradient(autograd, sizes.num_src, in_dim, itemsize, position, is_buffer) if needs_grad else None
        if first or needs_grad:
            take(autograd, "product", sizes.num_src if first else sizes.num_dst, width, itemsize, "workspace")
            _edges(autograd, block, width, itemsize, transposed=True, is_scaled=not in_mlp)
        shapes = ((in_dim, out_dim), (out_dim, 1), (in_dim, out_dim))
        return for_h, *(autograd.empty(*s, itemsize) if n else None for s, n in zip(shapes, needed, strict=True))

    autograd.record([out], [h, *weights], backward, saves=[h])
    return out


def _input_gradient(
    autograd: FakeAutograd, rows: int, cols: int, itemsize: int, position: int, is_buffer: bool
) -> FakeTensor:
    if not is_buffer:
        return autograd.empty(rows, cols, itemsize)
    return take(autograd, f"gradient {position % 2}", rows, cols, itemsize, "workspace")


def _edges(
    autograd: FakeAutograd, block: FakeBlock, width: int, itemsize: int, *, transposed: bool, is_scaled: bool = False
) -> None:
    """What a sum over the edges needs besides its result: the transposed edges, or messages and destinations."""
    sizes = block.sizes
    weight = edge_weight(autograd, sizes, itemsize)
    if autograd.sums_in_torch:
        for name in ("edges", "destinations"):
            take(autograd, name, sizes.num_edges, 1, 8, "blocks")
        rows = message_chunk(sizes.num_edges, width * itemsize)
        take(autograd, "messages", rows, width, itemsize, "aggregator")
        autograd.allocate_temporary(rows * itemsize * (transposed and is_scaled))
    elif transposed and not autograd.on_cuda:
        take(autograd, "transposed offsets", sizes.num_src + 2, 1, 8, "blocks")
        take(autograd, "transposed rows", sizes.num_edges, 1, sizes.index_bytes, "blocks")
        take(autograd, "transposed edges", 0 if weight is None else sizes.num_edges, 1, 8, "blocks")


def simulate_sage(autograd: FakeAutograd, layer: ReusingSAGELayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`ReusingSAGELayer`."""
    own = getattr(layer, "fc_self", None)
    bias = layer.bias if own is None else own.bias
    used = (layer.fc_neigh.weight, bias, None if own is None else own.weight)
    weights = [autograd.leaf(parameter) for parameter in used]
    return _aggregate_linear(autograd, layer, block, h, weights, (layer.in_dim, layer.out_dim))


def simulate_gcn(autograd: FakeAutograd, layer: ReusingGCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`ReusingGCNLayer`."""
    weights = [autograd.leaf(layer.weight), autograd.leaf(layer.bias), None]
    return _aggregate_linear(autograd, layer, block, h, weights, (layer.in_dim, layer.out_dim))


def simulate_gin(autograd: FakeAutograd, layer: ReusingGINLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`ReusingGINLayer`."""
    modules: list[Any] = list(layer.mlp)
    first, *norms, _, last = modules
    weights = [autograd.leaf(first.weight), autograd.leaf(first.bias), None]
    hidden = _aggregate_linear(autograd, layer, block, h, weights, (first.in_features, first.out_features), in_mlp=True)
    for norm in norms:
        hidden = normalise(autograd, hidden, norm)
    return _linear(autograd, layer, last, relu(autograd, hidden))


def _linear(autograd: FakeAutograd, layer: Any, module: nn.Linear, h: FakeTensor) -> FakeTensor:
    weight, bias = autograd.leaf(module.weight), autograd.leaf(module.bias)
    rows, cols, itemsize, is_buffer = h.rows, h.cols, h.itemsize, _owns(autograd, h)
    out = _result(autograd, layer, rows, module.out_features, itemsize, "output")
    needed, needs_grad = (weight is not None, bias is not None), h.requires_grad

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_h = None
        if needs_grad and is_buffer:
            for_h = take(autograd, "hidden gradient", rows, cols, itemsize, "workspace")
        elif needs_grad:
            for_h = autograd.empty(rows, cols, itemsize)
        for_weight = autograd.empty(cols, grad.cols, itemsize) if needed[0] else None
        return for_h, for_weight, autograd.empty(grad.cols, 1, itemsize) if needed[1] else None

    autograd.record([out], [h, weight, bias], backward, saves=[h])
    return out


def relu(autograd: FakeAutograd, h: FakeTensor) -> FakeTensor:
    """`ReusingReLU`."""
    out = h.detach()
    autograd.record([out], [h], lambda grad: [_masked_gradient(autograd, grad)], saves=[h])
    return out


def dropout(autograd: FakeAutograd, h: FakeTensor) -> FakeTensor:
    """`ReusingDropout`; the torch form hashes one range of rows at a time."""
    out = h.detach()
    allocate_mask_workspace(autograd, h)

    def backward(grad: FakeTensor) -> Sequence[FakeTensor | None]:
        for_h = _masked_gradient(autograd, grad)
        allocate_mask_workspace(autograd, grad)
        return [for_h]

    autograd.record([out], [h], backward)
    return out


def _masked_gradient(autograd: FakeAutograd, grad: FakeTensor) -> FakeTensor:
    if _owns(autograd, grad):
        return grad.detach()
    return take(autograd, "masked gradient", grad.rows, grad.cols, grad.itemsize, "workspace")

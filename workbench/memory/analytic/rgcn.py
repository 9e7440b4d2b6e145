"""R-GCN on fake tensors: degrees per relation, sums over typed edges, and the layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from workbench.memory.analytic.aggregation import compute_itemsize, message_chunk
from workbench.memory.analytic.dense import add, add_bias, cast, linear, linear_with_self
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.fake_block import FakeBlock
from workbench.nn.rgcn import RGCNLayer

Parameters = Mapping[int, FakeTensor]


@dataclass(frozen=True)
class EdgeCosts:
    """What the torch forms allocate per edge, in elements; a chunk of edges is sized by one of these numbers.

    Args:
        elements: allocated per edge by a sum, in either direction, or by the gradient of the parameters.
        sum_row: elements that size the chunks of a sum.
        gradient_row: elements that size the chunks of the gradient.
        transposed_copy: elements of the parameters that the compiled gradient of x copies, transposed.
    """

    elements: int
    sum_row: int
    gradient_row: int
    transposed_copy: int = 0


def _basis_costs(bases: int, width: int) -> EdgeCosts:
    wide = bases * width
    return EdgeCosts(wide + width + bases, wide, wide + width)


def _block_costs(layer: RGCNLayer) -> EdgeCosts:
    matrices = layer.in_dim * layer.out_dim // layer.num_bases
    elements = matrices + layer.in_dim + layer.out_dim
    return EdgeCosts(elements, matrices, matrices, transposed_copy=layer.num_relations * matrices)


def simulate_rgcn(
    autograd: FakeAutograd, layer: RGCNLayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> FakeTensor:
    """`workbench.nn.rgcn.RGCNLayer`."""
    factors = _edge_factors(autograd, layer, block)
    sum_relations = _sum_bases if layer.regularizer == "basis" else _sum_blocks
    out, h_dst = sum_relations(autograd, layer, parameters, block, h, factors)
    if layer.loop_weight is not None:
        loop = linear(autograd, h_dst, layer.out_dim, parameters.get(id(layer.loop_weight)))
        out = add(autograd, out, loop)
        del loop
    return add_bias(autograd, out, layer.h_bias, parameters)


def _sum_bases(
    autograd: FakeAutograd,
    layer: RGCNLayer,
    parameters: Parameters,
    block: FakeBlock,
    h: FakeTensor,
    factors: FakeTensor | None,
) -> tuple[FakeTensor, FakeTensor]:
    bases, sizes = layer.num_bases, block.sizes
    weights, coefficients = (_leaf(parameters, layer.linear_r[name]) for name in ("W", "coeff"))
    if layer.out_dim >= layer.in_dim:
        costs = _basis_costs(bases, layer.in_dim)
        sums, h_dst = _typed_sum(autograd, block, h, coefficients, factors, bases * layer.in_dim, costs)
        return linear(autograd, sums, layer.out_dim, weights if weights.requires_grad else None), h_dst
    directions = _transposed_bases(autograd, layer, weights)
    projected, h_dst = linear_with_self(autograd, h, sizes.num_dst, bases * layer.out_dim, directions)
    costs = _basis_costs(bases, layer.out_dim)
    return _typed_sum(autograd, block, projected, coefficients, factors, layer.out_dim, costs)[0], h_dst


def _transposed_bases(autograd: FakeAutograd, layer: RGCNLayer, weights: FakeTensor) -> FakeTensor:
    """A copy of the bases, [bases · out_dim, in_dim]; the parameter's gradient is a copy too: it has other strides."""
    out, shape = autograd.empty(layer.num_bases * layer.out_dim, layer.in_dim, weights.itemsize), weights.rows
    autograd.record([out], [weights], lambda grad: [grad.view(shape, weights.cols, is_view=True)])
    return out


def _sum_blocks(
    autograd: FakeAutograd,
    layer: RGCNLayer,
    parameters: Parameters,
    block: FakeBlock,
    h: FakeTensor,
    factors: FakeTensor | None,
) -> tuple[FakeTensor, FakeTensor]:
    matrices = _leaf(parameters, layer.linear_r["W"])
    return _typed_sum(autograd, block, h, matrices, factors, layer.out_dim, _block_costs(layer))


def _leaf(parameters: Parameters, parameter: nn.Parameter) -> FakeTensor:
    """A parameter, which requires no gradient if it is frozen."""
    rows = len(parameter)
    return parameters.get(id(parameter)) or FakeTensor(None, rows, parameter.numel() // rows, parameter.element_size())


def _edge_factors(autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock) -> FakeTensor | None:
    """Normalization times edge weight; weights that the block has already are no allocation."""
    sizes = block.sizes
    if layer.norm == "none":
        return None if sizes.weight_bytes is None else FakeTensor(None, sizes.num_edges, 1, sizes.weight_bytes)
    inverse = _inverse_degrees(autograd, layer, block)
    return inverse if sizes.weight_bytes is None else autograd.empty(sizes.num_edges, 1, max(4, sizes.weight_bytes))


def _inverse_degrees(autograd: FakeAutograd, layer: RGCNLayer, block: FakeBlock) -> FakeTensor:
    num_edges = block.sizes.num_edges
    if layer.norm == "right":
        degrees = block.degrees()
        block.derive_destinations()
        out = autograd.empty(num_edges, 1, degrees.itemsize)
        del degrees
        return out
    if autograd.on_cuda:
        block.derive_destinations()
        copies = [autograd.empty(num_edges, 1, 8) for _ in range(_UNIQUE_COPIES)]
        del copies
    return autograd.empty(num_edges, 1, 4)


_UNIQUE_COPIES = 6  # of the edges' groups while torch.unique sorts and numbers them


def _typed_sum(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    parameters: FakeTensor,
    factors: FakeTensor | None,
    out_cols: int,
    costs: EdgeCosts,
) -> tuple[FakeTensor, FakeTensor]:
    """`workbench.kernels.typed_sum.typed_sum_with_self`; edge weights that need a gradient are not supported."""
    original, itemsize = x.itemsize, compute_itemsize(x.itemsize)
    x, parameters = cast(autograd, x, itemsize), cast(autograd, parameters, itemsize)
    out, h_self = _sum_with_self(autograd, block, x, parameters, factors, out_cols, costs)
    return cast(autograd, out, original), cast(autograd, h_self, original)


def _sum_with_self(
    autograd: FakeAutograd,
    block: FakeBlock,
    x: FakeTensor,
    parameters: FakeTensor,
    factors: FakeTensor | None,
    out_cols: int,
    costs: EdgeCosts,
) -> tuple[FakeTensor, FakeTensor]:
    sizes, cols, itemsize = block.sizes, x.cols, x.itemsize
    needs_x, shape = x.requires_grad, (parameters.rows, parameters.cols) if parameters.requires_grad else None
    out = _sum_edges(autograd, block, sizes.num_dst, out_cols, itemsize, costs)
    h_self = x.view(sizes.num_dst, is_view=True).detach()
    if needs_x:
        block.expect_transposed()

    def backward(grad: FakeTensor | None, self_grad: FakeTensor | None = None) -> Sequence[FakeTensor | None]:
        for_x = for_parameters = None
        if needs_x:
            if not autograd.on_cuda:
                block.derive_transposed()
            copy = None if autograd.on_cuda else autograd.empty(costs.transposed_copy, 1, itemsize)
            for_x = _sum_edges(autograd, block, sizes.num_src, cols, itemsize, costs)
            del copy
        if shape is not None:
            for_parameters = autograd.empty(*shape, itemsize)
            _edge_temporaries(autograd, sizes.num_edges, costs.elements, costs.gradient_row, itemsize)
        return for_x, for_parameters

    outputs = [out, h_self] if needs_x else [out]
    autograd.record(outputs, [x, parameters], backward, saves=[x, parameters, factors])
    return out, h_self


def _sum_edges(
    autograd: FakeAutograd, block: FakeBlock, rows: int, cols: int, itemsize: int, costs: EdgeCosts
) -> FakeTensor:
    out = autograd.empty(rows, cols, itemsize)
    if autograd.on_cuda:
        block.derive_destinations()
    _edge_temporaries(autograd, block.sizes.num_edges, costs.elements, costs.sum_row, itemsize)
    return out


def _edge_temporaries(autograd: FakeAutograd, num_edges: int, elements: int, row: int, itemsize: int) -> None:
    """Allocate and free what the torch forms need for one chunk of edges; the compiled forms need nothing."""
    if autograd.on_cuda:
        autograd.allocate_temporary(message_chunk(num_edges, row * itemsize) * elements * itemsize)

"""`simulate_step`: a training step on fake tensors, whose layers allocate and free in the order of the real ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from workbench.kernels.dropout_mask import drop_threshold
from workbench.kernels.gather import MAX_SERIAL
from workbench.memory.analytic import reuse
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeBlock, FakeTensor, Storage
from workbench.memory.analytic.layers import (
    SimulateLoss,
    activate,
    add,
    add_bias,
    dropout,
    edge_attention,
    edge_weight,
    kept_label_bytes,
    last_states,
    linear,
    linear_with_self,
    normalise,
    scale,
    segment_max,
    segment_sum_with_self,
    simulate_rgcn,
)
from workbench.memory.estimate import BatchSizes, MemoryEstimate
from workbench.memory.training_setup import Backend, OptimizerMemory
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.nn.dropout import HashDropout
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN
from workbench.nn.linear_with_self import multiplies_first
from workbench.nn.reuse.layers import ReusingGCNLayer, ReusingGINLayer, ReusingSAGELayer
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGELayer

SimulateLayer = Callable[[FakeAutograd, Any, FakeBlock, FakeTensor], FakeTensor]

SimulateUpdate = Callable[[FakeAutograd, Any, FakeTensor, FakeTensor], FakeTensor]


def _linear(autograd: FakeAutograd, x: FakeTensor, module: nn.Linear) -> FakeTensor:
    weight, bias = autograd.leaf(module.weight), autograd.leaf(module.bias)
    return linear(autograd, x, module.out_features, weight, bias)


def _linear_with_self(
    autograd: FakeAutograd, x: FakeTensor, num_dst: int, module: nn.Linear
) -> tuple[FakeTensor, FakeTensor]:
    weight, bias = autograd.leaf(module.weight), autograd.leaf(module.bias)
    return linear_with_self(autograd, x, num_dst, module.out_features, weight, bias)


def simulate_sage(autograd: FakeAutograd, layer: SAGELayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`workbench.nn.sage.SAGELayer`."""
    if layer.is_linear and _multiplies_first(autograd, layer, block):
        narrow, h_dst = _linear_with_self(autograd, h, block.sizes.num_dst, layer.fc_neigh)
        return _add_self(autograd, layer, h_dst, _sage_aggregate(autograd, layer, block, narrow)[0])
    aggregated, h_dst = _sage_aggregate(autograd, layer, block, h)
    return _update_sage(autograd, layer, h_dst, aggregated)


def _update_sage(autograd: FakeAutograd, layer: SAGELayer, h_dst: FakeTensor, aggregated: FakeTensor) -> FakeTensor:
    return _add_self(autograd, layer, h_dst, _linear(autograd, aggregated, layer.fc_neigh))


def _multiplies_first(autograd: FakeAutograd, layer: SAGELayer | GCNLayer, block: FakeBlock) -> bool:
    sizes = block.sizes.num_src, block.sizes.num_dst, layer.in_dim, layer.out_dim
    return multiplies_first(*sizes, compiled=not autograd.on_cuda)


def _sage_aggregate(
    autograd: FakeAutograd, layer: SAGELayer, block: FakeBlock, h: FakeTensor
) -> tuple[FakeTensor, FakeTensor]:
    num_dst = block.sizes.num_dst
    if layer.aggregator == "lstm":
        weights = [autograd.leaf(p) for p in layer.lstm.parameters()]
        return last_states(autograd, block, h, layer.lstm, weights), _slice(autograd, h, num_dst)
    if layer.aggregator == "pool":
        pooled, h_self = _linear_with_self(autograd, h, num_dst, layer.fc_pool)
        if block.sizes.weight_bytes is None:
            return _relu_in_place(autograd, segment_max(autograd, block, pooled)), h_self
        return segment_max(autograd, block, _relu_in_place(autograd, pooled)), h_self
    if layer.aggregator == "mean":
        return segment_sum_with_self(autograd, block, h, scale=block.degrees())
    share = block.degrees(plus_one=True)
    total, h_self = segment_sum_with_self(autograd, block, h, scale=share)
    return add(autograd, total, scale(autograd, h_self, share)), h_self


def _slice(autograd: FakeAutograd, x: FakeTensor, rows: int | None = None, cols: int | None = None) -> FakeTensor:
    """The first rows or columns, a view whose gradient is padded to the shape of `x`."""
    out, shape = x.view(rows, cols, is_view=True).detach(), (x.rows, x.cols, x.itemsize)
    autograd.record([out], [x], lambda grad: [autograd.empty(*shape)])
    return out


def _relu_in_place(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    out = x.detach()
    autograd.record([out], [x], lambda grad: [autograd.empty_like(grad)], saves=[out])
    return out


def _add_self(autograd: FakeAutograd, layer: SAGELayer, h_dst: FakeTensor, neighbours: FakeTensor) -> FakeTensor:
    if layer.aggregator != "gcn":
        return add(autograd, _linear(autograd, h_dst, layer.fc_self), neighbours, in_place=True)
    return add_bias(autograd, neighbours, layer.bias)


def simulate_gcn(autograd: FakeAutograd, layer: GCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`workbench.nn.gcn.GCNLayer`."""
    if _multiplies_first(autograd, layer, block):
        aggregated = _gcn_aggregate(
            autograd, layer, block, linear(autograd, h, layer.out_dim, autograd.leaf(layer.weight))
        )
        return add_bias(autograd, aggregated, layer.bias)
    return _update_gcn(autograd, layer, h, _gcn_aggregate(autograd, layer, block, h))


def _update_gcn(autograd: FakeAutograd, layer: GCNLayer, _h_dst: FakeTensor, aggregated: FakeTensor) -> FakeTensor:
    out = linear(autograd, aggregated, layer.out_dim, autograd.leaf(layer.weight))
    return add_bias(autograd, out, layer.bias)


def _gcn_aggregate(autograd: FakeAutograd, layer: GCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    degrees = None if layer.norm == "none" else block.degrees()
    if layer.norm == "both":
        h = scale(autograd, h, block.out_degrees())
    return segment_sum_with_self(autograd, block, h, scale=degrees)[0]


def simulate_gin(autograd: FakeAutograd, layer: GINLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`workbench.nn.gin.GINLayer`."""
    aggregated, h_dst = segment_sum_with_self(autograd, block, h)
    return _update_gin(autograd, layer, h_dst, aggregated)


def _update_gin(autograd: FakeAutograd, layer: GINLayer, h_dst: FakeTensor, aggregated: FakeTensor) -> FakeTensor:
    mlp_input = add(autograd, scale(autograd, h_dst, autograd.leaf(layer.eps)), aggregated)
    h = mlp_input  # which stays alive until the end, as the argument of `layer.mlp` does
    for module in layer.mlp:
        if isinstance(module, nn.Linear):
            h = _linear(autograd, h, module)
        elif isinstance(module, nn.ReLU):
            h = activate(autograd, h, module)
        else:
            h = normalise(autograd, h, module)
    return h


def simulate_gat(autograd: FakeAutograd, layer: GATLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    """`workbench.nn.gat.GATLayer`."""
    heads, width = layer.heads, layer.heads * layer.head_dim
    values = _linear(autograd, h, layer.fc)
    left, right = _scores(autograd, layer, h, block.sizes.num_dst)
    edges = _with_self_edges(autograd, block) if layer.self_attention else block
    attention = edge_attention(autograd, edges, left, right)
    if edges is not block and attention.requires_grad:
        autograd.layer_blocks.append(edges)
    if edges.sizes.weight_bytes is not None:
        converts = edges.sizes.weight_bytes != h.itemsize
        attention = scale(
            autograd, attention, autograd.empty(edges.sizes.num_edges, 1, h.itemsize) if converts else None
        )
    out = segment_sum_with_self(autograd, edges, values, weight=attention)[0]
    out = add_bias(autograd, out, layer.bias)
    return out if layer.concat else _mean_of_heads(autograd, out, heads, width)


def _with_self_edges(autograd: FakeAutograd, block: FakeBlock) -> FakeBlock:
    """A block of its own; weights of 1 are added to those of the edges."""
    sizes, allocate = block.sizes, autograd.allocator.allocate
    num_edges, weight_bytes = sizes.num_edges + sizes.num_dst, sizes.weight_bytes or 0
    arrays = [allocate(8 * (sizes.num_dst + 1), "blocks")]
    own, given = autograd.empty(sizes.num_dst, 1, 8), autograd.empty(num_edges, 1, 1)
    arrays += [allocate(num_edges * width, "blocks") for width in (sizes.index_bytes, weight_bytes)]
    del own, given
    larger = replace(sizes, num_edges=num_edges, degree_counts=None, is_row_prefix=False)
    return replace(FakeBlock.of_batch(autograd, [larger])[0], arrays=arrays)


def _scores(autograd: FakeAutograd, layer: GATLayer, h: FakeTensor, num_dst: int) -> tuple[FakeTensor, FakeTensor]:
    """Attention scores of sources and destinations: column slices of one product, each gradient padded to all of it."""
    directions = _directions(autograd, layer, h.itemsize)
    scores = linear(autograd, h, 2 * layer.heads, directions)
    left, right = (_slice(autograd, scores, cols=layer.heads) for _ in range(2))
    return left, _slice(autograd, right, num_dst)


def _directions(autograd: FakeAutograd, layer: GATLayer, itemsize: int) -> FakeTensor:
    """The product of the weight matrix and the attention vectors; gradients have the sizes of the parameters."""
    weights = (layer.fc.weight, layer.attn_l, layer.attn_r)
    out = autograd.empty(layer.in_dim, 2 * layer.heads, itemsize)

    def backward(grad: FakeTensor) -> list[FakeTensor | None]:
        grads = (autograd.empty(p.shape[0], p.numel() // p.shape[0], itemsize) for p in weights)
        return [grad.view(is_view=True) for grad in grads]  # of W per head, of both vectors concatenated

    autograd.record([out], [autograd.leaf(p) for p in weights], backward)
    return out


def _mean_of_heads(autograd: FakeAutograd, x: FakeTensor, heads: int, width: int) -> FakeTensor:
    out = autograd.empty(x.rows, width // heads, x.itemsize)
    autograd.record([out], [x], lambda grad: [autograd.empty(grad.rows, width, grad.itemsize)])
    return out


LAYERS: Mapping[type[nn.Module], SimulateLayer] = MappingProxyType(
    {
        SAGELayer: simulate_sage,
        GCNLayer: simulate_gcn,
        GINLayer: simulate_gin,
        GATLayer: simulate_gat,
        RGCNLayer: simulate_rgcn,
        ReusingSAGELayer: reuse.simulate_sage,
        ReusingGCNLayer: reuse.simulate_gcn,
        ReusingGINLayer: reuse.simulate_gin,
    }
)
"""Layer types that the analytic model supports, with their simulation."""

UPDATES: Mapping[type[nn.Module], SimulateUpdate] = MappingProxyType(
    {
        SAGELayer: _update_sage,
        GCNLayer: _update_gcn,
        GINLayer: _update_gin,
        ReusingSAGELayer: _update_sage,
        ReusingGCNLayer: _update_gcn,
        ReusingGINLayer: _update_gin,
    }
)
"""The same for `update(h_dst, aggregated)` of layers with a linear aggregate."""


def simulate_step(
    model: GNN,
    sizes: BatchSizes,
    optimizer: OptimizerMemory,
    backend: Backend,
    simulate_loss: SimulateLoss,
    *,
    batch_seeds: int = 0,
    accumulating: bool = False,
    recover: bool = False,
    aggregate_on_read: bool = False,
) -> MemoryEstimate:
    """Estimate the memory of `workbench.train_step` for one micro-batch.

    Args:
        accumulating: gradients of earlier micro-batches exist.
        recover: the step uses OOM recovery, which computes the micro-batch's gradients separately.
        aggregate_on_read: the first layer's aggregate is computed from the features
            (`workbench.training.AggregateOnRead`).
    """
    autograd = FakeAutograd(backend)
    allocator = autograd.allocator
    fixed = _allocate_fixed(autograd, model, optimizer)
    if model.workspace is not None:  # earlier steps have allocated the buffers that this one needs
        rehearsal = FakeAutograd(backend)
        rehearsal.add_leaves(model, accumulating=False)
        _micro_batch(rehearsal, model, sizes, simulate_loss, aggregate_on_read)
        reuse.keep_buffers(autograd, rehearsal)
    seeds = max(batch_seeds, sizes.num_seeds)
    allocator.start_phase("step")  # labels are read before gradients are zeroed
    labels = allocator.allocate(kept_label_bytes(simulate_loss, seeds, on_cuda=autograd.on_cuda), "labels")
    total_loss = allocator.allocate(1, "loss")
    backups = []
    if recover and accumulating:
        backups += [allocator.allocate(p.nbytes, "gradients") for p in model.parameters() if p.requires_grad]
    if recover:  # buffers are copied before features are fetched
        backups += [allocator.allocate(buffer.nbytes, "workspace") for buffer in model.buffers()]
    allocator.start_phase("forward")
    autograd.add_leaves(model, accumulating=accumulating and not recover)
    _micro_batch(autograd, model, sizes, simulate_loss, aggregate_on_read)
    backups.clear()
    del labels
    allocator.start_phase("step")
    autograd.term = "workspace"
    backup_bytes = optimizer.backup_bytes if recover and not autograd.on_cuda else 0  # the copy is on the host
    backup = allocator.allocate(backup_bytes, autograd.term)
    autograd.allocate_temporary(optimizer.step_bytes)
    del total_loss, backup
    return MemoryEstimate(
        terms=allocator.terms_at_peak,
        phase_bytes=allocator.peaks,
        fixed_bytes=sum(storage.nbytes for storage in fixed),
        backend=str(backend),
    )


def _allocate_fixed(autograd: FakeAutograd, model: nn.Module, optimizer: OptimizerMemory) -> list[Storage]:
    """Parameters with buffers, each storage once, and optimizer state."""
    tensors = {t.untyped_storage()._cdata: t for t in (*model.parameters(), *model.buffers())}
    parameter_bytes = sum(rounded_bytes(t.untyped_storage().nbytes()) for t in tensors.values())
    return [
        autograd.allocator.allocate(parameter_bytes, "parameters"),
        autograd.allocator.allocate(optimizer.state_bytes, "optimizer"),
    ]


def _micro_batch(
    autograd: FakeAutograd, model: GNN, sizes: BatchSizes, simulate_loss: SimulateLoss, aggregate_on_read: bool
) -> None:
    """Forward and backward pass; frees all their allocations on return."""
    blocks: list[FakeBlock | None] = [*FakeBlock.of_batch(autograd, sizes.blocks)]
    aggregated = _aggregate_on_read(autograd, model, sizes) if aggregate_on_read else None
    rows = sizes.num_inputs if aggregated is None else sizes.blocks[0].num_dst
    x = autograd.empty(rows, input_width(model), _itemsize(model), "inputs")  # blocks are moved after inputs are read
    if len(blocks) < len(model.layers):  # the first layer reads its aggregates
        aggregated = autograd.empty(rows, input_width(model), _itemsize(model), "inputs")
        blocks.insert(0, None)
    arrays = [autograd.allocator.allocate(nbytes, "blocks") for nbytes in sizes.array_bytes]
    running_loss = autograd.allocator.allocate(1, "loss")
    loss = simulate_loss(autograd, _forward(autograd, model, blocks, x, aggregated))
    autograd.allocator.start_phase("backward")
    if loss.requires_grad:
        autograd.backward(loss)
    del arrays, running_loss
    autograd.layer_blocks.clear()


def _aggregate_on_read(autograd: FakeAutograd, model: GNN, sizes: BatchSizes) -> FakeTensor:
    """The first layer's aggregate of rows of the graph, whose ids are looked up for every edge."""
    block = sizes.blocks[0]
    ids = autograd.allocator.allocate(sizes.num_inputs * block.index_bytes, "inputs")
    edges = autograd.allocator.allocate(block.num_edges * block.index_bytes, "inputs")
    if block.num_edges > MAX_SERIAL:
        autograd.allocator.allocate(block.num_edges * 8, "inputs")  # 64-bit positions, freed at once
    del ids
    is_scaled = getattr(model.layers[0], "norm", None) != "none" and not isinstance(model.layers[0], GINLayer)
    degrees = autograd.empty(block.num_dst, 1, _itemsize(model), "inputs") if is_scaled else None
    weight = edge_weight(autograd, block, _itemsize(model), "inputs")
    out = autograd.empty(block.num_dst, input_width(model), _itemsize(model), "inputs")
    del edges, degrees, weight
    return out


def input_width(model: GNN) -> int:
    """Channels of the features that a model expects."""
    return model.layers[0].in_dim if hasattr(model.layers[0], "in_dim") else model.layers[0].mlp[0].in_features  # type: ignore[union-attr,index,return-value]


def _itemsize(model: nn.Module) -> int:
    first: Tensor | None = next(model.parameters(), None)
    return torch.get_default_dtype().itemsize if first is None else first.element_size()


def _forward(
    autograd: FakeAutograd,
    model: GNN,
    blocks: Sequence[FakeBlock | None],
    x: FakeTensor,
    aggregated: FakeTensor | None,
) -> FakeTensor:
    h = x
    for position, block in enumerate(blocks):
        h_src = h
        autograd.term = "aggregator"
        given = aggregated if position == 0 else None
        out = _layer(autograd, model, position, block, h_src, given)
        autograd.term = "hidden"
        h = _between_layers(autograd, model, position, out)
        del out
    return h


def _layer(
    autograd: FakeAutograd,
    model: GNN,
    position: int,
    block: FakeBlock | None,
    h_src: FakeTensor,
    aggregated: FakeTensor | None,
) -> FakeTensor:
    layer = model.layers[position]
    if aggregated is None:
        assert block is not None
        out = LAYERS[type(layer)](autograd, layer, block, h_src)
    else:
        out = UPDATES[type(layer)](autograd, layer, h_src, aggregated)
    assert out.storage is not None
    out.storage.set_term("hidden")
    return out


def _between_layers(autograd: FakeAutograd, model: GNN, position: int, h: FakeTensor) -> FakeTensor:
    if position == len(model.layers) - 1:
        return h
    h, drop = normalise(autograd, h, model.norms[position]), model.dropouts[position]
    reuses = model.workspace is not None
    h = reuse.relu(autograd, h) if reuses else activate(autograd, h, model.activation)
    assert isinstance(drop, HashDropout)
    if not drop.training or not drop_threshold(drop.p):
        return h
    return reuse.dropout(autograd, h) if reuses else dropout(autograd, h)

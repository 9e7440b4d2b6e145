"""One simulated training step of a `workbench.nn` model: read features, forward, loss, backward, optimizer step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workbench.kernels.gather import MAX_SERIAL
from workbench.kernels.mask import drop_threshold
from workbench.memory.analytic import reuse
from workbench.memory.analytic.dense import activate, dropout, normalise, parameters_of
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.fake_block import FakeBlock
from workbench.memory.analytic.loss import SimulateLoss, kept_label_bytes
from workbench.memory.analytic.model_layers import LAYERS, UPDATES, Parameters
from workbench.memory.analytic.simulated_allocator import Storage
from workbench.memory.backend import Backend
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.optimizer import OptimizerMemory
from workbench.memory.sizes import BatchSizes
from workbench.meter.storages import rounded_bytes
from workbench.nn.dropout import HashDropout
from workbench.nn.gin import GINLayer
from workbench.nn.gnn import GNN


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
        model: a model whose layers are in `workbench.memory.analytic.model_layers.LAYERS`.
        sizes: sizes of the micro-batch.
        optimizer: memory of its optimizer.
        backend: the kernels whose allocations are simulated.
        simulate_loss: loss from `workbench.memory.analytic.loss`.
        batch_seeds: seeds of the batch that the micro-batch is part of.
        accumulating: gradients of earlier micro-batches exist.
        recover: the step uses OOM recovery, which computes the micro-batch's gradients separately.
        aggregate_on_read: the first layer's aggregate is computed from the features (`workbench.AggregateOnRead`).
    """
    autograd = FakeAutograd(backend)
    allocator = autograd.allocator
    fixed = _allocate_fixed(autograd, model, optimizer)
    if model.workspace is not None:  # earlier steps have allocated the buffers that this one needs
        rehearsal = FakeAutograd(backend)
        parameters = parameters_of(rehearsal, model, accumulating=False)
        _micro_batch(rehearsal, model, parameters, sizes, simulate_loss, aggregate_on_read)
        reuse.keep_buffers(autograd, rehearsal)
    seeds = max(batch_seeds, sizes.num_seeds)
    allocator.start_phase("step")  # labels are read before gradients are zeroed
    labels = allocator.allocate(kept_label_bytes(simulate_loss, seeds, on_cuda=autograd.on_cuda), "labels")
    total_loss = allocator.allocate(1, "loss")
    backups = _allocate_gradients(autograd, model) if recover and accumulating else []
    if recover:  # buffers are copied before features are fetched
        backups += [allocator.allocate(buffer.nbytes, "workspace") for buffer in model.buffers()]
    allocator.start_phase("forward")
    parameters = parameters_of(autograd, model, accumulating=accumulating and not recover)
    _micro_batch(autograd, model, parameters, sizes, simulate_loss, aggregate_on_read)
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


def _allocate_gradients(autograd: FakeAutograd, model: nn.Module) -> list[Storage]:
    return [autograd.allocator.allocate(p.nbytes, "gradients") for p in model.parameters() if p.requires_grad]


def _micro_batch(
    autograd: FakeAutograd,
    model: GNN,
    parameters: Parameters,
    sizes: BatchSizes,
    simulate_loss: SimulateLoss,
    aggregate_on_read: bool,
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
    loss = simulate_loss(autograd, _forward(autograd, model, parameters, blocks, x, aggregated))
    autograd.allocator.start_phase("backward")
    if loss.requires_grad:
        autograd.backward(loss)
    del arrays, running_loss


def _aggregate_on_read(autograd: FakeAutograd, model: GNN, sizes: BatchSizes) -> FakeTensor:
    """The first layer's aggregate of rows of the graph, whose ids are looked up for every edge."""
    block = sizes.blocks[0]
    ids = autograd.allocator.allocate(sizes.num_inputs * block.index_bytes, "inputs")
    edges = autograd.allocator.allocate(block.num_edges * block.index_bytes, "inputs")
    if block.num_edges > MAX_SERIAL:
        autograd.allocator.allocate(block.num_edges * 8, "inputs")  # 64-bit positions, freed at once
    is_scaled = getattr(model.layers[0], "norm", None) != "none" and not isinstance(model.layers[0], GINLayer)
    degrees = autograd.empty(block.num_dst, 1, _itemsize(model), "inputs") if is_scaled else None
    out = autograd.empty(block.num_dst, input_width(model), _itemsize(model), "inputs")
    del ids, edges, degrees
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
    parameters: Parameters,
    blocks: Sequence[FakeBlock | None],
    x: FakeTensor,
    aggregated: FakeTensor | None,
) -> FakeTensor:
    h = x
    for position, block in enumerate(blocks):
        h_src = h
        autograd.term = "aggregator"
        given = aggregated if position == 0 else None
        out = _layer(autograd, model, parameters, position, block, h_src, given)
        autograd.term = "hidden"
        h = _between_layers(autograd, model, parameters, position, out)
        del out
    return h


def _layer(
    autograd: FakeAutograd,
    model: GNN,
    parameters: Parameters,
    position: int,
    block: FakeBlock | None,
    h_src: FakeTensor,
    aggregated: FakeTensor | None,
) -> FakeTensor:
    layer = model.layers[position]
    if aggregated is None:
        assert block is not None
        out = LAYERS[type(layer)](autograd, layer, parameters, block, h_src)
    else:
        out = UPDATES[type(layer)](autograd, layer, parameters, h_src, aggregated)
    assert out.storage is not None
    out.storage.set_term("hidden")
    return out


def _between_layers(
    autograd: FakeAutograd, model: GNN, parameters: Parameters, position: int, h: FakeTensor
) -> FakeTensor:
    if position == len(model.layers) - 1:
        return h
    h, drop = normalise(autograd, h, model.norms[position], parameters), model.dropouts[position]
    reuses = model.workspace is not None
    h = reuse.relu(autograd, h) if reuses else activate(autograd, h, model.activation)
    assert isinstance(drop, HashDropout)
    if not drop.training or not drop_threshold(drop.p):
        return h
    return reuse.dropout(autograd, h) if reuses else dropout(autograd, h)

"""One training step of a model of `workbench.nn` on a tape: features in, loss, gradients back, optimizer."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import rounded_bytes
from workbench.kernels.mask import drop_threshold
from workbench.memory.analytic.dense import activate, dropout, normalise, parameters_of
from workbench.memory.analytic.edges import ShadowBlock
from workbench.memory.analytic.layers import PRICES, Parameters
from workbench.memory.analytic.ledger import Storage
from workbench.memory.analytic.tape import Shadow, Tape
from workbench.memory.kernels import Kernels
from workbench.memory.optimizer import OptimizerMemory
from workbench.memory.record import MemoryEstimate
from workbench.memory.sizes import BatchSizes
from workbench.nn.dropout import HashDropout
from workbench.nn.model import GNN


def price_step(
    model: GNN,
    sizes: BatchSizes,
    optimizer: OptimizerMemory,
    kernels: Kernels,
    price_loss: Callable[[Tape, Shadow], Shadow],
    *,
    accumulating: bool = False,
    recover: bool = False,
) -> MemoryEstimate:
    """What `workbench.train_step` needs for one micro-batch.

    Args:
        model: of layers that are in `workbench.memory.analytic.layers.PRICES`.
        sizes: of the micro-batch.
        optimizer: what its optimizer takes.
        kernels: which are priced.
        price_loss: of `workbench.memory.analytic.loss`.
        accumulating: gradients of earlier micro-batches are there.
        recover: gradients of the micro-batch are kept apart from these until they are complete.
    """
    tape = Tape(kernels)
    fixed = _hold_fixed(tape, model, optimizer)
    total = tape.ledger.hold(1, "loss")
    apart = _gradients(tape, model) if recover and accumulating else []
    if recover:
        tape.ledger.enter("step")  # copied before features are fetched
        apart += [tape.ledger.hold(buffer.nbytes, "workspace") for buffer in model.buffers()]
    tape.ledger.enter("forward")
    parameters = parameters_of(tape, model, accumulating=accumulating and not recover)
    _micro_batch(tape, model, parameters, sizes, price_loss)
    apart.clear()
    tape.ledger.enter("step")
    tape.term = "workspace"
    copied = optimizer.copied_bytes if recover and not tape.on_cuda else 0  # to the host
    copies = tape.ledger.hold(copied, tape.term)
    tape.touch(optimizer.step_bytes)
    del total, copies
    return MemoryEstimate(
        terms=tape.ledger.terms_at_peak,
        phase_bytes=tape.ledger.peaks,
        fixed_bytes=sum(storage.nbytes for storage in fixed),
        kernels=str(kernels),
    )


def _hold_fixed(tape: Tape, model: nn.Module, optimizer: OptimizerMemory) -> list[Storage]:
    tensors = {t.untyped_storage()._cdata: t for t in (*model.parameters(), *model.buffers())}
    held = sum(rounded_bytes(t.untyped_storage().nbytes()) for t in tensors.values())
    return [tape.ledger.hold(held, "parameters"), tape.ledger.hold(optimizer.state_bytes, "optimizer")]


def _gradients(tape: Tape, model: nn.Module) -> list[Storage]:
    return [tape.ledger.hold(p.nbytes, "gradients") for p in model.parameters() if p.requires_grad]


def _micro_batch(
    tape: Tape, model: GNN, parameters: Parameters, sizes: BatchSizes, price_loss: Callable[[Tape, Shadow], Shadow]
) -> None:
    """Forward and backward; what they made is gone when it returns."""
    blocks = [ShadowBlock(tape, block) for block in sizes.blocks]
    arrays = [tape.ledger.hold(nbytes, "blocks") for nbytes in sizes.array_bytes]
    so_far = tape.ledger.hold(1, "loss")
    x = tape.new(sizes.num_inputs, input_width(model), _itemsize(model), "inputs")
    loss = price_loss(tape, _forward(tape, model, parameters, blocks, x))
    tape.ledger.enter("backward")
    if loss.source is not None:
        tape.backward(loss)
    del arrays, so_far


def input_width(model: GNN) -> int:
    """Channels of the features that a model reads."""
    return model.layers[0].in_dim if hasattr(model.layers[0], "in_dim") else model.layers[0].mlp[0].in_features  # type: ignore[union-attr,index,return-value]


def _itemsize(model: nn.Module) -> int:
    first: Tensor | None = next(model.parameters(), None)
    return torch.get_default_dtype().itemsize if first is None else first.element_size()


def _forward(tape: Tape, model: GNN, parameters: Parameters, blocks: Sequence[ShadowBlock], x: Shadow) -> Shadow:
    h = x
    for position, block in enumerate(blocks):
        source = h
        tape.term = "aggregator"
        out = _layer(tape, model, parameters, position, block, source)
        tape.term = "hidden"
        h = _between(tape, model, parameters, position, out)
        del out
    return h


def _layer(tape: Tape, model: GNN, parameters: Parameters, position: int, block: ShadowBlock, source: Shadow) -> Shadow:
    layer = model.layers[position]
    out = PRICES[type(layer)](tape, layer, parameters, block, source)
    assert out.storage is not None
    out.storage.book("hidden")
    return out


def _between(tape: Tape, model: GNN, parameters: Parameters, position: int, h: Shadow) -> Shadow:
    if position == len(model.layers) - 1:
        return h
    out = activate(tape, normalise(tape, h, model.norms[position], parameters), model.activation)
    drop = model.dropouts[position]
    assert isinstance(drop, HashDropout)
    return dropout(tape, out) if drop.training and drop_threshold(drop.p) else out

"""`step_work`: bytes and operations of a training step, counted while a small one runs, for machines that are not here.

The time of a step on another machine is the larger of its bytes over the memory's bandwidth and its floating-point
operations over the processor's speed (the roofline model).
"""

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from workbench.core.block import Block
from workbench.core.errors import deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.training.step import train_step


class StepWork(NamedTuple):
    """Work of a training step.

    Args:
        nbytes: bytes that its operations read and write, but those of the optimizer.
        optimizer_bytes: bytes that the optimizer reads and writes, whatever the batch.
        flops: floating-point operations of its matrix products.
        widths: bytes of a row that each layer reads, input layer first; none for modules that read no blocks.
    """

    nbytes: float
    optimizer_bytes: float
    flops: float
    widths: tuple[int, ...]


def step_work(model: nn.Module, mb: MiniBatch, x: Any, y: Any, loss_fn: Callable[..., Tensor]) -> StepWork:
    """Count the work of a training step with Adam on a copy of a model, on the CPU.

    Args:
        model: as `workbench.train_step` calls it.
        mb: a batch that fits into memory.
        x: features by raw-graph id.
        y: labels by raw-graph id.
        loss_fn: the loss function.
    """
    model = copy.deepcopy(model).cpu()
    optimizer = torch.optim.Adam(model.parameters())
    rows, counted, inside, before = [], _CountBytes(), set[nn.Module](), list[int]()

    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        if module in inside:  # its work is that of the layer around it
            return
        blocks = [arg for arg in args if isinstance(arg, Block)]
        tensors = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
        if blocks and tensors:
            rows.append((blocks[0].num_edges, tensors[0][:1].nbytes))
            inside.update(inner for inner in module.modules() if inner is not module)

    with deferred_interrupt(), ExitStack() as stack:
        for module in model.modules():
            stack.callback(module.register_forward_pre_hook(note).remove)
        optimizer.register_step_pre_hook(lambda *_: before.append(counted.nbytes))
        flops = stack.enter_context(FlopCounterMode(display=False))
        stack.enter_context(counted)
        train_step(model, mb, x, y, loss_fn, optimizer)
    aggregated = sum(2 * edges * nbytes for edges, nbytes in rows)  # by kernels of the library, forward and backward
    widths = tuple(nbytes for _, nbytes in rows)
    return StepWork(before[0] + aggregated, counted.nbytes - before[0], float(flops.get_total_flops()), widths)


class _CountBytes(TorchDispatchMode):
    """Adds up the bytes of the tensors that torch's operations read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not getattr(func, "is_view", False):
            self.nbytes += sum(leaf.nbytes for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor))
        return out

"""Out-of-memory (OOM) recovery: roll back the failed micro-batch, split it, run the pieces instead."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from workbench.core.errors import PartitionError, complete_despite_interrupt, deferred_interrupt
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.error_text import text_of
from workbench.memory.training_setup import Recovery
from workbench.meter.allocation_tracker import drop_abandoned_backward
from workbench.nn.gnn import GNN
from workbench.partition.batch import partition_batch

T = TypeVar("T")

_OOM_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

_ONE_SEED = (
    "This micro-batch has one seed and can't be split: the model needs more memory than is available. No step was "
    "taken, and .grad contains the micro-batches that completed. Use smaller fanouts or layers, or leave the seed out."
)

_OOM_IN_SPLIT = "Memory ran out while splitting a micro-batch that did not fit: its pieces need memory on its device."


def check_recoverable(model: nn.Module, batches: list[MiniBatch]) -> None:
    """Refuse what can't be run twice: data-parallel models, trainable edge weights and batches with exchanges."""
    for mb in batches:
        refuse_halo(mb.exchanges, "split after an OOM error", "plan with more parts and pass recover=None")
    if hasattr(model, "no_sync"):
        raise ValueError(
            f"recover does not support {type(model).__name__}: its processes must run equally many micro-batches, and "
            "one that splits its own would leave the others waiting; plan with more parts and pass recover=None"
        )
    if any(b.edge_weight is not None and b.edge_weight.requires_grad for mb in batches for b in mb.blocks):
        raise ValueError(
            "recover does not support trainable edge weights: a failed backward pass frees the graph that leads to "
            "them; plan with more parts and pass recover=None"
        )


def run_with_oom_recovery(
    run: Callable[[MiniBatch], Callable[[], Tensor]],
    model: nn.Module,
    device: torch.device | None,
    recover: Recovery,
    before_split: Callable[[], object],
    mb: MiniBatch,
) -> Tensor:
    """Run a micro-batch; if it runs out of memory, roll back, split it and run the pieces; return the total loss.

    Args:
        run: forward and backward pass of a micro-batch; adds its gradients on success and none on an error. Returns a
            function that completes the micro-batch, outside of the attempt, and returns its loss.
        model: module whose buffers are rolled back before the next attempt, with torch's random state.
    """
    pending, total = [mb], None
    while pending:
        part = pending.pop()
        roll_back, final_note = _snapshot(model, device), _ONE_SEED if part.num_seeds <= 1 else None
        result = attempt(partial(run, part), roll_back, final_note)
        if not isinstance(result, Exception):
            loss = result()
            total = loss if total is None else total + loss
            del result  # it may keep inputs alive
            continue
        _release_buffers(model)
        before_split()
        pieces = attempt(partial(_split, part, recover), final_note=_OOM_IN_SPLIT)
        assert isinstance(pieces, list)
        if recover.on_split is not None:
            recover.on_split(part, pieces, result)
        pending += reversed(pieces)
    assert total is not None
    return total


def _release_buffers(model: nn.Module) -> None:
    """Free the buffers of models that reuse them: they have the size of the micro-batch that failed."""
    for module in model.modules():
        if isinstance(module, GNN) and module.workspace is not None:
            module.workspace.release()


def attempt(
    work: Callable[[], T], roll_back: Callable[[], object] = lambda: None, final_note: str | None = None
) -> T | Exception:
    """Call `work`; roll back on any error, and on an OOM error free its allocations and return the error.

    The error comes without its traceback, whose frames would keep tensors alive. With `final_note`, an OOM error is
    raised with this note instead, like all other errors.
    """
    try:
        return work()
    except BaseException as error:
        complete_despite_interrupt(roll_back)
        if not isinstance(error, Exception) or not is_out_of_memory(error):
            raise
        if final_note is not None:
            error.add_note(final_note)
            raise
        failure = error
    failure.__traceback__ = failure.__context__ = failure.__cause__ = None
    gc.collect()  # cycles, such as those of numba's compiler, keep tensors of frames that have ended
    drop_abandoned_backward()
    torch.clear_autocast_cache()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return failure


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is an OOM error, of the device or the host."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in text_of(error) for text in _OOM_MESSAGES)


def snapshot_of_buffers(model: nn.Module) -> Callable[[], None]:
    """Copy buffers, those too that a state_dict leaves out; returns a function that restores them."""
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]

    def restore() -> None:
        for registry, name, buffer, value in buffers:
            registry[name] = buffer  # a module may have assigned another tensor
            buffer.detach().copy_(value)

    return restore


def _snapshot(model: nn.Module, device: torch.device | None) -> Callable[[], None]:
    """Copy buffers (such as BatchNorm's running statistics) and random state; returns a function that restores them."""
    restore_buffers, random = snapshot_of_buffers(model), random_state(device)

    def restore() -> None:
        restore_buffers()
        restore_random_state(random, device)

    return restore


def random_state(device: torch.device | None) -> list[Tensor]:
    """Return torch's random state, of the CPU and of a model's device, if that is a GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device and device.type == "cuda" else ())]


def restore_random_state(state: list[Tensor], device: torch.device | None) -> None:
    """Restore what `random_state` has returned."""
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], device or "cuda")


def _split(mb: MiniBatch, recover: Recovery) -> list[MiniBatch]:
    """Split into at least two pieces, whose `parent` refers to the batch that the micro-batch came from, if any."""
    pieces = mb.split(_assignment(mb, min(recover.parts, mb.num_seeds), recover))
    return pieces if mb.parent is None else [replace(piece, parent=mb.parent[piece.parent]) for piece in pieces]


def _assignment(mb: MiniBatch, num_parts: int, recover: Recovery) -> Tensor:
    try:
        part = partition_batch(mb, num_parts, method=recover.method, seed=recover.seed, node_parts=recover.node_parts)
        if part.unique().numel() > 1:  # a single part would be the same micro-batch again
            return part
    except (ImportError, PartitionError):
        if recover.method != "auto":
            raise
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return partition_batch(mb, num_parts, method="range")


_OOM_IN_BACKUP = (
    "Memory ran out while copying the tensors that the optimizer step changes. No step was taken; nothing has changed."
)

_OOM_TWICE = (
    "The optimizer step ran out of memory twice, the second time with foreach=False. No step was taken: parameters, "
    "gradients and optimizer state are as before. Use an optimizer with less state, or a smaller model."
)


def step_with_oom_recovery(optimizer: torch.optim.Optimizer) -> None:
    """Take an optimizer step; if it runs out of memory, roll back and take it one parameter at a time.

    A failed step has updated some parameters, and possibly the state of one but not its value, so everything that a
    step may change is copied first: parameters, gradients (which some optimizers modify in place), state and options.
    The copy is on the host, asynchronous and pinned if the tensors are on a GPU. A cheaper backup would not be correct
    for every optimizer: updates can't be inverted exactly, and which tensors a step changes, and when, differs. State
    that an optimizer keeps outside of `state` and `param_groups` is not rolled back.

    Raises:
        torch.OutOfMemoryError: Memory ran out twice, or for the copy (or another error that `is_out_of_memory`). As
            after any other error, parameters, gradients and state are as before.
    """
    restore = attempt(partial(_snapshot_of_step, optimizer), final_note=_OOM_IN_BACKUP)
    assert not isinstance(restore, Exception)
    if isinstance(attempt(optimizer.step, restore), Exception):
        with _without_foreach(optimizer):
            attempt(optimizer.step, restore, _OOM_TWICE)


def _snapshot_of_step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Copy everything that a step may change; returns a function that restores it in place and drops newer state."""
    values, spec = tree_flatten((dict(optimizer.state), optimizer.param_groups))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [(p, p.grad) for p in parameters]
    tensors = [t for t in (*values, *(grad for _, grad in gradients)) if isinstance(t, Tensor)]
    copies = [(t, _copy_to_host(t)) for t in tensors]

    @torch.no_grad()
    def restore() -> None:
        for tensor, copy in copies:
            tensor.copy_(copy, non_blocking=True)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        state, groups = tree_unflatten(values, spec)
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(before)

    return restore


def _copy_to_host(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if not tensor.is_cuda or tensor.layout is not torch.strided:
        return tensor.to("cpu", copy=True)
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


@contextmanager
def _without_foreach(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Disable foreach, whose lists of temporaries need as much memory as the parameters; fused steps need none."""
    before = [(group, group["foreach"]) for group in optimizer.param_groups if "foreach" in group]
    for group, _ in before:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, foreach in before:
            group["foreach"] = foreach


def isolated_backward(model: nn.Module, loss: Tensor) -> None:
    """Add the gradients of a loss to `.grad` after the backward pass has succeeded; on an error `.grad` is unchanged.

    Earlier gradients (of the model's parameters and all other leaves of the loss) are set aside, the backward pass
    computes fresh ones (which hooks see), and these are added to the earlier ones in place, one parameter at a time,
    each freed once added. If there were earlier gradients, the backward pass therefore needs memory for two sets of
    gradients.
    """
    leaves = dict.fromkeys([*(p for p in model.parameters() if p.requires_grad), *leaves_of(loss)])
    earlier = [(leaf, leaf.grad) for leaf in leaves]
    try:
        for leaf in leaves:
            leaf.grad = None
        loss.backward()
        with deferred_interrupt():
            while earlier:
                _add(*earlier.pop())
    except BaseException:
        for leaf, grad in earlier:
            leaf.grad = grad
        raise


@torch.no_grad()
def _add(leaf: Tensor, earlier: Tensor | None) -> None:
    fresh = leaf.grad
    if earlier is None or fresh is None:
        leaf.grad = fresh if earlier is None else earlier
    elif earlier.is_sparse:  # adding in place to a sparse gradient would fail for a dense one
        fresh.add_(earlier)
    else:
        leaf.grad = earlier.add_(fresh)


def leaves_of(loss: Tensor) -> Iterator[Tensor]:
    """Yield the leaves of the autograd graph: parameters of the model, but also trainable features."""
    stack, visited = [loss.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            yield node.variable  # pyright: ignore[reportAttributeAccessIssue]
        stack += [following for following, _ in node.next_functions]

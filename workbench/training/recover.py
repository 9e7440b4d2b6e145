"""Going on where a micro-batch runs out of memory: nothing of it is left, it is cut, and its parts take its place."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import drop_abandoned_backward
from workbench.core.errors import PartitionError, check_at_least, check_choice, check_seed
from workbench.core.interrupts import surely
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import PARTITION_CHOICES, partition_batch
from workbench.partition.batch.options import check_method

T = TypeVar("T")

_SAY_OUT_OF_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

_ONE_SEED = (
    "This micro-batch has one seed, so it can't be cut: the model needs more memory than there is. No step was taken, "
    "and .grad holds the micro-batches that were complete. Use smaller fanouts or layers, or leave the seed out."
)

_NO_ROOM_TO_CUT = "This came where a micro-batch that did not fit was to be cut: its parts take memory where it lies."


@dataclass(frozen=True, eq=False)
class Recovery:
    """How training goes on where a micro-batch runs out of memory: it is cut, and its parts take its place.

    Args:
        parts: micro-batches that one is cut into, at least 2; of these, those that don't fit are cut again, down to a
            seed each.
        method: see `workbench.partition_batch`. "range" takes its place where the method itself lacks memory, where
            "auto" lacks pymetis or METIS fails, and where the method leaves all seeds in one part, as "cluster" may.
        seed: likewise.
        node_parts: likewise.
        on_split: called after each cut with the micro-batch, its parts and the error, to count them, say, or to plan
            the next batch with more; nothing of the failed attempt is alive by then.

    Raises:
        ValueError: an unknown method, fewer than 2 parts, a seed that is no whole number, `node_parts` missing for
            "cluster" or given to a method that would not use them.
        TypeError: `node_parts` are no integers.
    """

    parts: int = 2
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None
    on_split: Callable[[MiniBatch, list[MiniBatch], Exception], object] | None = None

    def __post_init__(self) -> None:
        check_at_least("parts", self.parts, 2)
        check_choice("method", self.method, PARTITION_CHOICES)
        check_method(self.method, self.node_parts)
        check_seed(self.seed)


def check_recover(recover: Any) -> None:
    """Refuse what says neither how to go on nor not to.

    Raises:
        TypeError: neither a Recovery nor None.
    """
    if recover is not None and not isinstance(recover, Recovery):
        raise TypeError(f"recover is {recover!r}; pass workbench.Recovery() to go on where memory runs out, or None")


def check_recoverable(model: nn.Module, batches: list[MiniBatch]) -> None:
    """Refuse what can't be tried twice.

    Raises:
        ValueError: a data-parallel model, or edge weights that learn.
    """
    if hasattr(model, "no_sync"):
        raise ValueError(
            f"recover can't serve {type(model).__name__}: its processes take equally many micro-batches, and one that "
            "cuts its own would leave the others waiting; plan with more parts and pass recover=None"
        )
    if any(b.edge_weight is not None and b.edge_weight.requires_grad for mb in batches for b in mb.blocks):
        raise ValueError(
            "recover can't serve edge weights that learn: a failed backward pass frees what leads back to them; plan "
            "with more parts and pass recover=None"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on the device or the host."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _SAY_OUT_OF_MEMORY)


def run_or_cut(
    run: Callable[[MiniBatch], Tensor],
    model: nn.Module,
    device: torch.device | None,
    recover: Recovery,
    before_cut: Callable[[], object],
    mb: MiniBatch,
) -> Tensor:
    """Run a micro-batch, or, where memory runs out, its parts.

    Args:
        run: forward and backward pass of a micro-batch, after which its gradients are added or, on an error, are not.
        model: whose buffers are put back before another attempt, with torch's random state.
        device: of the model.
        recover: how to cut.
        before_cut: called before each cut.
        mb: the micro-batch.

    Returns:
        Sum of what `run` returned.

    Raises:
        What `run` raises that is not for lack of memory, or from one seed.
    """
    waiting, total = [mb], None
    while waiting:
        part = waiting.pop()
        put_back, last_note = _remember(model, device), _ONE_SEED if part.num_seeds <= 1 else None
        result = attempt(partial(run, part), put_back, last_note)
        if isinstance(result, Tensor):
            total = result if total is None else total + result
            continue
        before_cut()
        parts = attempt(partial(_cut, part, recover), last_note=_NO_ROOM_TO_CUT)
        assert isinstance(parts, list)
        if recover.on_split is not None:
            recover.on_split(part, parts, result)
        waiting += reversed(parts)
    assert total is not None
    return total


def attempt(
    work: Callable[[], T], put_back: Callable[[], object] = lambda: None, last_note: str | None = None
) -> T | Exception:
    """Call `work`; if it fails, put back what it changed, and if memory ran out, free what it made.

    Args:
        work: called once.
        put_back: called after any error, interrupts included.
        last_note: added to the error where memory ran out, which is then raised; None: it is returned.

    Returns:
        What `work` returned, or the error, which holds no frames and so no tensors.

    Raises:
        What `work` raises that is not for lack of memory.
    """
    try:
        return work()
    except BaseException as error:
        surely(put_back)
        if not isinstance(error, Exception) or not is_out_of_memory(error):
            raise
        if last_note is not None:
            error.add_note(last_note)
            raise
        failure = error
    failure.__traceback__ = failure.__context__ = failure.__cause__ = None
    drop_abandoned_backward()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return failure


def _remember(model: nn.Module, device: torch.device | None) -> Callable[[], None]:
    """A function that puts buffers (BatchNorm's statistics, say) and torch's random state back."""
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    random = torch.get_rng_state()
    random_there = torch.cuda.get_rng_state(device) if device is not None and device.type == "cuda" else None

    def put_back() -> None:
        for place, name, buffer, value in buffers:
            place[name] = buffer  # a module may have put another in its place
            with torch.no_grad():
                buffer.copy_(value)
        torch.set_rng_state(random)
        if random_there is not None and device is not None:
            torch.cuda.set_rng_state(random_there, device)

    return put_back


def _cut(mb: MiniBatch, recover: Recovery) -> list[MiniBatch]:
    """At least two parts; each has as parent the batch that the micro-batch was split from, if it was."""
    parts = mb.split(_parts_of_seeds(mb, min(recover.parts, mb.num_seeds), recover))
    return parts if mb.parent is None else [replace(part, parent=mb.parent[part.parent]) for part in parts]


def _parts_of_seeds(mb: MiniBatch, num_parts: int, recover: Recovery) -> Tensor:
    try:
        part = partition_batch(mb, num_parts, method=recover.method, seed=recover.seed, node_parts=recover.node_parts)
        if part.unique().numel() > 1:  # else the same micro-batch would come again
            return part
    except (ImportError, PartitionError):
        if recover.method != "auto":
            raise
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    return partition_batch(mb, num_parts, method="range")

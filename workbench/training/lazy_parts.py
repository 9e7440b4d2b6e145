"""`MicroBatches`: the micro-batches of a batch in the batch's own format, each built when it is reached."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.interop import dgl_parts, pyg_parts
from workbench.memory.plan import Plan


@dataclass(frozen=True, eq=False)
class BatchFormat:
    """A batch of a library, and how its micro-batches are written in its format.

    Args:
        batch: the batch as it was passed.
        mb: its structure, which is split.
        write: maps a micro-batch of `mb` to the format of `batch`.
        read: returns the batch with the edge ids, weights and types that a model reads; `mb` may lack them.
        release: frees what the parts read again from where the batch has it.
        resident_bytes: bytes of the batch on its device, if that is a GPU: they remain there while the parts run.
    """

    batch: Any
    mb: MiniBatch
    write: Callable[[MiniBatch], Any]
    read: Callable[[], MiniBatch]
    release: Callable[[], None] = lambda: None
    resident_bytes: int = 0

    @property
    def feature_width(self) -> int | None:
        """Columns of `x` of a PyG batch; None without such features."""
        x = getattr(self.batch, "x", None)
        return x.shape[1] if isinstance(x, Tensor) and x.dim() == 2 else None

    def whole(self) -> Any:
        """The batch as its only micro-batch."""
        if not isinstance(self.batch, MiniBatch):
            return self.batch
        return replace(self.batch, parent=torch.arange(self.batch.num_inputs, device=self.batch.device))

    def part(self, seeds: Tensor) -> Any:
        """The micro-batch of some seeds.

        Args:
            seeds: int64 positions, in the batch's order.
        """
        return self.write(self.mb.select([seeds])[0])

    @staticmethod
    def of(batch: Any) -> "BatchFormat":
        """Recognise the format of a batch.

        Raises:
            TypeError: The batch is neither a `MiniBatch`, nor DGL blocks, nor a PyG batch.
        """
        if isinstance(batch, MiniBatch):
            return BatchFormat(batch, batch, lambda part: part, lambda: batch)
        if hasattr(batch, "n_id"):
            return _pyg(batch)
        if isinstance(batch, Sequence) and all(hasattr(block, "srcdata") for block in batch):
            return _dgl(batch)
        kinds = f" of {', '.join(type(part).__name__ for part in batch)}" if isinstance(batch, list | tuple) else ""
        raise TypeError(
            f"can't split a {type(batch).__name__}{kinds}; pass a MiniBatch (workbench.batches yields (step, batch)), "
            "a list of DGL blocks (DGL's DataLoader yields (input nodes, output nodes, blocks)) or a batch of PyG's "
            "NeighborLoader"
        )


def _dgl(blocks: Sequence[Any]) -> BatchFormat:
    mb = dgl_parts.batch_of_positions(blocks)
    resident = 0 if mb.device.type == "cpu" else dgl_parts.resident_bytes(blocks)
    release = partial(dgl_parts.release_prefetched, blocks)
    return BatchFormat(
        blocks,
        mb,
        partial(dgl_parts.part_of_blocks, whole=blocks),
        partial(_read, MiniBatch.from_dgl, blocks),
        release,
        resident,
    )


def _pyg(batch: Any) -> BatchFormat:
    mb = pyg_parts.batch_of_positions(batch)
    resident = 0 if mb.device.type == "cpu" else pyg_parts.resident_bytes(batch)
    return BatchFormat(
        batch,
        mb,
        partial(pyg_parts.part_of_batch, whole=batch),
        partial(_read, MiniBatch.from_pyg, batch),
        resident_bytes=resident,
    )


def _read(convert: Callable[[Any], MiniBatch], batch: Any) -> MiniBatch:
    """Convert a batch whose micro-batches are written in its own format, with all of its data."""
    mb = convert(batch)
    return mb if mb.carried is None else replace(mb, carried=replace(mb.carried, held=True))


@dataclass(frozen=True, eq=False, repr=False)
class MicroBatches(Sequence[Any]):
    """The micro-batches of a batch: a sequence that builds a part whenever it is reached, and keeps none.

    Args:
        build: maps positions of seeds to the micro-batch of these seeds.
        seeds: int64 positions of the seeds of each part, in the batch's order.
        plan: the plan that chose the parts, its own micro-batches built when reached; None if their number was given.
    """

    build: Callable[[Tensor], Any]
    seeds: tuple[Tensor, ...]
    plan: Plan | None = None

    @staticmethod
    def of(batch: BatchFormat, assignment: Tensor, plan: Plan | None = None) -> "MicroBatches":
        """Group the seeds by part; a single part is the batch itself.

        Args:
            batch: the batch and its format.
            assignment: int64 [num_seeds], part of every seed; parts without seeds are dropped.
            plan: the plan that chose the parts.
        """
        sizes = assignment.bincount()
        seeds = tuple(torch.argsort(assignment, stable=True).split(sizes[sizes > 0].tolist()))
        if len(seeds) > 1:
            batch.release()
        whole = batch.whole() if len(seeds) == 1 else None  # without its converted structure
        parts = MicroBatches(batch.part if whole is None else lambda _: whole, seeds)
        return parts if plan is None else replace(parts, plan=replace(plan, micro=parts))

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return MicroBatches(self.build, self.seeds[index], self.plan)
        return self.build(self.seeds[index])

    def __repr__(self) -> str:
        return f"MicroBatches({len(self)} parts, built when reached)"

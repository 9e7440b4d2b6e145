"""Micro-batches for training loops of DGL or PyG: each in the format of its batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import CapacityError, check_at_least, check_bytes
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.interop import dgl, pyg
from workbench.interop.edge_lists import refuse_pairs
from workbench.memory.plan import Plan, plan_micro_batches
from workbench.memory.training_setup import Optimizer
from workbench.nn.signature import Forward
from workbench.partition.batch import partition_batch
from workbench.training.exactness.check import warn_if_batch_inexact


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
            assignment: int64 [num_seeds], part of every seed; parts without seeds are dropped.
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


def micro_batches(
    batch: Any,
    num_parts: int | None = None,
    *,
    model: nn.Module | None = None,
    memory: int | str | None = None,
    optimizer: Optimizer = "adam",
    loss_fn: Callable[..., Tensor] = cross_entropy,
    in_dim: int | None = None,
    forward: Forward | None = None,
    recover: bool = False,
    margin: float = 0.02,
    method: str = "auto",
    seed: int = 0,
    node_parts: Tensor | None = None,
    verify: bool = True,
) -> MicroBatches:
    """Split a batch into micro-batches of the same format: into a number of parts, or into as few as fit the memory.

    Accumulate the gradients of all of them before a step. They are those of the whole batch if each loss is the *sum*
    over the micro-batch's seeds, divided by the number of seeds of the batch.

    A part is built when it is reached, and not kept: a loop over the parts needs the memory of one of them. If there is
    only one part, it is the batch itself. To plan once for all batches of a sampler, use `workbench.plan_sampler`.

    Args:
        batch: a `MiniBatch`; DGL blocks (the list that DGL's DataLoader yields); or a PyG batch (from
            `NeighborLoader` or `MiniBatch.to_pyg`). It is not modified.
        num_parts: number of micro-batches, at least 1; a batch with fewer seeds is split into one per seed. None: the
            fewest that fit into `memory`.
        model: the module to plan for: one of the library, or any that `workbench.train_step` can call, which includes
            modules of DGL's and PyG's layers. With `num_parts`, for `verify` alone.
        memory: device memory for the training step, in bytes or as text such as "8GiB". On a GPU, what the
            batch occupies there already is subtracted.
        optimizer: "adam", "adamw" or "sgd", or an optimizer of the model's parameters, for the plan.
        loss_fn: the loss function, for the plan.
        in_dim: channels of the features, for the plan of a module that must be traced; None: those of `batch.x`, or
            the first input width of a layer with which a step succeeds.
        forward: how the loop calls the model, if not as `workbench.train_step` does: a function of the batch as a
            `MiniBatch` and its `Inputs`, whose `x` has a row per input; for the plan and for `verify`.
        recover: plan for `train_step(recover=…)`.
        margin: fraction by which an estimate may be too low.
        method: a name of `workbench.partition.PARTITION_METHODS`, or "auto" or "fast".
        seed: seed of the random choices of the method.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster"; None for others.
        verify: check once per `model`, if it is given, that micro-batches are exact, and warn if not
            (`workbench.check_exact`). Of a model that can't be called, such as a list of layers, those are warned of
            that are known to be inexact by their class and options.

    Returns:
        A sequence of micro-batches with raw-graph ids; its `plan` is the `Plan`, or None. DGL's are lists of blocks
        with all columns of node and edge data of the batch's blocks (features in the graph, prefetched ones, weights);
        rows of a column are gathered when it is read. PyG's carry the rows of all node- and edge-level attributes
        (`x`, `y`, `edge_attr`, …) and of `input_id`; other attributes are those of the batch.

    Raises:
        ValueError: Neither `num_parts` nor both of `model` and `memory` are given, or both numbers;
            `workbench.partition_batch` or `workbench.plan_micro_batches` refuses the arguments; the batch is not
            self-contained; or it was sampled for pairs of nodes: PyG's `LinkNeighborLoader`, or the tuple that DGL's
            DataLoader yields for edge prediction. Its blocks alone are not recognised: they look like any others.
        TypeError: The batch has another type.
        CapacityError: No partition fits the capacity; the message states a sufficient one.

    Source: Betty (ASPLOS 2023).
    """
    _check_goal(num_parts, model, memory)
    refuse_pairs(batch)
    whole = BatchFormat.of(batch)
    if verify and num_parts != 1:
        warn_if_batch_inexact(model, batch, forward)
    if num_parts is not None:
        num_parts = min(num_parts, max(1, whole.mb.num_seeds))
        options = {"method": method, "seed": seed, "node_parts": node_parts}
        return MicroBatches.of(whole, partition_batch(whole.mb, num_parts, **options))
    assert model is not None and memory is not None
    room = check_bytes("memory", memory) - whole.resident_bytes
    if room < 1:
        raise CapacityError(
            f"memory is {format_bytes(room + whole.resident_bytes)}, but the batch itself, on its GPU, takes "
            f"{format_bytes(whole.resident_bytes)}; pass more, or the batch on the CPU"
        )
    plan = plan_micro_batches(
        model,
        whole.read(),
        memory=room,
        method=method,
        optimizer=optimizer,
        seed=seed,
        margin=margin,
        recover=recover,
        in_dim=in_dim if in_dim is not None else whole.feature_width,
        loss_fn=loss_fn,
        forward=forward,
        node_parts=node_parts,
    )
    return MicroBatches.of(whole, plan.assignment, plan)


def _check_goal(num_parts: int | None, model: nn.Module | None, memory: int | str | None) -> None:
    if num_parts is not None and memory is None:
        check_at_least("num_parts", num_parts, 1)
    elif num_parts is not None or model is None or memory is None:
        given = {"num_parts": num_parts, "model": model, "memory": memory}
        names = [name for name, value in given.items() if value is not None]
        raise ValueError(
            f"micro_batches got {' and '.join(names) or 'no number of parts'}; pass either num_parts, or model and "
            'memory="8GiB", say, for as few parts as fit'
        )


def _dgl(blocks: Sequence[Any]) -> BatchFormat:
    mb = dgl.batch_of_positions(blocks)
    resident = 0 if mb.device.type == "cpu" else dgl.resident_bytes(blocks)
    write, read = partial(dgl.part_of_blocks, whole=blocks), partial(_read, MiniBatch.from_dgl, blocks)
    return BatchFormat(blocks, mb, write, read, partial(dgl.release_prefetched, blocks), resident)


def _pyg(batch: Any) -> BatchFormat:
    mb = pyg.batch_of_positions(batch)
    resident = 0 if mb.device.type == "cpu" else pyg.resident_bytes(batch)
    write, read = partial(pyg.part_of_batch, whole=batch), partial(_read, MiniBatch.from_pyg, batch)
    return BatchFormat(batch, mb, write, read, resident_bytes=resident)


def _read(convert: Callable[[Any], MiniBatch], batch: Any) -> MiniBatch:
    """Convert a batch whose micro-batches are written in its own format, with all of its data."""
    mb = convert(batch)
    return mb if mb.carried is None else replace(mb, carried=replace(mb.carried, held=True))

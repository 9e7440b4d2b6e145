"""Training over epochs: the batches of an epoch and how they are cut, and a row for each epoch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.nn.losses import LossFunction
from workbench.sampling.stream import Sampler, batches
from workbench.training.micro import micro_batches
from workbench.training.step import train_step

Steps = Iterable[Sequence[MiniBatch]]


def epoch_steps(
    graph: Graph,
    ids: Tensor,
    *,
    sampler: Sampler,
    num_batches: int = 1,
    num_parts: int = 1,
    method: str = "auto",
    epoch: int = 0,
    seed: int = 0,
) -> Iterator[list[MiniBatch]]:
    """The optimizer steps of an epoch, sampled anew: batches of all ids, each in micro-batches.

    One batch in one part is whole-batch training; one in K parts, Betty's; K batches in one part each, mini-batch
    training. What is sampled depends on (sampler, seed, epoch) and the number of batches, not on how they are cut.

    Args:
        graph: to sample from.
        ids: int64 or int32 training node ids, each once.
        sampler: has `sample(graph, seeds, step=…)`.
        num_batches: batches of ⌈ids / num_batches⌉ seeds, the last one smaller; up to the number of ids.
        num_parts: micro-batches of each batch.
        method: see `workbench.partition_batch`.
        epoch: number of the epoch, from 0.
        seed: of the order of ids and of the partition.

    Yields:
        The micro-batches of one step.

    Raises:
        ValueError: no batches, more than ids, or what `workbench.batches` and `workbench.partition_batch` refuse.
    """
    check_at_least("num_batches", num_batches, 1)
    if num_batches > max(1, len(ids)):
        raise ValueError(f"num_batches is {num_batches} for {len(ids)} ids; ask for at most one batch an id")
    size = max(1, ceil(len(ids) / num_batches))
    for _, mb in batches(graph, ids, sampler=sampler, batch_size=size, epoch=epoch, seed=seed):
        yield micro_batches(mb, num_parts, method=method, seed=seed)


def train_epochs(
    model: nn.Module,
    steps: Callable[[int], Steps],
    x: Any,
    y: Any,
    loss_fn: LossFunction,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    evaluate_every: int = 1,
) -> Iterator[dict[str, float]]:
    """Train, and yield a row an epoch.

    Args:
        model: see `workbench.train_step`, like what is not said here.
        steps: from the number of an epoch, from 0, its optimizer steps: the micro-batches of each.
        x: features by raw-graph id.
        y: labels by raw-graph id.
        loss_fn: ·
        optimizer: ·
        epochs: at least 1.
        evaluate: called after an epoch; what it returns goes into the row.
        evaluate_every: epochs from one evaluation to the next; the last epoch has one always.

    Yields:
        `epoch` (from 1), `num_steps`, `loss` (mean over the seeds, of the losses before each step) and what `evaluate`
        returned.

    Raises:
        ValueError: no epochs, an epoch without steps, or what `workbench.train_step` refuses.
    """
    check_at_least("epochs", epochs, 1)
    check_at_least("evaluate_every", evaluate_every, 1)
    for epoch in range(epochs):
        losses, seeds = [], []
        for micro in steps(epoch):
            losses.append(float(train_step(model, micro, x, y, loss_fn, optimizer)))
            seeds.append(sum(mb.num_seeds for mb in micro))
        if not losses:
            raise ValueError(f"epoch {epoch} has no steps; return at least one from steps({epoch})")
        loss = sum(loss * count for loss, count in zip(losses, seeds, strict=True)) / sum(seeds)
        row = {"epoch": epoch + 1, "num_steps": len(losses), "loss": loss}
        if evaluate is not None and ((epoch + 1) % evaluate_every == 0 or epoch + 1 == epochs):
            row |= evaluate()
        yield row

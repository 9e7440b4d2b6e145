"""Training over epochs: the batches of an epoch and how they are cut, and a row for each epoch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.partition.batch import PARTITION_CHOICES
from workbench.sampling.stream import Sampler
from workbench.training.arguments import as_batches, check_model, check_optimizer
from workbench.training.micro import micro_batches
from workbench.training.rows import read_rows
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
        num_batches: batches, whose sizes differ by one seed at most; up to the number of ids.
        num_parts: micro-batches of each batch.
        method: see `workbench.partition_batch`.
        epoch: number of the epoch, from 0.
        seed: of the order of ids and of the partition.

    Yields:
        The micro-batches of one step.

    Raises:
        TypeError: a graph or ids of another kind.
        ValueError: no batches, more than ids, or what `workbench.batches` and `workbench.partition_batch` refuse.
            Raised, as far as it depends on no batch, at the call.
    """
    check_type("graph", graph, Graph, "pass a Graph (workbench.core.interop makes one of DGL's and PyG's)")
    check_at_least("num_batches", num_batches, 1)
    check_at_least("num_parts", num_parts, 1)
    check_choice("method", method, PARTITION_CHOICES)
    check_at_least("epoch", epoch, 0)
    check_seed(seed)
    ids = check_ids("ids", ids, graph.num_nodes, unique=True)
    if num_batches > len(ids):
        raise ValueError(f"num_batches is {num_batches} for {len(ids)} ids; ask for at most one batch an id")
    order = ids[permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids)).to(ids.device)]

    def generate() -> Iterator[list[MiniBatch]]:
        for step, seeds in enumerate(order.tensor_split(num_batches), epoch * num_batches):
            yield micro_batches(sampler.sample(graph, seeds, step=step), num_parts, method=method, seed=seed)

    return generate()


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
        loss_fn: see `workbench.train_step`.
        optimizer: of the model's parameters.
        epochs: at least 1.
        evaluate: called after an epoch; what it returns goes into the row.
        evaluate_every: epochs from one evaluation to the next; the last epoch has one always.

    Yields:
        `epoch` (from 1), `num_steps`, `loss` (mean over the labelled seeds, of the losses before each step) and what
        `evaluate` returned.

    Raises:
        TypeError: `steps` or `evaluate` that can't be called.
        ValueError: no epochs, an epoch without steps, or what `workbench.train_step` refuses. What does not depend on
            the steps is checked at the call.
    """
    check_model(model)
    check_at_least("epochs", epochs, 1)
    check_at_least("evaluate_every", evaluate_every, 1)
    check_type("steps", steps, Callable, "pass a function from the epoch's number to its steps: lambda epoch: [[mb]]")
    if evaluate is not None:
        check_type("evaluate", evaluate, Callable, "pass a function without arguments that returns a dict, or None")
    seed_loss = SeedLoss.of(loss_fn, "mean")
    check_optimizer(optimizer)

    def generate() -> Iterator[dict[str, float]]:
        for epoch in range(epochs):
            losses, weights = [], []
            asked = steps(epoch)
            check_type(f"what steps({epoch}) returned", asked, Iterable, "return a list of steps: [[mb], …]")
            for micro in map(as_batches, asked):
                losses.append(float(train_step(model, micro, x, y, loss_fn, optimizer)))
                weights.append(sum(seed_loss.weigh(read_rows(y, mb.seeds)) for mb in micro))
            if not losses:
                raise ValueError(f"epoch {epoch} has no steps; return at least one from steps({epoch})")
            loss = sum(loss * weight for loss, weight in zip(losses, weights, strict=True)) / sum(weights)
            row = {"epoch": epoch + 1, "num_steps": len(losses), "loss": loss}
            if evaluate is not None and ((epoch + 1) % evaluate_every == 0 or epoch + 1 == epochs):
                row |= _measured(evaluate)
            yield row

    return generate()


def _measured(evaluate: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
    measured = evaluate()
    check_type("what evaluate returned", measured, Mapping, "return a dict from names to numbers")
    return measured

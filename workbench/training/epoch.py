"""Training over epochs: the optimizer steps of an epoch, and a row of results per epoch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from workbench.core.errors import check_at_least, check_choice, check_ids, check_seed, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.nn.losses import LossFunction, SeedLoss
from workbench.partition.batch import partition_choices
from workbench.sampling.sampler import Sampler
from workbench.training.adapters import micro_batches
from workbench.training.arguments import as_batches, check_model, check_optimizer
from workbench.training.step import BeforeStep, train_step

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
    """Sample the batches of an epoch and split each into micro-batches, one optimizer step per batch.

    One batch in one part is whole-batch training; one batch in K parts is Betty's; K batches of one part each are
    mini-batch training. Samples depend on (sampler, seed, epoch) and the number of batches, not on how they are split.

    Args:
        graph: the graph to sample from.
        ids: int64 or int32 [ids], training node ids without duplicates.
        sampler: an object with `sample(graph, seeds, step=…)`.
        num_batches: number of batches, at most the number of ids; their sizes differ by at most one seed.
        num_parts: number of micro-batches per batch.
        method: a name of `workbench.partition.PARTITION_METHODS`, or "auto" or "fast".
        epoch: number of the epoch, from 0.
        seed: seed of the order of ids and of the partition.

    Yields:
        The micro-batches of one step.

    Raises:
        TypeError: `graph` or `ids` is of another type.
        ValueError: `num_batches` is below 1 or exceeds the number of ids, or an option is invalid. Raised at the call,
            not at the first iteration, unless it depends on a batch.
    """
    check_type("graph", graph, Graph, "pass a Graph (Graph.from_dgl, from_pyg, … convert others)")
    check_at_least("num_batches", num_batches, 1)
    check_at_least("num_parts", num_parts, 1)
    check_choice("method", method, partition_choices())
    check_at_least("epoch", epoch, 0)
    check_seed(seed)
    ids = check_ids("ids", ids, graph.num_nodes, unique=True)
    if num_batches > len(ids):
        raise ValueError(f"num_batches is {num_batches} for {len(ids)} ids; it must be at most the number of ids")
    order = ids[permutation(stream(seed, Purpose.SHUFFLE, epoch), len(ids)).to(ids.device)]

    def generate() -> Iterator[list[MiniBatch]]:
        for step, seeds in enumerate(order.tensor_split(num_batches), epoch * num_batches):
            batch = sampler.sample(graph, seeds, step=step)
            yield list(micro_batches(batch, num_parts, method=method, seed=seed))

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
    before_step: BeforeStep | None = None,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    evaluate_every: int = 1,
) -> Iterator[dict[str, float]]:
    """Train for a number of epochs and yield one row of results per epoch.

    Args:
        model: a module that `workbench.train_step` can call.
        steps: maps the number of an epoch, from 0, to its optimizer steps, each a sequence of micro-batches.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array or an object with `.read(ids)`.
        y: labels by raw-graph id: a tensor, an array or an object with `.read(ids)`.
        loss_fn: a loss function that `workbench.train_step` accepts.
        optimizer: an optimizer of the model's parameters.
        epochs: number of epochs, at least 1.
        before_step: called before every optimizer step (to clip gradients), as for `workbench.train_step`.
        evaluate: called after an epoch; its result is added to the row.
        evaluate_every: evaluate after every so many epochs, and always after the last.

    Yields:
        `epoch` (from 1), `num_steps`, `loss` (mean over labelled seeds of the loss before each step), and the result of
        `evaluate`.

    Raises:
        TypeError: `steps` or `evaluate` can't be called.
        ValueError: `epochs` is below 1, an epoch has no steps, or `workbench.train_step` refuses its arguments. Checks
            that do not depend on the steps are made at the call.
    """
    check_model(model)
    check_at_least("epochs", epochs, 1)
    check_at_least("evaluate_every", evaluate_every, 1)
    check_type("steps", steps, Callable, "pass a function from the epoch's number to its steps: lambda epoch: [[mb]]")
    if evaluate is not None:
        check_type("evaluate", evaluate, Callable, "pass a function without arguments that returns a dict, or None")
    SeedLoss.of(loss_fn, "mean")  # refuses what is no loss function
    check_optimizer(optimizer)

    weights: list[float] = []

    def record(weight: float) -> float:
        weights.append(weight)
        return weight

    def generate() -> Iterator[dict[str, float]]:
        for epoch in range(epochs):
            losses = []
            weights.clear()
            steps_of_epoch = steps(epoch)
            check_type(f"the result of steps({epoch})", steps_of_epoch, Iterable, "return a list of steps: [[mb], …]")
            for micro in map(as_batches, steps_of_epoch):
                step = train_step(model, micro, x, y, loss_fn, optimizer, total=record, before_step=before_step)
                losses.append(float(step))
            if not losses:
                raise ValueError(f"epoch {epoch} has no steps; return at least one from steps({epoch})")
            loss = sum(loss * weight for loss, weight in zip(losses, weights, strict=True)) / sum(weights)
            row = {"epoch": epoch + 1, "num_steps": len(losses), "loss": loss}
            if evaluate is not None and ((epoch + 1) % evaluate_every == 0 or epoch + 1 == epochs):
                metrics = evaluate()
                check_type("the result of evaluate", metrics, Mapping, "return a dict from names to numbers")
                row |= metrics
            yield row

    return generate()

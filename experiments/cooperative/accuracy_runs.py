"""What Figures 8 and 9 and Table 3 share: training for a number of steps, and the F1 score on the validation nodes."""

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any, Self

import pandas as pd
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import workbench as wb
from experiments.cooperative.samplers import SamplerName
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import mean_intervals
from workbench.sampling.batches import EpochOrder
from workbench.training.epoch import train_epochs

MARGIN = 0.005
"""Largest difference in F1 that counts as none: half a point. The smallest loss that Table 3 of the paper shows beyond
its ± is of 0.52 points (yelp at κ = ∞)."""

NAMES = {"loss": "training loss", "val_f1": "validation F1", "val_f1_sampled": "validation F1, this sampler"}
"""Columns as people read them."""


class TrainingConfig(ModelConfig):
    """Training with Adam, interrupted by validations.

    Args:
        sampler: name in the paper.
        batch_size: training nodes per optimizer step.
        learning_rate: of Adam.
        steps: number of optimizer steps, a multiple of `evaluate_every`.
        evaluate_every: steps between validations.
    """

    sampler: SamplerName
    batch_size: PositiveInt
    learning_rate: float
    steps: PositiveInt
    evaluate_every: PositiveInt

    @model_validator(mode="after")
    def _ends_with_a_validation(self) -> Self:
        if self.steps % self.evaluate_every:
            raise ValueError(
                f"steps is {self.steps}, not a multiple of evaluate_every, {self.evaluate_every}; the last step is "
                "followed by a validation, so change one of them"
            )
        return self


def training_rows(
    config: TrainingConfig, samplers: Sequence[wb.Sampler], *, validate_sampled: bool = False
) -> Iterator[dict[str, Any]]:
    """Train and yield one row per validation.

    Args:
        config: model and training.
        samplers: one per processing element: each samples its share of every batch by itself.
        validate_sampled: validate with the (first) sampler too, which then draws as for the next training step.

    Yields:
        `step`, the number of steps so far; `loss`, their mean since the last row; `val_f1` with all neighbours;
        `val_f1_sampled`; and `majority`, the F1 of the best constant prediction.
    """
    data = config.dataset.load()
    graph = data.graph.to(config.device)
    model, every = config.build(data), config.evaluate_every
    loss_fn = binary_cross_entropy_with_logits if data.y.is_floating_point() else cross_entropy
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    majority = constant_f1(data.y[data.val_idx])
    steps = training_steps(graph, data.train_idx, samplers, batch_size=config.batch_size, seed=config.seed)
    rounds = train_epochs(
        model, lambda _: islice(steps, every), data.x, data.y, loss_fn, optimizer, epochs=config.steps // every
    )
    for found in rounds:
        row = {"step": int(found["epoch"]) * every, "loss": found["loss"], "val_f1": full_f1(model, data)}
        if validate_sampled:
            row["val_f1_sampled"] = sampled_f1(model, data, graph, samplers[0], row["step"])
        yield row | {"majority": majority}


def training_steps(
    graph: wb.Graph, ids: Tensor, samplers: Sequence[wb.Sampler], *, batch_size: int, seed: int
) -> Iterator[list[wb.MiniBatch]]:
    """Sample the batches of epoch after epoch: each is shared out evenly, and every sampler samples its share.

    The shares are processed as micro-batches of one step: gradients of independent minibatches, averaged over the
    global batch, as processing elements do by an all-reduce.

    Args:
        graph: to sample from.
        ids: training nodes.
        samplers: one per share.
        batch_size: nodes per step, those of all shares; an incomplete batch at the end of an epoch is left out.
        seed: of the order of the nodes.
    """
    order = EpochOrder(len(ids), batch_size, drop_last=True, seed=seed)
    if not len(order):
        raise ValueError(f"batch_size is {batch_size}, but there are {len(ids)} training nodes; choose a smaller one")
    for step, positions in (batch for epoch in count() for batch in order.positions(epoch)):
        shares = ids[positions].to(graph.device).tensor_split(len(samplers))
        yield [sampler.sample(graph, share, step=step) for sampler, share in zip(samplers, shares, strict=True)]


def full_f1(model: Any, data: wb.Dataset) -> float:
    """Micro-averaged F1 score on the validation nodes, with all their neighbours."""
    logits = wb.full_neighbour_logits(model, data.graph, data.x, nodes=data.val_idx)
    return micro_f1(logits, data.y[data.val_idx])


@torch.no_grad()
def sampled_f1(model: Any, data: wb.Dataset, graph: wb.Graph, sampler: wb.Sampler, step: int) -> float:
    """Micro-averaged F1 score on the validation nodes, with the neighbours that a sampler draws in one batch.

    Args:
        model: in training mode.
        data: the data set.
        graph: its graph, on the model's device.
        sampler: of the neighbours.
        step: number of the batch, which the variates depend on.
    """
    batch = sampler.sample(graph, data.val_idx.to(graph.device), step=step)
    rows = data.x[batch.node_ids.to(data.x.device)].to(graph.device)
    model.eval()
    logits = model(batch.blocks, rows)
    model.train()
    return micro_f1(logits, data.y[data.val_idx])


def micro_f1(logits: Tensor, y: Tensor) -> float:
    """F1 score of all decisions together: with one class per node, the accuracy.

    Args:
        logits: floating [nodes, classes].
        y: classes, int64 [nodes], −1 for unlabelled nodes; or multi-labels 0 and 1, floating [nodes, classes], which
            are predicted where the logit is positive.
    """
    if not y.is_floating_point():
        return wb.accuracy(logits.cpu(), y)
    predicted, actual = logits.cpu() > 0, y > 0.5
    return float(2 * (predicted & actual).sum() / (predicted.sum() + actual.sum()).clamp(min=1))


def constant_f1(y: Tensor) -> float:
    """Largest micro-averaged F1 score of a prediction that is the same for all nodes.

    Args:
        y: as for `micro_f1`.
    """
    if not y.is_floating_point():
        return wb.training.majority_accuracy(y)
    shares = (y > 0.5).double().mean(0).sort(descending=True).values  # the most frequent labels are predicted
    counts = torch.arange(1, len(shares) + 1)
    return float((2 * shares.cumsum(0) / (counts + shares.sum())).max())


def learnt(table: pd.DataFrame, by: Sequence[str], *, name: str = "trained") -> Finding:
    """Check that the systems have learnt, by F1 with all neighbours (`workbench.experiment.claims.trained`).

    Args:
        table: rows of `training_rows`.
        by: columns that identify a system.
        name: of the finding.
    """
    return claims.trained(table, value="val_f1", along="step", by=by, name=name)


def best_f1(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The best validation of every run, which is where early stopping ends.

    Args:
        table: rows of `training_rows`.
        by: columns that identify a run.

    Returns:
        One row per run: `by` and `val_f1`.
    """
    return table.groupby([*by], sort=False).val_f1.max(skipna=False).reset_index()


def paired_differences(table: pd.DataFrame, *, value: str, by: Sequence[str], along: str, base: Any) -> pd.DataFrame:
    """Differences between runs that share all but one setting: initial weights, order of the nodes, sampler's seed.

    Args:
        table: one row per run.
        value: column to compare.
        by: columns that two runs of a pair share.
        along: column in which they differ.
        base: value of `along` whose runs are subtracted.

    Returns:
        One row per pair: `by`, `along` and `difference`; NaN where a run of the pair has no value.
    """
    wide = table.pivot_table(value, [*by], along, sort=False)
    apart: Any = wide.sub(wide[base], axis=0)
    there = table.loc[table[along] != base, [*by, along]].drop_duplicates()  # not every data set has all settings
    return there.merge(apart.stack().reset_index(name="difference"), how="left")


def mean_curves(table: pd.DataFrame, values: Sequence[str], by: Sequence[str]) -> pd.DataFrame:
    """Means over runs at every step, with the ends of their 95 % confidence intervals in `…_low` and `…_high`.

    Args:
        table: one row per run and step.
        values: columns to average.
        by: columns that tell the curves apart.
    """
    keys, parts = [*by, "step"], []
    for value in values:
        mean = mean_intervals(table, value=value, by=keys).drop(columns=["half_width", "runs"])
        parts.append(mean.rename(columns={"low": f"{value}_low", "high": f"{value}_high"}).set_index(keys))
    return pd.concat(parts, axis=1).reset_index()


def draw_curves(curves: pd.DataFrame, values: Sequence[str], group: str, title: str) -> Any:
    """Draw the rows of `mean_curves`: quantities one below the other, data sets side by side, intervals as bands.

    Args:
        curves: to draw.
        values: columns of the quantities.
        group: column whose values are lines.
        title: of the figure.
    """
    from workbench.plots.lines import lines

    spread = {NAMES[value]: (f"{value}_low", f"{value}_high") for value in values}
    named = curves.rename(columns=NAMES)
    figure = lines(named, x="step", y=[*spread], spread=spread, band=True, group=group, facet="dataset", title=title)
    return figure.update_yaxes(rangemode="normal")  # the curves are close to each other

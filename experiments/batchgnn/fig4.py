"""BatchGNN, Figures 4 to 6: test accuracy over time, for SAGE, GCN and GIN, with and without the aggregation cache.

A macrobatch contains the same mini-batches as are sampled one by one, so one run stands for both. On data sets of two
classes, where most nodes are of one, the score is the ROC AUC instead, as their authors measure it.
"""

import time
from collections.abc import Iterator
from typing import Any, Literal, Self

import pandas as pd
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.batchgnn.rank_fetches import short_name
from experiments.cooperative.accuracy_runs import mean_curves, paired_differences
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title
from workbench.sampling.batches import EpochOrder

RUN = ["dataset", "model", "seed"]
MARGIN = 0.005
"""Largest difference in accuracy that counts as none: half a point."""
TEST_BATCH = 512
MODELS = {"sage-mean": "SAGE", "gcn": "GCN, mean", "gcn-both": "GCN", "gin": "GIN"}


class Config(DataPointConfig):
    """Training a model of three layers.

    Args:
        model: kind of layer; "gcn-both" is GCN with the symmetric normalisation, as the paper's: degrees are counted in
            the sampled block, and in the cache in the whole graph.
        cached: read the first layer's aggregates, over all neighbours, instead of sampling its edges.
        fanouts: neighbours per layer, input layer first, sampled with replacement.
        test_fanouts: those of a test; GIN is tested as it was trained.
        hidden_dim: width of hidden layers.
        dropout: of SAGE and GCN; GIN has batch norms instead.
        batch_size: training nodes per step, of all ranks.
        test_nodes: test nodes, the same in every test; fewer if there are not as many.
        learning_rate: of Adam.
        steps: number of steps, a multiple of `evaluate_every`.
        evaluate_every: steps between tests.
    """

    model: Literal["sage-mean", "gcn", "gcn-both", "gin"]
    cached: bool
    fanouts: tuple[int, ...] = Field(min_length=2)
    test_fanouts: tuple[int, ...] = Field(min_length=2)
    hidden_dim: PositiveInt
    dropout: float = Field(default=0.5, ge=0, lt=1)
    batch_size: PositiveInt
    test_nodes: PositiveInt
    learning_rate: float
    steps: PositiveInt
    evaluate_every: PositiveInt

    @model_validator(mode="after")
    def _ends_with_a_test(self) -> Self:
        if self.steps % self.evaluate_every or len(self.fanouts) != len(self.test_fanouts):
            raise ValueError(
                f"steps is {self.steps} and evaluate_every {self.evaluate_every}, fanouts {self.fanouts} and "
                f"test_fanouts {self.test_fanouts}; steps must be a multiple, and the fanouts as many"
            )
        return self

    @property
    def model_kind(self) -> str:
        """Of the library, for which the normalisation is an option of the layers."""
        return self.model.removesuffix("-both")

    def build(self, data: Any) -> Any:
        """Build the model as the paper does: dropout for SAGE and GCN, batch norms for GIN."""
        gin = self.model == "gin"
        options: dict[str, Any] = {"norm": "batch"} if gin else {"dropout": self.dropout}
        sizes = {"hidden_dim": self.hidden_dim, "out_dim": data.num_classes, "num_layers": len(self.fanouts)}
        model = wb.build_model(self.model_kind, in_dim=data.num_features, seed=self.seed, **sizes, **options)
        if self.model_kind != self.model:
            for layer in model.layers:
                layer.norm = "both"  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return model.to(self.device)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    model = config.build(data)
    cached = (
        wb.training.AggregatedRows(data.x, wb.macrobatch.aggregate_rows(data.graph, data.x, kind=config.model))
        if config.cached
        else None
    )
    gin = config.model == "gin"  # tested as it was trained
    train = Reader(config, data, cached, config.fanouts)
    test = Reader(config, data, cached if gin else None, config.fanouts if gin else config.test_fanouts)
    order = permutation(stream(0, Purpose.SPLIT), len(data.test_idx))
    nodes = data.test_idx[order[: config.test_nodes]]
    optimizer, seconds, losses = torch.optim.Adam(model.parameters(), lr=config.learning_rate), 0.0, []
    for step, seeds in zip(range(config.steps), training_seeds(config, data), strict=False):
        start = time.perf_counter()
        losses.append(train.step(model, seeds, step, optimizer))
        seconds += time.perf_counter() - start
        if (step + 1) % config.evaluate_every == 0:
            loss, losses = sum(losses) / len(losses), []
            row = {"step": step + 1, "train_seconds": seconds, "loss": loss}
            yield row | scores(test.logits(model, nodes), data.y[nodes])


class Reader:
    """Mini-batches of some nodes and their rows, with sampled or with cached aggregates of the first layer.

    Args:
        config: of the point.
        data: the data set.
        cached: features and their aggregates over all neighbours; None: the last hop is sampled.
        fanouts: input layer first; that of the input layer has no effect with cached aggregates.
    """

    def __init__(self, config: Config, data: Any, cached: Any, fanouts: tuple[int, ...]) -> None:
        sampler: Any = wb.NeighborSampler(fanouts, replace=True, seed=config.seed)
        self._sampler = sampler if cached is None else wb.macrobatch.WithoutInputLayer(sampler)
        self._data, self._graph = data, data.graph.to(config.device)
        self._rows = wb.MemoryRows(data.x) if cached is None else cached

    def _sample(self, nodes: Tensor, step: int) -> wb.MiniBatch:
        return self._sampler.sample(self._graph, nodes.to(self._graph.device), step=step)

    def step(self, model: Any, seeds: Tensor, step: int, optimizer: Any) -> float:
        """Take an optimizer step on the mini-batch of some seeds and return its loss."""
        mb = self._sample(seeds, step)
        return float(wb.train_step(model, mb, self._rows, self._data.y, cross_entropy, optimizer))

    @torch.no_grad()
    def logits(self, model: Any, nodes: Tensor) -> Tensor:
        """Outputs for some nodes, in evaluation mode; every test draws the same neighbours."""
        model.eval()
        found = []
        for step, seeds in enumerate(nodes.split(TEST_BATCH)):
            mb = self._sample(seeds, step)
            rows = wb.Inputs.of(self._rows.read(mb.node_ids)).to(self._graph.device)
            found.append(model(mb.blocks, rows.x, aggregated=rows.aggregated).cpu())
        model.train()
        return torch.cat(found)


def scores(logits: Tensor, y: Tensor) -> dict[str, float | None]:
    """Share of nodes whose class is predicted, and with two classes the ROC AUC; beside the score of the largest class.

    Args:
        logits: [nodes, classes].
        y: classes [nodes].
    """
    accuracy, share = wb.accuracy(logits, y), wb.training.majority_accuracy(y)
    if logits.shape[1] > 2:
        return {"accuracy": accuracy, "roc_auc": None, "majority": share}
    return {"accuracy": accuracy, "roc_auc": wb.training.roc_auc(logits[:, 1] - logits[:, 0], y), "majority": 0.5}


def training_seeds(config: Config, data: Any) -> Iterator[Tensor]:
    """The seeds of every step, epoch after epoch."""
    train = data.train_idx.cpu()
    order, epoch = EpochOrder(len(train), config.batch_size, drop_last=True, seed=config.seed), 0
    if not len(order):
        raise ValueError(f"batch_size is {config.batch_size}, but there are {len(train)} training nodes; choose less")
    while True:
        yield from (train[positions] for _, positions in order.positions(epoch))
        epoch += 1


def with_systems(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with names as people read them."""
    return with_score(table).assign(
        system=table.cached.map({True: "cached aggregates", False: "sampled (one by one = macrobatch)"}),
        layer=table.model.map(MODELS),
        data=table.dataset.map(short_name),
    )


def with_score(table: Any) -> Any:
    """Rows with the score by which models are compared: accuracy, with two classes ROC AUC."""
    if "roc_auc" not in table:
        return table.assign(score=table.accuracy)
    by_auc = table.groupby("dataset").roc_auc.transform("count") > 0
    return table.assign(score=table.roc_auc.where(by_auc, table.accuracy))


def best(table: pd.DataFrame) -> pd.DataFrame:
    """The best test of every run."""
    return with_score(table).groupby([*RUN, "cached"], sort=False).score.max(skipna=False).reset_index()


def differences(table: pd.DataFrame) -> pd.DataFrame:
    """Best score with the cache minus that without, one row per data set, model and seed."""
    return paired_differences(best(table), value="score", by=RUN, along="cached", base=False)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    apart: Any = 100 * differences(table).groupby(["model", "dataset"], sort=False).difference.mean()
    of = {f"model{place}": found for place, (_, found) in enumerate(apart.groupby("model", sort=False))}
    models = dict.fromkeys(apart.index.get_level_values("model"))
    told = ", ".join(f"{MODELS[model]} {{model{place}:+.1f}}" for place, model in enumerate(models))
    name = "accuracy (ROC AUC with two classes)" if "roc_auc" in table and table.roc_auc.any() else "accuracy"
    return Title(f"Test {name} with cached aggregates, in points against sampling: {told}", **of)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    keys, x = ["data", "layer", "system"], "seconds of training, fastest run"
    named = with_systems(table)
    fastest = named.groupby([*keys, "step"]).train_seconds.transform("min")  # what else the machine does only adds time
    curves = mean_curves(named.assign(train_seconds=fastest), ["score", "train_seconds"], keys)
    return lines(
        curves.rename(columns={"train_seconds": x}),
        x=x,
        y="score",
        spread={"score": ("score_low", "score_high")},
        band=True,
        group="system",
        facet=["data", "layer"],
        title=title(table, reported).text,
    ).update_yaxes(rangemode="normal")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = differences(table)
    gin, gcn, sage = (rows[rows.model.str.startswith(model)] for model in ("gin", "gcn", "sage"))
    on_arxiv = gcn.dataset.map(short_name) == "arxiv"
    less, more = "with the cache GIN is less accurate", "with the cache GCN on arxiv is more accurate"
    within = f"stays within {100 * MARGIN:g} points"
    kept, elsewhere = f"with the cache SAGE {within}", f"with the cache GCN {within} on other graphs than arxiv"
    same = {"least": -MARGIN, "most": MARGIN}
    return [
        *_compared(table, "gin-loses", less, gin, most=0.0),
        *_compared(table, "gcn-gains-on-arxiv", more, gcn[on_arxiv], least=0.0),
        *_compared(table, "gcn-keeps-elsewhere", elsewhere, gcn[~on_arxiv], **same),
        *_compared(table, "sage-keeps", kept, sage, **same),
    ]


def _compared(table: pd.DataFrame, name: str, statement: str, rows: pd.DataFrame, **bound: float) -> list[Finding]:
    """A finding on some differences, if all models that they compare have learnt; none without rows."""
    if not len(rows):
        return []
    by, models = ["dataset", "model", "cached"], rows[["dataset", "model"]].drop_duplicates()
    runs = with_score(table).merge(models)
    learnt = claims.trained(runs, value="score", along="step", by=by, name=f"trained-where-{name}")
    options: dict[str, Any] = {"value": "difference", "by": ["dataset"], "form": "+.2%", "looks": (5, 30, 80), **bound}
    compared = decided_within(name, statement, rows, **options)
    return claims.once_trained([compared], learnt)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Best test score in percent, means with 95 % intervals, and the paired difference in points."""
    keys = ["dataset", "model"]
    here = mean_intervals(best(table), value="score", by=[*keys, "cached"]).set_index([*keys, "cached"])
    apart = mean_intervals(differences(table), value="difference", by=keys).set_index(keys)
    told = (100 * here.score).map("{:.2f}".format) + " ± " + (100 * here.half_width).map("{:.2f}".format)
    wide: Any = told.unstack("cached").rename(columns={False: "sampled", True: "cached"})
    points = (100 * apart.difference).map("{:+.2f}".format) + " ± " + (100 * apart.half_width).map("{:.2f}".format)
    paper = reported.set_index(keys).cached if len(reported) else {}
    found = wide.assign(difference=points).rename_axis(columns=None).reset_index()
    return found.assign(
        paper=[paper.get((short_name(one.dataset), one.model.removesuffix("-both")), "") for one in found.itertuples()]
    )

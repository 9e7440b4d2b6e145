"""Betty, Figure 3: memory of a training step by component, by our terms and by Betty's."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding, groups_with
from workbench.experiment.title import Title
from workbench.memory.betty import betty_terms
from workbench.memory.estimator import estimate_memory
from workbench.meter.limit import free_bytes
from workbench.training.profile import profile_epoch

NAMES = {"ours": "our terms", "betty": "Betty's terms"}
HALF = 0.5
CLOSE = 0.03


class Config(ModelConfig):
    """All training nodes form one batch."""

    learning_rate: float


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, data.train_idx)
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    counts = {
        "ours": estimate_memory(model, batch, optimizer=optimizer),
        "betty": betty_terms(model, batch, optimizer=optimizer),
    }
    peak_bytes = None
    if counts["ours"].peak_bytes <= free_bytes(config.device):
        peak_bytes = profile_epoch(model, [[batch]], data.x, data.y, cross_entropy, optimizer).peak_bytes
    for counted, estimate in counts.items():
        for term, size in estimate.terms.items():
            yield {
                "counted": counted,
                "term": term,
                "term_bytes": size,
                "share": size / estimate.peak_bytes,
                "estimate_bytes": estimate.peak_bytes,
                "peak_bytes": peak_bytes,
            }


def totals(table: pd.DataFrame) -> pd.DataFrame:
    """Estimated and measured bytes, and the relative errors of the estimates."""
    points = table.groupby(["dataset", "model"], sort=False)
    counted: Any = table.groupby(["dataset", "model", "counted"], sort=False).estimate_bytes.mean(skipna=False)
    found = counted.unstack("counted").rename(columns=NAMES)
    found["measured"] = points.peak_bytes.max(skipna=False)
    return found.assign(**{f"error of {name}": found[name] / found["measured"] - 1 for name in NAMES.values()})


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    inputs: Any = (
        table.query("model == 'sage-mean' and counted == 'ours' and term == 'inputs'").set_index("dataset").share
    )
    return Title("Input features are {inputs:.0%} of the memory with the mean aggregator", inputs=inputs)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import component_bars

    return component_bars(
        [bar for _, point in _points(table) for bar in _bars(point)], title=title(table, reported).text
    )


def _points(table: pd.DataFrame) -> Any:
    return table.groupby(["model", "dataset"], sort=False)


def _bars(point: pd.DataFrame) -> Iterator[Any]:
    """Bars of one model on one data set."""
    from workbench.plots.bars import Component

    at, peak = (point.model.iloc[0], point.dataset.iloc[0]), point.peak_bytes.iloc[0]
    for counted, terms in point.groupby("counted", sort=False).groups.items():
        rows = point.loc[terms]
        sizes = dict(zip(rows.term, rows.term_bytes.astype(int), strict=True))
        yield Component(*at, NAMES[str(counted)], sizes, sum(sizes.values()))
    if pd.notna(peak):
        yield Component(*at, "measured", None, int(peak))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["dataset", "model", "counted"]
    terms: Any = table.groupby(by).term_bytes
    known = terms.transform("count") == terms.transform("size")  # beside a term that is lost there is no order
    inputs = table.assign(place=terms.rank(ascending=False).where(known)).query("term == 'inputs'")
    mean, lstm = inputs.query("model == 'sage-mean'"), inputs.query("model == 'sage-lstm'")
    measured = groups_with(table, "peak_bytes", ["dataset", "model"])  # of the others there is only the estimate
    ours: Any = totals(measured).reset_index().assign(error=lambda rows: rows[f"error of {NAMES['ours']}"].abs())
    return [
        claims.within(
            "inputs-largest",
            "with the mean aggregator, input features are the largest part",
            mean,
            value="place",
            by=by,
            most=1,
        ),
        claims.within(
            "inputs-half", "and at least half of the memory", mean, value="share", by=by, least=HALF, form=".1%"
        ),
        claims.within(
            "inputs-second",
            "with LSTM's aggregator, input features come second",
            lstm,
            value="place",
            by=by,
            least=2,
            most=2,
        ),
        claims.within(
            "terms-add-up",
            "our terms add up to the measured peak, within 3 %",
            ours,
            value="error",
            by=["dataset", "model"],
            most=CLOSE,
            form=".2%",
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Share of the input features with the mean aggregator, of the memory as our terms count it."""
    rows: Any = table.query("model == 'sage-mean' and counted == 'ours' and term == 'inputs'")
    return {"inputs-55-percent": rows.set_index(["dataset", "model"]).share}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Shares of the components; the paper gives one number, for ogbn-products and the mean aggregator."""
    shares = table.assign(counted=table.counted.map(NAMES)).pivot_table(
        "share", "term", ["model", "dataset", "counted"], sort=False
    )
    shares.columns = [", ".join(column) for column in shares.columns]
    shares = shares[(shares > 0).any(axis=1)]
    shares.insert(0, "sage-mean, ogbn-products, paper", reported.set_index("term")["share"])
    return shares.rename_axis("component").reset_index()

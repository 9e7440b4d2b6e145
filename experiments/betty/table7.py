"""Betty, Table 7: memory of a training step as estimated beforehand, by our terms and by Betty's, and as measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt, model_validator
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.betty import betty_terms
from workbench.memory.estimator import estimator_for
from workbench.memory.training_setup import Backend, TrainingSetup
from workbench.meter.limit import free_bytes
from workbench.training.profile import profile_epoch

MOST, MEDIAN, PAPERS_MOST = 0.07, 0.03, 0.082
NATIVE = "sage-lstm, native"


class Config(ModelConfig):
    """All training nodes form one batch.

    Args:
        method: of `partition_batch`, which cuts the batch.
        num_parts: number of micro-batches.
        native_lstm: run torch's own LSTM, without oneDNN and cuDNN; Betty counted the tensors of that one.
        learning_rate: of Adam.
    """

    method: PartitionMethod
    num_parts: PositiveInt
    native_lstm: bool = False
    learning_rate: float

    @model_validator(mode="after")
    def _native_is_for_lstm(self) -> "Config":
        if self.native_lstm and self.model != "sage-lstm":
            raise ValueError(
                f"native_lstm is set, but {self.model} has no LSTM; leave it out or set model to sage-lstm"
            )
        return self


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, data.train_idx)
    micro = batch.split(wb.partition_batch(batch, config.num_parts, method=config.method, seed=config.seed))
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    with lstm_kernels(config.native_lstm):
        backend = Backend(Backend.of(model).device, "native") if config.native_lstm else None
        estimate = estimator_for(TrainingSetup(model, optimizer=optimizer, backend=backend), batch)
        ours = max(estimate(mb, accumulating=part > 0).peak_bytes for part, mb in enumerate(micro))
        betty = max(betty_terms(model, mb, optimizer=optimizer).peak_bytes for mb in micro)
        peak = None
        if ours <= free_bytes(config.device):
            peak = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer).peak_bytes
    yield {
        "peak_bytes": peak,
        "ours_bytes": ours,
        "betty_bytes": betty,
        "ours_error": ours / peak - 1 if peak else None,
        "betty_error": betty / peak - 1 if peak else None,
    }


@contextmanager
def lstm_kernels(native: bool) -> Iterator[None]:
    """Disable oneDNN and cuDNN in the block if `native`, so that torch runs its own LSTM."""
    libraries: list[Any] = [
        torch.backends.mkldnn,
        torch.backends.cudnn,
    ]  # their flags() warn about settings that stay as they are
    before = [library.enabled for library in libraries]
    try:
        for library, enabled in zip(libraries, before, strict=True):
            library.enabled = enabled and not native
        yield
    finally:
        for library, enabled in zip(libraries, before, strict=True):
            library.enabled = enabled


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Every point twice, with our estimate's error and with Betty's: signed, and its size."""
    native: Any = table["native_lstm"].map(str) == "True"
    rows = table.assign(layers=table.model.where(~native, NATIVE))
    both = [rows.assign(estimate=name, error=rows[f"{name}_error"].astype(float)) for name in ("ours", "betty")]
    return pd.concat(both, ignore_index=True).assign(size=lambda rows: rows.error.abs())


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).set_index(["dataset", "layers", "num_parts"])
    ours, betty = (rows[rows.estimate == name]["size"].dropna() for name in ("ours", "betty"))
    return Title("Ours is at most {ours.most:.2%} off, Betty's up to {betty.most:.0%}", ours=ours, betty=betty)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import error_dots

    rows, names = shown(table), {"ours": "our estimate", "betty": "Betty's terms"}
    rows = rows.assign(estimate=rows.estimate.map(names))
    counts = ", ".join(map(str, sorted(rows.num_parts.unique())))
    subtitle = f"against the measured peak; a dot for each of K = {counts} micro-batches; shaded: {MOST:.0%} around it"
    return error_dots(
        rows,
        x="layers",
        group="estimate",
        facet="dataset",
        within=MOST,
        title=title(table, reported).text,
        subtitle=subtitle,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    measured: Any = table[table.peak_bytes.notna()]  # a step that would not fit in memory is not run
    rows, by = shown(measured), ["dataset", "layers", "num_parts"]
    ours, lstm = rows.query("estimate == 'ours'"), rows.query("estimate == 'betty' and layers == @NATIVE")
    return [
        claims.within(
            "ours-within-7-percent", "ours is at most 7 % off", ours, value="size", by=by, most=MOST, form=".2%"
        ),
        claims.median_within(
            "ours-median-3-percent", "and 3 % at the median", ours, value="size", by=by, most=MEDIAN, form=".2%"
        ),
        claims.least(
            "ours-below-betty",
            "ours is less off than Betty's for every kind of layer",
            rows,
            value="size",
            among="estimate",
            winner="ours",
            rivals=["betty"],
            by=by,
        ),
        claims.within(
            "betty-lstm",
            "Betty's terms are at most 8.2 % off for the LSTM that they were made for",
            lstm,
            value="size",
            by=by,
            most=PAPERS_MOST,
            form=".1%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Sizes of the errors for the LSTM aggregator, as shares; the paper's have no sign."""
    lstm = shown(table).query("model == 'sage-lstm'")
    lstm = lstm.assign(error=lstm.error.abs())
    names = lstm.estimate.map({"ours": "ours", "betty": "Betty's"}) + lstm.layers.str.removeprefix("sage-lstm")
    here = lstm.assign(names=names).pivot_table("error", ["dataset", "num_parts"], "names", sort=False)
    paper = reported.set_index(["dataset", "num_parts"])[["betty_error"]].set_axis(["Betty's, paper"], axis=1)
    return pd.concat([paper, here], axis=1).rename_axis(["data set", "K"]).reset_index()

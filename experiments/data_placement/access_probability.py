"""Access probabilities beside counts of sampled batches: rank correlation, and hit rate of the buffer."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

NAMES = {"mass": "expected mass (paper)", "hops": "inclusion, by hops", "inclusion": "inclusion"}
SKETCHED = "sketched, 8 draws"
REFERENCE = "presampled, all batches"
CASE = ["dataset", "batch_size"]


class Config(DataPointConfig):
    """Batches of one graph, and a buffer of the rows that they read most.

    Args:
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch.
        buffer_share: rows of the buffer, as a share of all rows.
        reference_batches: batches that the reference counts; as many others measure hit rates.
        counted: smaller numbers of counted batches, to compare.
    """

    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    buffer_share: float = Field(gt=0, le=1)
    reference_batches: PositiveInt
    counted: tuple[PositiveInt, ...]


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    of = partial(
        wb.placement.inclusion_probability,
        data.graph,
        data.train_idx,
        fanouts=config.fanouts,
        batch_size=config.batch_size,
    )
    counted = partial(of, method="presampled")
    reference = counted(num_batches=config.reference_batches, seed=config.seed)
    others = counted(num_batches=config.reference_batches, seed=config.seed + 1)
    rows = max(1, int(config.buffer_share * data.graph.num_nodes))
    estimates = {name: of(method=method) for method, name in NAMES.items()}
    estimates[SKETCHED] = of(method="sketched", num_draws=8, seed=config.seed + 3)
    for number in config.counted:
        estimates[f"presampled, {number:,} batches"] = counted(num_batches=number, seed=config.seed + 2)
    for name, p in {**estimates, REFERENCE: reference}.items():
        yield {
            "estimate": name,
            "buffer_rows": rows,
            "rank_correlation": rank_correlation(p, reference),
            "hit_rate": hit_rate(p, others, rows),
            "points_below": 100 * (hit_rate(reference, others, rows) - hit_rate(p, others, rows)),
        }


def rank_correlation(p: Tensor, q: Tensor) -> float:
    """Spearman's rank correlation; equal values have their mean rank."""
    ranks = [pd.Series(values.cpu().numpy()).rank().to_numpy() for values in (p, q)]
    return float(np.corrcoef(*ranks)[0, 1])  # pyright: ignore[reportCallIssue, reportArgumentType]


def hit_rate(p: Tensor, read: Tensor, rows: int) -> float:
    """Share of reads that a buffer of the most probable rows serves; `read`: how often each row is read."""
    best = p.argsort(descending=True, stable=True)[:rows]
    return float(read[best].sum() / read.sum())


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    below: Any = table[table.estimate == SKETCHED].set_index(CASE).points_below.clip(lower=0)
    text = "Sketched probability: a buffer hits at most {below.most:.1f} points less than by counts"
    return Title(text, below=below)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Points of hit rate below the reference's buffer, and rank correlation, by data set."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from workbench.plots.axes import bold
    from workbench.plots.style import looks, merge_legend, titled

    rows: Any = table[table.estimate != REFERENCE]
    cases = rows.dataset.str.removeprefix("synthetic-") + ", " + rows.batch_size.astype(str)
    names = ("hit rate below that of all counted batches", "rank correlation with all counted batches")
    figure = make_subplots(1, 2, subplot_titles=[bold(name) for name in names], horizontal_spacing=0.12)
    for name, look in looks(dict.fromkeys(rows.estimate)).items():
        here: Any = rows.estimate == name
        marker = {"color": look.color, "symbol": look.symbol, "size": 9}
        for column, value in enumerate(("points_below", "rank_correlation"), 1):
            dots: Any = go.Scatter(
                x=cases[here].tolist(), y=rows[here][value].tolist(), mode="markers", name=look.name, marker=marker
            )
            figure.add_trace(dots, 1, column)
    figure.add_hline(y=1, line={"dash": "dot", "width": 1}, row=1, col=1)  # pyright: ignore[reportArgumentType]
    figure.update_yaxes(title_text="points", row=1, col=1)
    figure.update_xaxes(tickangle=-30, type="category")
    figure.update_annotations(font_size=13)
    merge_legend(figure)
    return titled(
        figure,
        title(table, reported).text,
        subtitle="data set and batch size",
        height=460,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    tables: Any = table
    inclusion, mass = (tables[tables.estimate == NAMES[name]] for name in ("inclusion", "mass"))
    sketched = tables[tables.estimate == SKETCHED]
    correlated = table[table.estimate.isin((NAMES["inclusion"], NAMES["mass"]))]
    return [
        claims.within(
            "hit-rate",
            "a buffer of the rows with the highest inclusion probability hits within 1 point of the counted one",
            inclusion,
            value="points_below",
            by=CASE,
            most=1.0,
            form=".3f",
        ),
        claims.within(
            "hit-rate-sketched",
            "so does one by sketched inclusion probabilities, from eight draws that start at all training nodes",
            sketched,
            value="points_below",
            by=CASE,
            most=1.0,
            form=".3f",
        ),
        claims.within(
            "hit-rate-mass",
            "so does one by expected mass, the paper's",
            mass,
            value="points_below",
            by=CASE,
            most=1.0,
            form=".3f",
        ),
        claims.least(
            "ranks",
            "inclusion probabilities correlate better with counts than expected mass does",
            correlated.assign(uncorrelated=1 - correlated.rank_correlation),
            value="uncorrelated",
            among="estimate",
            winner=NAMES["inclusion"],
            rivals=[NAMES["mass"]],
            by=CASE,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation, hit rate and points below the reference, by data set and estimate."""
    shown: Any = table[[*CASE, "estimate", "rank_correlation", "hit_rate", "points_below"]]
    return shown

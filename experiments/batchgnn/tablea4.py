"""BatchGNN, Table A4: preparation and forward pass per mini-batch, and how far ranks are apart. A view of Table 4."""

from typing import Any

import pandas as pd

from experiments.batchgnn.rank_fetches import MACROBATCH, ONE_BY_ONE, SHORT, short_name
from experiments.batchgnn.table4 import CASE, MODELS, papers, several_ranks
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows = several_ranks(table)
    share = _of_one_by_one(rows).set_axis(pd.MultiIndex.from_frame(rows[CASE]))
    of = {f"way{place}": share[(rows.fetching == name).to_numpy()] for place, name in enumerate(SHORT)}
    told = ", ".join(f"{{way{place}:.0%}} {SHORT[name]}" for place, name in enumerate(SHORT))
    return Title(f"Slowest − fastest rank: {told}", **of)


def _of_one_by_one(rows: Any) -> Any:
    """What the slowest rank takes longer than the fastest one, of the time of mini-batches one by one."""
    alone = rows[rows.fetching == ONE_BY_ONE].set_index(CASE).batch_seconds.rename("alone_seconds")
    return rows.range_seconds / rows.join(alone, on=CASE).alone_seconds


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = several_ranks(table)
    share = _of_one_by_one(rows)
    cases = rows.dataset.map(short_name) + ", " + rows.model.map(MODELS) + rows.num_ranks.map(", {} ranks".format)
    return interval_dots(
        rows.assign(case=cases, share=share, half=float("nan")),
        x="case",
        y="share",
        group="fetching",
        half_width="half",
        title=title(table, reported).text,
        subtitle="per mini-batch, of the time that preparation and forward pass take one by one",
    ).update_yaxes(title_text="slowest − fastest, of one by one", rangemode="tozero")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    options: dict[str, Any] = {"among": "fetching", "winner": MACROBATCH, "rivals": [ONE_BY_ONE], "by": CASE}
    rows = several_ranks(table)
    return [
        claims.least(
            "faster", "preparation and forward pass take less time", rows, value="batch_seconds", timed=True, **options
        ),
        claims.least(
            "more-balanced",
            "with macrobatches ranks are less far apart",
            rows,
            value="range_seconds",
            timed=True,
            **options,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds of preparation and forward pass per mini-batch, and slowest − fastest rank; the paper's and ours."""
    keys = [*CASE, "fetching"]
    here = several_ranks(table).assign(dataset=lambda rows: rows.dataset.map(short_name))
    both = here.merge(papers(reported), on=keys, how="left", suffixes=("", "_paper"))
    columns = {key: both[key] for key in keys}
    for name, text in {"batch_seconds": "preparation + forward", "range_seconds": "slowest − fastest"}.items():
        columns |= {f"{text}, paper": both[f"{name}_paper"], text: both[name]}
    return pd.DataFrame(columns)

"""BatchGNN, Tables 4, A1 and A2: the parts of an epoch on real ranks, by layer, number of ranks and way to fetch."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

import workbench as wb
from experiments.batchgnn.rank_epochs import PARTS, RankConfig, on_rank
from experiments.batchgnn.rank_fetches import CACHE, MACROBATCH, ONE_BY_ONE, SHORT, SYSTEMS, short_name
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "model", "num_ranks"]
MODELS = {"sage-mean": "SAGE", "gcn": "GCN", "gin": "GIN"}


class Config(RankConfig):
    """One layer kind on a number of ranks."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    values = config.model_dump(mode="json")
    yield from wb.run_ranks(on_rank, values, config.num_ranks, timeout_seconds=config.timeout_seconds)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    return Title("Macrobatches: an epoch takes {gain:.2f} of the time of one by one", gain=speedups(table))


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import stage_bars

    return stage_bars(
        [_bar(row) for row in table.sort_values(CASE, kind="stable").to_dict("records")],
        axis="time of an epoch",
        title=title(table, reported).text,
        subtitle="mean over the ranks, median over the epochs; the ranks share this machine's cores",
    )


def _bar(row: dict[Any, Any]) -> Any:
    from workbench.plots.bars import StageBar

    seconds = {part: row[f"{part}_seconds"] for part in PARTS}
    ranks = f"{row['num_ranks']} rank{'s' * (row['num_ranks'] > 1)}"
    panel = f"{short_name(row['dataset'])} · {MODELS[row['model']]}, {ranks}"
    return StageBar(panel, "", SHORT[row["fetching"]], seconds)


def speedups(table: pd.DataFrame) -> Any:
    """Seconds of an epoch with macrobatches relative to mini-batches one by one, by case."""
    wide: Any = table.pivot_table("epoch_seconds", CASE, "fetching")
    return wide[MACROBATCH] / wide[ONE_BY_ONE]


def with_preparation(table: pd.DataFrame) -> Any:
    """Rows of several ranks, with the seconds of sampling and fetching together."""
    several: Any = table[table.num_ranks > 1]
    return several.assign(prepared_seconds=several.topology_seconds + several.features_seconds)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    several = with_preparation(table)
    options: dict[str, Any] = {"among": "fetching", "by": CASE}
    alone: dict[str, Any] = options | {"winner": MACROBATCH, "rivals": [ONE_BY_ONE]}
    cached: dict[str, Any] = options | {"winner": CACHE, "rivals": [MACROBATCH]}
    return [
        claims.least("fewer-rows", "macrobatches fetch fewer rows than mini-batches", several, value="rows", **alone),
        claims.least("fewer-relays", "macrobatches take fewer relays", several, value="relays", **alone),
        claims.least(
            "less-topology", "with the cache less topology is fetched", several, value="topology_bytes", **cached
        ),
        claims.least(
            "faster-preparation",
            "with macrobatches sampling and fetching take less time",
            several,
            value="prepared_seconds",
            timed=True,
            **alone,
        ),
        claims.least(
            "faster-epoch",
            "with macrobatches an epoch takes less time",
            several,
            value="epoch_seconds",
            timed=True,
            **alone,
        ),
        claims.least(
            "cache-faster", "the cache makes an epoch shorter", several, value="epoch_seconds", timed=True, **cached
        ),
    ]


def papers(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows, by how the systems fetch."""
    return reported.assign(fetching=reported.system.map(SYSTEMS))


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """How many times faster macrobatches prepare and train than mini-batches one by one, and the cache than they."""
    several = with_preparation(table)
    ways: dict[str, Any] = {"among": "fetching", "by": CASE}
    alone, cached = (ONE_BY_ONE, MACROBATCH), (MACROBATCH, CACHE)
    return {
        "preparation-6-times": claims.method_ratios(several, value="prepared_seconds", between=alone, **ways),
        "epoch-a-third": claims.method_ratios(several, value="epoch_seconds", between=alone, **ways),
        "cache-1.2-times": claims.method_ratios(several, value="epoch_seconds", between=cached, **ways),
    }


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds of an epoch by part, the paper's and ours, and of converting its mini-batches for DGL and PyG."""
    keys = ["dataset", "model", "num_ranks", "fetching"]
    here = table.assign(dataset=table.dataset.map(short_name))
    both = here.merge(papers(reported), on=keys, how="left", suffixes=("", "_paper"))
    columns = {key: both[key] for key in keys}
    for part in [*PARTS, "epoch"]:
        if f"{part}_seconds_paper" in both:
            columns[f"{part}, paper"] = both[f"{part}_seconds_paper"]
        columns[part] = both[f"{part}_seconds"]
    for library in ("dgl", "pyg"):
        if (column := f"export_{library}_seconds") in both:
            columns[f"export to {library.upper()}"] = both[column]
    return pd.DataFrame(columns)

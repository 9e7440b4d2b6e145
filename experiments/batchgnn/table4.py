"""BatchGNN, Tables 4, A1 and A2: the parts of an epoch on real ranks, by layer, number of ranks and way to fetch.

DistDGL itself is a series of its own; "one by one" fetches like it, within this library.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

import workbench as wb
from experiments.batchgnn.distdgl import epochs_of
from experiments.batchgnn.rank_epochs import PARTS, RankConfig, on_rank
from experiments.batchgnn.rank_fetches import CACHE, DISTDGL, MACROBATCH, ONE_BY_ONE, SHORT, SYSTEMS, short_name
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "model", "num_ranks"]
MODELS = {"sage-mean": "SAGE", "gcn": "GCN", "gin": "GIN"}
SAME = 0.02
"""Claimed of rows that DistDGL and "one by one" fetch: the largest difference, as both draw neighbours at random."""
BARS = {DISTDGL: DISTDGL} | SHORT


class Config(RankConfig):
    """One layer kind on a number of ranks."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    if config.system == DISTDGL:
        yield epochs_of(config)
        return
    values = config.model_dump(mode="json")
    yield from wb.run_ranks(on_rank, values, config.num_ranks, timeout_seconds=config.timeout_seconds)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    text, gains = "Macrobatches: an epoch takes {gain:.2f} of the time of one by one", {"gain": speedups(table)}
    if has_distdgl(table):
        text, gains = text + ", {beside:.2f} of DistDGL's", gains | {"beside": 1 / gains_over(DISTDGL, table, "epoch")}
    return Title(text, **gains)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import stage_bars

    place = table.fetching.map([*BARS].index)
    in_order = table.assign(place=place).sort_values([*CASE, "place"], kind="stable")
    return stage_bars(
        [_bar(row) for row in in_order.to_dict("records")],
        axis="time of an epoch",
        title=title(table, reported).text,
        subtitle="mean over the ranks, median over the epochs; the ranks share this machine's cores",
    )


def _bar(row: dict[Any, Any]) -> Any:
    from workbench.plots.bars import StageBar

    seconds = {part: row[f"{part}_seconds"] for part in PARTS}
    seconds["waiting, rest"] = max(0.0, row["epoch_seconds"] - sum(seconds.values()))
    ranks = f"{row['num_ranks']} rank{'s' * (row['num_ranks'] > 1)}"
    panel = f"{short_name(row['dataset'])} · {MODELS[row['model']]}, {ranks}"
    return StageBar(panel, "", BARS[row["fetching"]], seconds)


def speedups(table: pd.DataFrame) -> Any:
    """Seconds of an epoch with macrobatches relative to mini-batches one by one, by case."""
    return 1 / gains_over(ONE_BY_ONE, table, "epoch")


def gains_over(system: str, table: pd.DataFrame, part: str) -> Any:
    """Seconds of a system over those of macrobatches, by case that has both."""
    between = (system, MACROBATCH)
    return claims.method_ratios(table, value=f"{part}_seconds", among="fetching", between=between, by=CASE)


def several_ranks(table: pd.DataFrame) -> Any:
    """Rows of several ranks of this library, of which every message is counted and every mini-batch timed."""
    return table[(table.num_ranks > 1) & (table.fetching != DISTDGL)]


def has_distdgl(table: pd.DataFrame) -> bool:
    """Whether DistDGL itself has rows in a table: it runs on Linux, with the rights of root."""
    return bool((table.fetching == DISTDGL).any())


def with_preparation(table: pd.DataFrame) -> Any:
    """Rows of several ranks, with the seconds until a mini-batch's rows are one matrix, as those of DistDGL come."""
    several: Any = table[table.num_ranks > 1]
    parts = several.topology_seconds + several.features_seconds + several.export_seconds
    return several.assign(prepared_seconds=parts)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    several = with_preparation(table)
    options: dict[str, Any] = {"among": "fetching", "by": CASE}
    alone: dict[str, Any] = options | {"winner": MACROBATCH, "rivals": [ONE_BY_ONE]}
    cached: dict[str, Any] = options | {"winner": CACHE, "rivals": [MACROBATCH]}
    found = [
        claims.least("fewer-rows", "macrobatches fetch fewer rows than mini-batches", several, value="rows", **alone),
        claims.least("fewer-relays", "macrobatches take fewer relays", several, value="relays", **alone),
        claims.least(
            "less-topology", "with the cache less topology is fetched", several, value="topology_bytes", **cached
        ),
        claims.least(
            "faster-preparation",
            "with macrobatches sampling, fetching and export take less time",
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
    return [*found, *_beside_distdgl(several)] if has_distdgl(several) else found


def _beside_distdgl(several: pd.DataFrame) -> list[Finding]:
    """In the cases that DistDGL ran."""
    both: Any = several.merge(several.loc[several.fetching == DISTDGL, CASE])
    options: dict[str, Any] = {"among": "fetching", "winner": MACROBATCH, "rivals": [DISTDGL], "by": CASE}
    rows = claims.method_ratios(both, value="rows", among="fetching", between=(DISTDGL, ONE_BY_ONE), by=CASE)
    same = f"one by one fetches as many rows as DistDGL, within {SAME:.0%}"
    faster = "with macrobatches sampling, fetching and export take less time than with DistDGL"
    shorter = "with macrobatches an epoch takes less time than with DistDGL"
    return [
        claims.within(
            "rows-of-distdgl",
            same,
            rows.rename("ratio").reset_index(),
            value="ratio",
            by=CASE,
            least=1 - SAME,
            most=1 + SAME,
        ),
        claims.least("preparation-below-distdgl", faster, both, value="prepared_seconds", timed=True, **options),
        claims.least("epoch-below-distdgl", shorter, both, value="epoch_seconds", timed=True, **options),
    ]


def papers(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows, by how the systems fetch; its DistDGL is the peer of one by one and of DistDGL here."""
    found = reported.assign(fetching=reported.system.map(SYSTEMS))
    return pd.concat([found, found[found.fetching == ONE_BY_ONE].assign(fetching=DISTDGL)])


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """How many times faster macrobatches prepare and train than DistDGL, where it did not run than mini-batches one by
    one, and the cache than they."""
    several = with_preparation(table)
    rival = DISTDGL if has_distdgl(several) else ONE_BY_ONE
    cached: dict[str, Any] = {"among": "fetching", "between": (MACROBATCH, CACHE), "by": CASE}
    return {
        "preparation-6-times": gains_over(rival, several, "prepared"),
        "epoch-a-third": gains_over(rival, several, "epoch"),
        "cache-1.2-times": claims.method_ratios(several, value="epoch_seconds", **cached),
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

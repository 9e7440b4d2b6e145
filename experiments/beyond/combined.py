"""The ideas combined: rows that a rank fetches from others, with every combination of six ideas on the same batches.

An idea is on or off, so all combinations are counted. The gain of a combination is how many times fewer rows it
fetches than none of them; two ideas multiply if their gain together is the product of their gains alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import ceil, prod
from typing import Any, Self

import pandas as pd
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title

IDEAS: Mapping[str, str] = {
    "LABOR": "labor",
    "dependence": "kappa",
    "macrobatch": "window",
    "micro-batches": "num_parts",
    "cache": "cache_share",
    "placement": "placed_share",
}
"""Ideas by name, and the column that says how much of each a row has: the least value is without it."""

MEMORIES = ("macrobatch", "cache", "placement")
"""Ideas that keep rows for later reads."""

NEED_MEMORY = [("dependence", "macrobatch"), ("dependence", "cache")]
CANCEL = [*combinations(MEMORIES, 2)]
SPARED = [("macrobatch", "micro-batches"), ("micro-batches", "cache"), ("micro-batches", "placement")]

ALONE = 0.05
"""Change of the gain that counts as none."""

RUN = ["dataset", "seed", "run"]


class Config(DataPointConfig):
    """Batches of one rank, whose rows of features are fetched from the ranks that own them.

    Args:
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per batch, of those that the rank owns.
        num_ranks: ranks, which own nodes at random.
        num_batches: batches that are counted, after as many that fill the cache.
        kappas: numbers of batches per group of dependent ones, from 1: independent ones.
        windows: numbers of batches whose rows are fetched at once, from 1: batch by batch.
        parts: numbers of micro-batches that a batch is divided into, from 1: each fetches its own rows.
        cache_shares: rows of an LRU cache as fractions of the nodes, from 0: no cache.
        placed_shares: rows placed on the rank by their probability of access, as fractions of the nodes, from 0.
        runs: number of seeds.
    """

    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    num_ranks: int = Field(ge=2)
    num_batches: PositiveInt
    kappas: tuple[PositiveInt, ...] = Field(min_length=2)
    windows: tuple[PositiveInt, ...] = Field(min_length=2)
    parts: tuple[PositiveInt, ...] = Field(min_length=2)
    cache_shares: tuple[float, ...] = Field(min_length=2)
    placed_shares: tuple[float, ...] = Field(min_length=2)
    runs: int = Field(ge=2)

    @model_validator(mode="after")
    def _windows_divide(self) -> Self:
        for window in self.windows:
            if self.num_batches % window:
                raise ValueError(
                    f"num_batches is {self.num_batches}; set a multiple of {window}, so that windows are whole"
                )
        return self


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    for number in range(config.runs):
        owner = wb.partition_graph(data.graph, config.num_ranks, method="random", seed=config.seed + number)
        mine = data.train_idx[owner[data.train_idx] == 0]
        probability = wb.placement.inclusion_probability(
            data.graph, mine, fanouts=config.fanouts, batch_size=config.batch_size
        )
        wanted = torch.where(owner == 0, 0, probability).argsort(descending=True, stable=True)
        for labor, kappa, num_parts in product((False, True), config.kappas, config.parts):
            made = wb.LaborSampler if labor else wb.NeighborSampler
            sampler = made(config.fanouts, seed=config.seed + number, dependence=wb.Smoothed(kappa))
            batches = wb.batches(
                data.graph,
                mine,
                sampler=sampler,
                batch_size=config.batch_size,
                drop_last=True,
                seed=config.seed + number,
            )
            steps = [mb for _, mb in batches.steps(2 * config.num_batches)]
            reads = [[part.node_ids for part in split(mb, num_parts)] for mb in steps]
            for window, cached, placed in product(config.windows, config.cache_shares, config.placed_shares):
                local = owner == 0
                local[wanted[: ceil(placed * data.graph.num_nodes)]] = True
                yield {
                    "run": number,
                    "labor": int(labor),
                    "kappa": kappa,
                    "window": window,
                    "num_parts": num_parts,
                    "cache_share": cached,
                    "placed_share": placed,
                    "largest_inputs": sum(max(map(len, parts)) for parts in reads) / len(reads),
                    **fetched(reads, ~local, window=window, capacity=ceil(cached * data.graph.num_nodes)),
                }


def split(mb: wb.MiniBatch, num_parts: int) -> Sequence[wb.MiniBatch]:
    return [mb] if num_parts == 1 else mb.split(wb.partition_batch(mb, num_parts, method="fast"))


def fetched(reads: Sequence[Sequence[Tensor]], remote: Tensor, *, window: int, capacity: int) -> dict[str, float]:
    """Rows per batch that are fetched for the second half of the batches; and rows of the cache and the largest window.

    Args:
        reads: input nodes of every part of every batch.
        remote: bool [num_nodes], whether a node's row is on another rank.
        window: batches whose rows are fetched at once; 1: each part fetches its own.
        capacity: rows of an LRU cache; 0: none.
    """
    asked = [part for parts in reads for part in parts]
    warmup = sum(map(len, reads[: len(reads) // 2]))
    if window > 1:
        windows = [reads[start : start + window] for start in range(0, len(reads), window)]
        asked = [torch.cat([part for parts in batches for part in parts]).unique() for batches in windows]
        warmup = len(windows) // 2
    asked = [ids[remote[ids]] for ids in asked]
    crossing = sum(map(len, asked[warmup:]))
    if capacity:
        trace = wb.AccessTrace.of(asked)
        found = wb.features.simulate_cache(trace, capacity, semantics="batch", num_rows=len(remote), warmup=warmup)
        crossing = found.num_misses
    staged = max(map(len, asked)) if window > 1 else 0
    return {"fetched_rows": crossing / (len(reads) - len(reads) // 2), "held_rows": staged + capacity}


def gains(table: pd.DataFrame) -> Any:
    """How many times fewer rows each combination of ideas fetches than none: one row per run, one column each.

    Ideas are at their ends: off, and as much of each as was counted.
    """
    ends: Any = table
    for column in IDEAS.values():
        ends = ends[ends[column].isin([ends[column].min(), ends[column].max()])]
    used = pd.DataFrame({idea: ends[column] > ends[column].min() for idea, column in IDEAS.items()})
    names = [tuple(used.columns[row]) for row in used.to_numpy()]
    rows = ends.assign(ideas=names).pivot_table("fetched_rows", RUN, "ideas", aggfunc="median")
    return (1 / rows).mul(rows[()], axis=0)


def together(found: Any, ideas: tuple[str, ...]) -> Any:
    """The gain of some ideas together, the product of their gains alone, and how much the one exceeds the other.

    Args:
        found: of `gains`.
        ideas: in the order of `IDEAS`.
    """
    alone: Any = found[[(idea,) for idea in ideas]].prod(axis=1, skipna=False)
    rows: Any = pd.DataFrame({"alone": alone, "together": found[ideas]}).reset_index()
    return rows.assign(ideas=" × ".join(ideas), beyond_product=rows.together / rows.alone - 1)


def pairs(found: Any, which: Sequence[tuple[str, ...]]) -> Any:
    """`together` of pairs."""
    return pd.concat([together(found, pair) for pair in which])


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    whole = together(gains(table), tuple(IDEAS)).groupby("dataset")[["together", "alone"]].mean()
    text = "All six ideas fetch {times:.1f} times fewer rows; the product of their gains would be {product:.1f}"
    return Title(text, times=whole.together, product=whole.alone)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import difference_dots

    found = gains(table)
    shown = pairs(found, [*NEED_MEMORY, *CANCEL, *SPARED, ("LABOR", "dependence"), ("LABOR", "macrobatch")])
    rows = mean_intervals(shown, value="beyond_product", by=["dataset", "ideas"])
    return difference_dots(
        rows,
        x="ideas",
        y="beyond_product",
        group="dataset",
        margin=claims.MARGIN,
        y_title="gain together ÷ product of both gains − 1",
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found = gains(table)
    options: dict[str, Any] = {"value": "beyond_product", "by": ["dataset", "ideas"], "looks": (5, 10), "form": "+.1%"}
    alone: Any = (found[("dependence",)] - 1).reset_index(name="change")
    statement = f"alone, dependent batches fetch as many rows as independent ones, within {ALONE:.0%}"
    bounds: dict[str, Any] = {"value": "change", "by": ["dataset"], "least": -ALONE, "most": ALONE, "form": "+.1%"}
    return [
        decided_within("dependence-alone", statement, alone, **bounds),
        decided_within(
            "dependence-needs-memory",
            "dependent batches gain more with a macrobatch or a cache than the product of both gains",
            pairs(found, NEED_MEMORY),
            least=0.0,
            **options,
        ),
        decided_within(
            "memories-cancel",
            "macrobatch, cache and placement together gain less than the product: they spare the same rows",
            pairs(found, CANCEL),
            most=0.0,
            **options,
        ),
        decided_within(
            "memory-spares-micro-batches",
            "what micro-batches fetch in addition, a macrobatch, a cache or placed rows save again",
            pairs(found, SPARED),
            least=0.0,
            **options,
        ),
        _each_helps(found),
    ]


def _each_helps(found: Any) -> Finding:
    """The rows of all ideas but one beside those of all."""
    ways = {idea: tuple(other for other in IDEAS if other != idea) for idea in IDEAS if idea != "micro-batches"}
    rows: Any = 1 / found[[tuple(IDEAS), *ways.values()]].set_axis(["none", *ways], axis=1)
    return claims.least(
        "each-helps",
        "beside all the others, each idea saves rows, except micro-batches, which save memory",
        rows.melt(ignore_index=False, var_name="without", value_name="rows").reset_index(),
        value="rows",
        among="without",
        winner="none",
        rivals=[*ways],
        by=RUN,
    )


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Gains of each idea alone and of all together, and the product: means over the runs."""
    found = gains(table)
    columns = {idea: found[(idea,)] for idea in IDEAS}
    whole = together(found, tuple(IDEAS)).set_index(RUN)
    columns |= {"all together": whole.together, "product": whole.alone}
    means: Any = pd.DataFrame(columns).groupby("dataset", sort=False).mean()
    return means.reset_index()


def alone_and_together(table: pd.DataFrame, *, dataset: str, **levels: float) -> Any:
    """Draw the rows per batch without any idea, with each one alone, as the product of their gains says, and together.

    Args:
        table: of the experiment.
        dataset: one of its data sets.
        levels: column of an idea → how much of it; of the others none.
    """
    import plotly.graph_objects as go

    from workbench.plots.style import PALETTE, titled

    least: dict[str, Any] = {column: table[column].min() for column in IDEAS.values()}
    rows: Any = table[table.dataset == dataset].groupby([*IDEAS.values()]).fetched_rows.mean()
    used = {idea: column for idea, column in IDEAS.items() if levels.get(column, least[column]) != least[column]}
    counted = {"none": rows[tuple(least.values())]}
    counted |= {idea: rows[tuple((least | {c: levels[c]}).values())] for idea, c in used.items()}
    product_of_all = counted["none"] * prod(counted[idea] / counted["none"] for idea in used)
    bars = {**counted, "product": product_of_all, "together": rows[tuple((least | levels).values())]}
    colors = [PALETTE[0]] * len(counted) + ["#9AA0A6", PALETTE[1]]
    figure = go.Figure(
        go.Bar(x=[*bars], y=[*bars.values()], marker_color=colors, text=[f"{v:,.0f}" for v in bars.values()])
    )
    figure.update_yaxes(title_text="rows fetched per batch")
    return titled(figure, f"{dataset}: {bars['none'] / bars['together']:.1f} times fewer rows together", height=380)

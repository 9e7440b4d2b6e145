"""Cooperative Minibatching, Figure 5b: misses of the caches of several PEs, independent and cooperating, over κ."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import Any

import pandas as pd
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.cooperative.ranks import Ownership, owners, rank_batches
from experiments.cooperative.samplers import SamplerName, build_sampler
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title
from workbench.sampling.batches import EpochOrder

CASE = ["dataset", "sampler", "batch_size"]

BATCHES_CACHED = 2
"""Batches of a PE whose rows its cache has room for; on mag240M, in the paper, about 3."""


class Config(DataPointConfig):
    """Epochs of global batches, whose input rows every rank reads through a cache of its own.

    Args:
        sampler: name in the paper.
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per rank.
        num_ranks: number P of ranks (PEs).
        ownership: who owns a node.
        kappas: numbers of batches per group of dependent ones; 1: independent batches.
        groups: groups of the largest κ that are counted, after as long a warm-up as one of them.
        capacity_share: rows of one rank's cache as a fraction of the nodes.
        runs: number of seeds.
    """

    sampler: SamplerName
    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    num_ranks: int = Field(ge=2)
    ownership: Ownership = "random"
    kappas: tuple[PositiveInt, ...] = Field(min_length=2)
    groups: PositiveInt
    capacity_share: float = Field(gt=0, le=1)
    runs: int = Field(ge=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    graph, train = data.graph.to(config.device), data.train_idx.to(config.device)
    capacity, longest = ceil(config.capacity_share * graph.num_nodes), max(config.kappas)
    for number in range(config.runs):
        owner = owners(graph, config.num_ranks, config.ownership, config.seed + number)
        for kappa in config.kappas:
            sampler = build_sampler(
                config.sampler, config.fanouts, seed=config.seed + number, dependence=wb.Smoothed(kappa)
            )
            seeds = list(islice(global_batches(train, config, number), (1 + config.groups) * longest))
            options: dict[str, Any] = {"sampler": sampler, "owner": owner, "num_ranks": config.num_ranks}
            for minibatching in ("independent", "cooperative"):
                steps = [rank_batches(minibatching, graph, s, step=step, **options) for step, s in enumerate(seeds)]
                reads = [[batches[rank].node_ids for batches in steps] for rank in range(config.num_ranks)]
                yield _row(minibatching, kappa, number, reads, capacity, longest)
            whole = [sampler.sample(graph, s, step=step).node_ids for step, s in enumerate(seeds)]
            yield _row("one PE, one cache", kappa, number, [whole], config.num_ranks * capacity, longest)


def global_batches(train: Tensor, config: Config, number: int) -> Iterator[Tensor]:
    """The training nodes of global batches, epoch after epoch."""
    size = config.num_ranks * config.batch_size
    order, epoch = EpochOrder(len(train), size, drop_last=True, seed=config.seed + number), 0
    if not len(order):
        raise ValueError(f"a global batch of {size} nodes, but {len(train)} training nodes; set a smaller batch_size")
    while True:
        yield from (train[positions.to(train.device)] for _, positions in order.positions(epoch))
        epoch += 1


def _row(
    minibatching: str, kappa: int, number: int, reads: Sequence[Sequence[Tensor]], capacity: int, warmup: int
) -> dict[str, Any]:
    """The accesses and misses of all caches, one per rank, in batches after the warm-up."""
    found = [wb.features.simulate_cache(wb.AccessTrace.of(ids), capacity, policy="lru", warmup=warmup) for ids in reads]
    accesses = sum(cache.num_accesses for cache in found)
    misses = sum(cache.miss_rate * cache.num_accesses for cache in found)
    return {
        "minibatching": minibatching,
        "kappa": kappa,
        "run": number,
        "capacity_rows": capacity,
        "num_inputs": accesses / (len(reads[0]) - warmup),
        "miss_rate": misses / accesses,
        "missed_rows": misses / (len(reads[0]) - warmup),
    }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    fetched: Any = _together(table).groupby([*CASE, "run"]).fetched.first()
    text = "Cooperation and dependence: {fetched:.1f} times fewer rows fetched: fewer reads, fewer of them missed"
    return Title(text, fetched=fetched)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = mean_intervals(table, value="miss_rate", by=[*CASE, "minibatching", "kappa"])
    return lines(
        rows.assign(low=rows.low.clip(lower=0), batches="batches of " + rows.batch_size.astype(str) + " per PE"),
        x="kappa",
        log_x=True,
        y="miss_rate",
        spread={"miss_rate": ("low", "high")},
        group="minibatching",
        facet=["dataset", "sampler", "batches"],
        title=title(table, reported).text,
    )


def _ratios(table: pd.DataFrame) -> pd.DataFrame:
    """Independent over cooperating PEs: input rows (work), miss rate, and rows fetched, by run."""
    columns = {"num_inputs": "work", "miss_rate": "miss", "missed_rows": "fetched"}
    wide = table.pivot_table(list(columns), [*CASE, "kappa", "run"], "minibatching")
    ratios = {new: wide[old]["independent"] / wide[old]["cooperative"] for old, new in columns.items()}
    return pd.DataFrame(ratios).reset_index()


def _together(table: pd.DataFrame) -> pd.DataFrame:
    """The same ratios between independent PEs at the least κ and cooperating PEs at the largest."""
    ends = {"independent": min(table.kappa), "cooperative": max(table.kappa)}
    used = table[table.kappa == table.minibatching.map(ends)]
    return _ratios(used.assign(kappa=0))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    ends = f"from independent PEs at κ = {min(table.kappa)} to cooperating PEs at κ = {max(table.kappa)}"
    together = _together(table)
    at_least = {
        "work": (1.4, f"{ends}, 1.4 times fewer input rows are read"),
        "miss": (2.0, f"{ends}, the miss rate halves"),
        "fetched": (3.0, f"{ends}, 3 times fewer rows are fetched"),
    }
    found = [
        replace(decided_within(f"{name}-ratio", statement, together, value=name, by=CASE, least=least), sized=True)
        for name, (least, statement) in at_least.items()
    ]
    fewer = decided_within(
        "cooperation-misses-less",
        "at every κ the miss rate of cooperating PEs is below that of independent ones",
        _ratios(table),
        value="miss",
        by=[*CASE, "kappa"],
        least=1.0,
    )
    cooperative: Any = table.query("minibatching == 'cooperative'")
    falling: dict[str, Any] = {"value": "miss_rate", "along": "kappa", "by": CASE, "falling": True}
    falls = [claims.monotone("misses-fall", "the miss rate of cooperating PEs falls with κ", cooperative, **falling)]
    per_rank = cooperative.groupby(CASE).num_inputs.transform("mean") / cooperative.num_ranks
    if len(fits := cooperative[BATCHES_CACHED * per_rank <= cooperative.capacity_rows]):
        statement = f"it falls where a PE's cache has the rows of {BATCHES_CACHED} of its batches, as on mag240M"
        falls.append(claims.monotone("misses-fall-where-batches-fit", statement, fits, **falling))
    return [*found, fewer, *falls, _adds_up(table)]


def _adds_up(table: pd.DataFrame) -> Finding:
    """Caches of owned rows contain no row twice, so they hit like one cache of their size."""
    runs: Any = table.groupby([*CASE, "kappa", "run", "minibatching"])
    rates = runs.miss_rate.mean(skipna=False).unstack("minibatching")
    apart = (rates["cooperative"] - rates["one PE, one cache"]).reset_index(name="apart")
    statement = "the caches of cooperating PEs miss as often as one cache of their total size, within 2 points"
    return claims.within(
        "caches-add-up", statement, apart, value="apart", by=[*CASE, "kappa", "run"], least=-0.02, most=0.02
    )


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Independent over cooperating PEs at equal κ, and from the least to the largest; the paper's first."""
    columns = [*CASE, "kappa", "work", "miss", "fetched"]
    most = f"{min(table.kappa)} → {max(table.kappa)}"
    found = [_ratios(table), _together(table).assign(kappa=most)]
    cases: list[Any] = [part.groupby([*CASE, "kappa"])[columns[4:]] for part in found]
    here: Any = pd.concat(case.mean().reset_index() for case in cases)
    paper: Any = reported.assign(
        dataset=reported.dataset + " (paper)", sampler="LABOR-0", batch_size=1024, kappa="1 → 256"
    )
    return pd.concat([paper[columns], here[columns]])

"""Cooperative Minibatching, Table 7: nodes and edges per PE and layer, before and after the exchange."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.cooperative.ranks import Minibatching, Ownership, global_batch, owners, rank_batches
from experiments.cooperative.samplers import SamplerName, build_sampler
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.interval import decided_within, mean_intervals
from workbench.experiment.title import Title

CASE = ["dataset", "sampler", "num_ranks"]
COLUMNS = ["owned_3", "halo_3", "needed_3", "edges_3", "owned_2", "halo_2", "needed_2", "edges_2", "owned_1"]


class Config(DataPointConfig):
    """Global batches of several ranks, each sampled by independent and by cooperating ranks.

    Args:
        sampler: name in the paper.
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per rank.
        num_ranks: number P of ranks (PEs); the global batch has P · `batch_size` training nodes.
        cases: pairs of who owns a node and how ranks sample.
        runs: number of global batches, each with other random owners.
    """

    sampler: SamplerName
    fanouts: tuple[int, int, int]
    batch_size: PositiveInt
    num_ranks: int = Field(ge=2)
    cases: tuple[tuple[Ownership, Minibatching], ...]
    runs: int = Field(ge=2)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    graph, train = data.graph.to(config.device), data.train_idx.to(config.device)
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    fixed = {o: owners(graph, config.num_ranks, o, config.seed) for o, _ in config.cases if o != "random"}
    for number in range(config.runs):
        seeds = global_batch(train, config.num_ranks * config.batch_size, config.seed, number)
        owner = fixed | {"random": owners(graph, config.num_ranks, "random", config.seed + number)}
        for ownership, minibatching in config.cases:
            batches = rank_batches(
                minibatching,
                graph,
                seeds,
                sampler=sampler,
                owner=owner[ownership],
                num_ranks=config.num_ranks,
                step=number,
            )
            yield {
                "ownership": ownership,
                "minibatching": minibatching,
                "run": number,
                **wb.cooperative.cooperative_work(batches).row(),
            }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    most = max(table.num_ranks)
    gains: Any = _gains(table.query("num_ranks == @most and ownership == 'random'"))
    named = gains.set_index([name for name in [*CASE, "run"] if name in gains]).gain
    return Title("{gains:.1f} times fewer input nodes at P = {most}", gains=named, most=most)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    measures = ["owned_3", "needed_3", "halo_3", "edges_3"]
    parts = [_named(mean_intervals(_cases(table), value=m, by=[*CASE, "case"]), m) for m in measures]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.merge(part, on=[*CASE, "case"])
    return lines(
        rows,
        x="num_ranks",
        log_x=True,
        y=measures,
        spread={m: (f"{m}_low", f"{m}_high") for m in measures},
        group="case",
        facet=["dataset", "sampler"],
        title=title(table, reported).text,
    )


def _named(found: pd.DataFrame, measure: str) -> pd.DataFrame:
    return found.drop(columns=["half_width", "runs"]).rename(columns={e: f"{measure}_{e}" for e in ("low", "high")})


def _cases(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(case=table.ownership + " " + table.minibatching)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    cooperative, random = table.query("minibatching == 'cooperative'"), table.query("ownership == 'random'")
    return [
        _fewer(random, "owned_3", "fewer-inputs", "cooperating PEs load fewer input nodes than independent ones"),
        _fewer(random, "edges_3", "fewer-edges", "cooperating PEs draw fewer edges in the input layer"),
        claims.monotone(
            "gain-grows",
            "the ratio of independent to cooperative input nodes grows with the number of PEs",
            _gains(random),
            value="gain",
            along="num_ranks",
            by=["dataset", "sampler"],
        ),
        decided_within(
            "share-per-edge",
            "with random owners (P − 1)/P of the edges cross, within 1 %",
            _edge_shares(cooperative),
            value="relative_share",
            by=CASE,
            least=0.99,
            most=1.01,
        ),
        claims.within(
            "share-per-id",
            "with random owners less than (P − 1)/P of the ids that a PE needs are of other PEs",
            _id_shares(cooperative),
            value="relative_id_share",
            by=[*CASE, "hop", "run"],
            most=0.999,
        ),
        claims.least(
            "metis-fewer-rows",
            "with METIS ownership PEs receive fewer rows than with random ownership, in every layer",
            _by_hop(cooperative),
            value="halo",
            among="ownership",
            winner="metis",
            rivals=["random"],
            by=[*CASE, "hop", "run"],
        ),
    ]


def _fewer(table: pd.DataFrame, value: str, name: str, statement: str) -> Finding:
    return claims.least(
        name,
        statement,
        table,
        value=value,
        among="minibatching",
        winner="cooperative",
        rivals=["independent"],
        by=[*CASE, "run"],
    )


def _gains(table: pd.DataFrame) -> pd.DataFrame:
    inputs: Any = table.groupby([*CASE, "minibatching"]).owned_3.mean(skipna=False).unstack()
    return (inputs["independent"] / inputs["cooperative"]).reset_index(name="gain")


def _by_hop(table: pd.DataFrame) -> pd.DataFrame:
    """One row per layer: hop, halo and needed nodes."""
    keys = [*CASE, "ownership", "run"]
    return pd.concat(
        table[keys].assign(hop=hop, halo=table[f"halo_{hop}"], needed=table[f"needed_{hop}"]) for hop in (1, 2, 3)
    )


def _edge_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Share of edges that cross between random owners, relative to (P − 1)/P."""
    random = table.query("ownership == 'random'")
    return random[[*CASE, "run"]].assign(relative_share=random.cross_edge_share / (1 - 1 / random.num_ranks))


def _id_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Share of ids of other PEs with random owners, relative to (P − 1)/P; a row per layer."""
    hops = _by_hop(table.query("ownership == 'random'"))
    return hops.assign(relative_id_share=hops.halo / hops.needed / (1 - 1 / hops.num_ranks))


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Thousands of nodes and edges per PE at P = 4, the paper's first, each as in its Table 7."""
    at_4: Any = table.query("num_ranks == 4")
    here = at_4.groupby(["dataset", "ownership", "minibatching"], sort=False)[COLUMNS].mean()
    paper: Any = reported.assign(dataset=reported.dataset + " (paper)")
    return pd.concat([paper[["dataset", "ownership", "minibatching", *COLUMNS]], (here / 1000).reset_index()])

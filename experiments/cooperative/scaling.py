"""Cooperative Minibatching, section 4.3: forward/backward with 1 to 4 cooperating PEs, modelled from counted work."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.cooperative.step_costs import (
    SYSTEMS,
    PeBatches,
    StepConfig,
    counted_columns,
    price,
    relations_per_row,
    work_of,
)
from workbench.cooperative.cost_model import PeCounts
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "model", "ownership"]
SYSTEM = SYSTEMS["4 A100"]
NAMES = {"gcn": "GCN", "rgcn": "R-GCN", "gat": "GAT"}


class Config(StepConfig):
    """Several PEs of one machine.

    Args:
        num_pes: number of PEs, each with `batch_size` seeds.
    """

    num_pes: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    batches = PeBatches(config, data, config.num_pes)
    steps, alone, pes = [], [], []
    for step, pes in enumerate(batches.sample(sampler, range(config.steps))):
        steps.append(PeCounts.of(wb.cooperative.cooperative_work(pes)))
        alone += PeCounts.of(wb.cooperative.cooperative_work([*_independent(batches, sampler, step)]))
    counts = {
        "": PeCounts.mean(count for step in steps for count in step).scaled(config.times),
        "slowest_": PeCounts.mean(max(step, key=lambda count: count.edges[-1]) for step in steps).scaled(config.times),
        "alone_": PeCounts.mean(alone).scaled(config.times),
    }
    relations = relations_per_row(pes)
    yield {
        **counted_columns(counts[""]),
        "alone_edges_3": counts["alone_"].edges[-1],
        "imbalance": counts["slowest_"].edges[-1] / counts[""].edges[-1],
        "gamma": SYSTEM.machine.gamma,
        "alpha": SYSTEM.machine.alpha,
        "flops": SYSTEM.fp32_flops,
        "relations": relations,
        "hidden_bytes": 4 * config.hidden_dim,
        **{name: value for prefix in counts for name, value in _cost(counts[prefix], prefix, relations, config, data)},
        **dict(_cost(counts[""], "inputs_", relations, config.model_copy(update={"exchanges_products": False}), data)),
    }


def _independent(batches: PeBatches, sampler: wb.Sampler, step: int) -> Iterator[wb.MiniBatch]:
    """The batches of one PE alone: the same seeds, dealt out to the PEs whoever owns them."""
    seeds = batches.seeds(step)
    return (sampler.sample(batches.graph, seeds[pe :: batches.num_pes], step=step) for pe in range(batches.num_pes))


def _cost(counts: PeCounts, prefix: str, relations: float, config: Config, data: Any) -> Iterator[tuple[str, float]]:
    work = work_of(counts, config, data, relations)
    cost = price(counts, work, SYSTEM.machine, config, data).forward_backward
    exact = price(counts, work, SYSTEM.with_arithmetic, config, data).forward_backward
    yield f"{prefix}work_bytes", work.nbytes
    yield f"{prefix}work_flops", work.flops
    yield f"{prefix}exchange_seconds", cost.exchange
    yield f"{prefix}bandwidth_seconds", cost.total
    yield f"{prefix}forward_backward_seconds", exact.total


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the paper's names; work and modelled times relative to those of one PE alone with the same seeds."""
    rows = table.assign(dataset=table.dataset.str.removeprefix("synthetic-"))
    return rows.assign(
        edges_of_1_PE=rows.edges_3 / rows.alone_edges_3,
        modelled_time_of_1_PE=rows.forward_backward_seconds / rows.alone_forward_backward_seconds,
        modelled_time_without_products=rows.bandwidth_seconds / rows.alone_bandwidth_seconds,
        modelled_time_of_the_slowest=rows.slowest_forward_backward_seconds / rows.alone_forward_backward_seconds,
        modelled_time_of_inputs=rows.inputs_forward_backward_seconds / rows.alone_forward_backward_seconds,
    )


def measured(reported: pd.DataFrame) -> pd.DataFrame:
    """The paper's times, relative to those of one GPU; that of METIS to the same."""
    alone: Any = reported.query("num_pes == 1").groupby(["dataset", "model"]).forward_backward_ms.mean()
    found = reported.join(alone.to_frame("alone_ms"), on=["dataset", "model"])
    return found.assign(measured=found.forward_backward_ms / found.alone_ms)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).query("num_pes == num_pes.max() and ownership == 'random'")
    times = rows.set_index(["dataset", "model", "num_pes"]).modelled_time_of_1_PE
    of = {model: times.xs(model, level="model", drop_level=False) for model in NAMES if model in set(rows.model)}
    told = ", ".join(f"{{{model}:.2f}} ({NAMES[model]})" for model in of)
    return Title(f"Modelled: {{most}} PEs take {told} of the time of one", most=rows.num_pes.max(), **of)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    panels = ["modelled_time_of_1_PE", "modelled_time_without_products"]
    paper = measured(reported)
    rows = shown(table)
    return lines(
        rows,
        x="num_pes",
        y=panels,
        group="ownership",
        facet=["dataset", "model"],
        reported=paper.assign(**dict.fromkeys(panels, paper.measured)),
        title=title(table, reported).text,
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    several, random = rows.query("num_pes > 1"), rows.query("ownership == 'random'")
    heavy = random.query("model != 'gcn'")
    owners: dict[str, Any] = {"among": "ownership", "by": ["dataset", "model", "num_pes"]}
    falls: dict[str, Any] = {"along": "num_pes", "by": CASE, "falling": True}
    metis: dict[str, Any] = owners | {"winner": "metis", "rivals": ["random"]}
    return [
        claims.monotone(
            "work-falls",
            "the edges of the input layer per PE fall with the number of PEs",
            random,
            value="edges_of_1_PE",
            **falls,
        ),
        claims.monotone(
            "heavy-models-faster",
            "in the model, forward/backward of R-GCN and GAT takes less time with more cooperating PEs",
            heavy,
            value="modelled_time_of_1_PE",
            **falls,
        ),
        claims.within(
            "gcn-slower",
            "in the model, forward/backward of GCN takes longer with several PEs than with one, counting bytes alone",
            several.query("model == 'gcn'"),
            value="modelled_time_without_products",
            by=[*CASE, "num_pes"],
            least=claims.MORE,
        ),
        claims.least(
            "metis-exchanges-less",
            "METIS ownership exchanges fewer rows than random",
            several,
            value="exchange_seconds",
            **metis,
        ),
        claims.least(
            "metis-helps-gcn",
            "in the model, METIS ownership makes forward/backward of GCN faster",
            several.query("model == 'gcn'"),
            value="bandwidth_seconds",
            **metis,
        ),
        claims.least(
            "metis-imbalanced",
            "the PE with the most edges has more of them, relative to the mean, with METIS ownership than with random",
            several,
            value="imbalance",
            **owners,
            winner="random",
            rivals=["metis"],
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Forward/backward times relative to one PE, as measured in the paper and as modelled."""
    keys = [*CASE, "num_pes"]
    both = shown(table).merge(measured(reported), on=keys, how="left", suffixes=("", "_paper"))
    columns = {key: both[key] for key in keys} | {
        "paper, measured": both.measured,
        "modelled": both.modelled_time_of_1_PE,
        "modelled, without products": both.modelled_time_without_products,
        "modelled, slowest PE": both.modelled_time_of_the_slowest,
        "modelled, GAT exchanging its inputs": both.modelled_time_of_inputs,
        "edges, ÷ those of 1 PE": both.edges_of_1_PE,
        "edges, largest ÷ mean": both.imbalance,
        "c": both.cross_ratio,
    }
    return pd.DataFrame(columns)

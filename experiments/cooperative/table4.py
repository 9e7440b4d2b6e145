"""Cooperative Minibatching, Table 4: the stages of a step by system, sampler and approach, modelled. Tables 1, 5 and 6
are views of its rows."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import pandas as pd
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.cooperative.step_costs import (
    THIS_MACHINE,
    PeBatches,
    StepConfig,
    SystemName,
    counted_columns,
    machine_name,
    price,
    relations_per_row,
    row_bytes,
    system_of,
    work_of,
)
from workbench.cooperative.cost_model import PeCounts
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["system", "dataset", "sampler"]
SHORT = {"independent": "indep", "cooperative": "coop"}
STAGES = ("sampling", "copy", "cache", "kappa", "forward_backward", "total")
"""The paper's columns; copy: of all input rows, cache: of those that a cache misses, kappa: with dependent batches."""


class Config(StepConfig):
    """A row of the table.

    Args:
        system: the paper's GPUs, or this machine, whose speeds are measured.
        cache_rows: rows of each PE's LRU cache in the paper; here as many fewer as the batch is smaller.
        kappa: batches per group of dependent ones, in the last column.
        warmup: steps before misses are counted.
    """

    system: SystemName
    cache_rows: PositiveInt
    kappa: PositiveInt
    warmup: NonNegativeInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, system = config.dataset.load(), system_of(config.system)
    batches = PeBatches(config, data, system.num_pes)
    reads: list[list[Tensor]] = [[] for _ in range(system.num_pes)]
    steps, pes = [], []
    for pes in batches.sample(_sampler(config), range(config.warmup + config.steps)):
        _record(reads, pes)
        steps.append(PeCounts.of(wb.cooperative.cooperative_work(pes)))
    counts = PeCounts.mean(count for step in steps[config.warmup :] for count in step).scaled(config.times)
    rates = {"copy": 1.0, "cache": miss_rate(reads, config, batches.graph.num_nodes), "kappa": None}
    if config.sampler == "LABOR-0":  # the paper's only dependent sampler in this table
        rates["kappa"] = dependent_miss_rate(batches, config)
    yield {
        "num_pes": system.num_pes,
        **counted_columns(counts),
        **{f"{name}_miss_rate": rate for name, rate in rates.items() if name != "copy"},
        **priced(counts, relations_per_row(pes), rates, config, data),
    }


def _sampler(config: Config, kappa: int = 1) -> wb.Sampler:
    dependence = None if kappa == 1 else wb.Smoothed(kappa)
    return build_sampler(config.sampler, config.fanouts, seed=config.seed, dependence=dependence)


def _record(reads: Sequence[list[Tensor]], pes: Sequence[wb.MiniBatch]) -> None:
    for read, mb in zip(reads, pes, strict=True):
        read.append(mb.node_ids.cpu())


def dependent_miss_rate(batches: PeBatches, config: Config) -> float:
    """The miss rate with dependent batches of the same seeds."""
    reads: list[list[Tensor]] = [[] for _ in range(batches.num_pes)]
    for pes in batches.sample(_sampler(config, config.kappa), range(config.warmup + config.steps)):
        _record(reads, pes)
    return miss_rate(reads, config, batches.graph.num_nodes)


def miss_rate(reads: Sequence[Sequence[Tensor]], config: Config, num_nodes: int) -> float:
    """Misses per access of the LRU caches of all PEs, after the warm-up."""
    capacity = ceil(config.cache_rows / config.times)
    found = [
        wb.features.simulate_cache(wb.AccessTrace.of(ids), capacity, num_rows=num_nodes, warmup=config.warmup)
        for ids in reads
    ]
    return sum(one.num_misses for one in found) / sum(one.num_accesses for one in found)


def priced(
    counts: PeCounts, relations: float, rates: dict[str, float | None], config: Config, data: Any
) -> dict[str, float | None]:
    """The inputs of the cost model, and the seconds of each column of the table."""
    system, work = system_of(config.system), work_of(counts, config, data, relations)
    cost, exact = (price(counts, work, machine, config, data) for machine in (system.machine, system.with_arithmetic))
    copies = {
        name: None if rate is None else rate * cost.features.local + cost.features.exchange
        for name, rate in rates.items()
    }
    last = copies["cache"] if copies["kappa"] is None else copies["kappa"]
    assert last is not None, "there is always a cache"
    total = cost.sampling.total + last + cost.forward_backward.total
    arithmetic = exact.forward_backward.local - cost.forward_backward.local
    return {
        "gamma": system.machine.gamma,
        "alpha": system.machine.alpha,
        "beta": system.machine.beta,
        "flops": system.fp32_flops,
        "relations": relations,
        "row_bytes": row_bytes(data),
        "hidden_bytes": 4 * config.hidden_dim,
        "work_bytes": work.nbytes,
        "work_flops": work.flops,
        "sampling_seconds": cost.sampling.total,
        **{f"{name}_seconds": seconds for name, seconds in copies.items()},
        "forward_backward_seconds": cost.forward_backward.total,
        "arithmetic_seconds": arithmetic,
        "sampling_exchange_seconds": cost.sampling.exchange,
        "copy_exchange_seconds": cost.features.exchange,
        "forward_backward_exchange_seconds": cost.forward_backward.exchange,
        "total_seconds": total,
        "total_with_arithmetic_seconds": total + arithmetic,
    }


def shown(table: pd.DataFrame, *, here: bool = False) -> pd.DataFrame:
    """Rows of the paper's systems, or those of this machine, with the paper's names of data sets, in milliseconds: the
    paper's columns, as modelled."""
    table = pd.DataFrame(table[(table.system == THIS_MACHINE) == here])
    named = table.assign(dataset=table.dataset.str.removeprefix("synthetic-"))
    return named.assign(**{f"{stage}_ms": 1e3 * named[f"{stage}_seconds"].astype(float) for stage in STAGES})


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    gain: Any = speedups(table).set_index([*CASE, "num_pes"]).speedup_with_arithmetic
    return Title("Modelled: cooperative steps are {gain:.2f} times as fast", gain=gain)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import stage_bars

    rows = shown(table).sort_values(["dataset", "num_pes", "sampler"], ascending=[False, True, True], kind="stable")
    return stage_bars(
        [_bar(row) for row in rows.to_dict("records")],
        axis="modelled time",
        title=title(table, reported).text,
        subtitle=f"γ, α, β in GB/s and float32 peak in TFLOP/s: {_inputs(rows)}",
    )


def _inputs(rows: pd.DataFrame) -> str:
    machines = rows.assign(machine=rows.system.str.split().str[1]).drop_duplicates("machine")
    speeds = machines[["gamma", "alpha", "beta", "flops"]].to_numpy() / [1e9, 1e9, 1e9, 1e12]
    return "; ".join(
        f"{name} " + ", ".join(map("{:g}".format, row)) for name, row in zip(machines.machine, speeds, strict=True)
    )


def _bar(row: dict[str, Any]) -> Any:
    from workbench.plots.bars import StageBar

    copy = row["cache_seconds"] if pd.isna(row["kappa_seconds"]) else row["kappa_seconds"]
    exchange = row["sampling_exchange_seconds"] + row["copy_exchange_seconds"]
    stages = {
        "sampling and feature copy (β)": row["sampling_seconds"] + copy - exchange,
        "forward/backward, memory (γ)": row["forward_backward_seconds"] - row["forward_backward_exchange_seconds"],
        "exchanges (α)": exchange + row["forward_backward_exchange_seconds"],
        "forward/backward, products": row["arithmetic_seconds"],
    }
    return StageBar(f"{row['dataset']} · {row['system']}", row["sampler"], SHORT[row["approach"]], stages)


def speedups(table: pd.DataFrame) -> pd.DataFrame:
    """Independent over cooperative totals: modelled with and without arithmetic, one row per case."""
    totals = {"speedup": "total_seconds", "speedup_with_arithmetic": "total_with_arithmetic_seconds"}
    rows = shown(table)
    found = {name: _ratio(rows, column) for name, column in totals.items()}
    return pd.DataFrame(found).reset_index()


def _ratio(rows: pd.DataFrame, column: str) -> Any:
    by_approach: Any = rows.pivot_table(column, [*CASE, "num_pes"], "approach", sort=False)
    return by_approach["independent"] / by_approach["cooperative"]


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    papers, mag = rows.query("model == 'gcn'"), rows.query("model == 'rgcn'")
    faster = "in the model, cooperative minibatching takes less time than independent minibatching"
    return [
        _faster("total-faster", f"{faster} in all cases", rows, "total_seconds"),
        _faster(
            "total-faster-with-arithmetic",
            f"{faster} in all cases, with matrix products at float32 peak",
            rows,
            "total_with_arithmetic_seconds",
        ),
        _faster("sampling-faster", f"{faster}: sampling", rows, "sampling_seconds"),
        _faster("copy-faster", f"{faster}: feature copy without a cache", rows, "copy_seconds"),
        _faster("cached-copy-faster", f"{faster}: feature copy with a cache", rows, "cache_seconds"),
        _faster(
            "rgcn-faster",
            f"{faster}: forward/backward of R-GCN, with arithmetic",
            mag.assign(rgcn_seconds=mag.forward_backward_seconds + mag.arithmetic_seconds),
            "rgcn_seconds",
        ),
        claims.least(
            "gcn-not-faster",
            "in the model, forward/backward of GCN takes more time cooperatively, as the exchange of its hidden rows "
            "costs more than is saved",
            papers,
            value="forward_backward_seconds",
            among="approach",
            winner="independent",
            rivals=["cooperative"],
            by=CASE,
        ),
    ]


def _faster(name: str, statement: str, rows: pd.DataFrame, value: str) -> Finding:
    options: dict[str, Any] = {"among": "approach", "winner": "cooperative", "rivals": ["independent"], "by": CASE}
    return claims.least(name, statement, rows, value=value, **options)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of every column, the paper's measured ones beside the modelled ones; then those modelled for this
    machine by its measured speeds."""
    keys = [*CASE, "approach"]
    both = reported.merge(shown(table), on=keys, suffixes=("", ", modelled"))
    if len(here := shown(table, here=True)):
        named = here.rename(columns={f"{stage}_ms": f"{stage}_ms, modelled" for stage in STAGES})
        names = [machine_name(row) for row in here.to_dict("records")]
        both = pd.concat([both, named.assign(system=names)], ignore_index=True)
    columns = {key: both[key] for key in keys}
    for stage in STAGES:
        name = {"kappa": "cache κ = 256", "forward_backward": "F/B"}.get(stage, stage)
        columns |= {f"{name}, paper (ms)": both[f"{stage}_ms"], f"{name}, modelled (ms)": both[f"{stage}_ms, modelled"]}
    columns["total with arithmetic, modelled (ms)"] = 1e3 * both.total_with_arithmetic_seconds
    return pd.DataFrame(columns)

"""Cooperative Minibatching, a step as it is measured on the ranks of this machine, beside the model of Tables 4 to 6.

Both approaches train the same model on the same global batches, in turn. Independent ranks have all features in their
host's memory, as in the paper; cooperative ranks have those of their own nodes. Every stage ends when all ranks have
ended it. The model gets the speeds of the same ranks, measured before, and the counts of the same batches.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean, median, quantiles
from typing import Any

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.cooperative.step_costs import (
    APPROACHES,
    Approach,
    PeBatches,
    StepConfig,
    price,
    relations_per_row,
    work_of,
)
from workbench.cooperative.cost_model import PeCounts
from workbench.core.dataset import Dataset
from workbench.core.machine import Machine
from workbench.distributed.group import gather_numbers
from workbench.distributed.measure_machine import on_rank as measure_speeds
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.nn.model import relation_options

CASE = ["dataset", "model", "sampler", "num_pes"]
STAGES = ("sampling", "training")
INDEPENDENT, COOPERATIVE = APPROACHES


class Config(StepConfig):
    """Ranks that share this machine, and the batches that they train on by both approaches.

    Args:
        approach: of the model's counts; both are run, whatever is given.
        num_pes: number of ranks.
        steps: global batches, each trained on by both approaches; the first is not timed.
        copied_bytes: bytes of the arrays whose copies and exchanges tell the speeds of a rank.
        timeout_seconds: of all ranks together.
    """

    approach: Approach = "cooperative"
    num_pes: int = Field(default=2, ge=2)
    steps: int = Field(ge=3)
    copied_bytes: PositiveInt = 1 << 26
    timeout_seconds: PositiveInt = 3600


def run(config: Config) -> Iterator[dict[str, Any]]:
    yield from wb.run_ranks(
        on_rank, config.model_dump(mode="json"), config.num_pes, timeout_seconds=config.timeout_seconds
    )


def on_rank(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The work of one rank; rank 0 yields a row per approach, its `side`."""
    config = Config(**values)
    data = config.dataset.load()
    data = replace(data, x=data.x.float())  # ranks exchange rows in the model's precision
    batches = PeBatches(config, data, config.num_pes)
    wb.distributed.check_ranks_agree({"data": data.fingerprint, "owner": batches.owner})
    (speeds,) = measure_speeds({"num_bytes": config.copied_bytes, "repeats": 5})
    sides: dict[Approach, Stages] = {approach: stages_of(approach, config, data, batches) for approach in APPROACHES}
    rounds = [timed_round(sides, batches.seeds(step), step) for step in range(config.steps)][1:]
    if wb.distributed.get_rank():
        return
    ratios = [one[COOPERATIVE, "total"] / one[INDEPENDENT, "total"] for one in rounds]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    both = {approach: config.model_copy(update={"approach": approach}) for approach in APPROACHES}
    modelled = {approach: modelled_seconds(one, data, Machine(**speeds)) for approach, one in both.items()}
    for approach in APPROACHES:
        seconds = {stage: median(one[approach, stage] for one in rounds) for stage in (*STAGES, "total")}
        yield {
            "side": approach,
            **{f"{stage}_seconds": value for stage, value in seconds.items()},
            **{f"modelled_{stage}_seconds": value for stage, value in modelled[approach].items()},
            "ratio": middle,
            "ratio_low": low,
            "ratio_high": high,
            "modelled_ratio": modelled[COOPERATIVE]["total"] / modelled[INDEPENDENT]["total"],
            **speeds,
        }


Stages = tuple[Callable[[int, Tensor], wb.MiniBatch], Callable[[wb.MiniBatch], Tensor]]
"""Samples this rank's part of a global batch; trains on it, rows included."""


def stages_of(approach: Approach, config: Config, data: Dataset, batches: PeBatches) -> Stages:
    """The stages of a rank's step by one approach, with a model and an optimizer of its own."""
    rank, owner = wb.distributed.get_rank(), batches.owner
    relations: dict[str, Any] = {**relation_options(config.model, data.graph)}
    model = wb.build_model(
        config.model,
        in_dim=data.num_features,
        hidden_dim=config.hidden_dim,
        out_dim=data.num_classes,
        num_layers=len(config.fanouts),
        seed=config.seed,
        **relations,
    )
    optimizer = torch.optim.Adam(model.parameters())
    drawn = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    if approach == COOPERATIVE:
        owned = wb.sampling.OwnedGraph.of(data.graph, owner, rank, config.num_pes)
        rows: Any = wb.distributed.OwnedRows.of(data.x, owner)
        together = wb.cooperative.CooperativeSampler(drawn, owned)

    def sample(step: int, seeds: Tensor) -> wb.MiniBatch:
        if approach == COOPERATIVE:
            return together.sample(owned.graph, seeds, step=step)
        return drawn.sample(data.graph, seeds[owner[seeds] == rank], step=step)

    def train(mb: wb.MiniBatch) -> Tensor:
        x = rows if approach == COOPERATIVE else data.x
        return wb.cooperative.train_step(model, mb, x, data.y, F.cross_entropy, optimizer)

    return sample, train


def timed_round(sides: Mapping[Approach, Stages], seeds: Tensor, step: int) -> dict[tuple[str, str], float]:
    """Seconds of the stages of one global batch by both approaches, of which the first changes from step to step."""
    seconds: dict[tuple[str, str], float] = {}
    for approach in APPROACHES if step % 2 else APPROACHES[::-1]:
        sample, train = sides[approach]
        start = _together()
        mb = sample(step, seeds)
        sampled = _together()
        train(mb)
        trained = _together()
        seconds |= {(approach, "sampling"): sampled - start, (approach, "training"): trained - sampled}
        seconds[approach, "total"] = trained - start
    return seconds


def _together() -> float:
    """The time when all ranks have come here."""
    gather_numbers(0)
    return time.perf_counter()


def modelled_seconds(config: Config, data: Dataset, machine: Machine) -> dict[str, float]:
    """What the cost model says of the same batches, by the configuration's approach, on ranks with these speeds,
    arithmetic included."""
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    counts, relations = [], []
    for pes in PeBatches(config, data, config.num_pes).sample(sampler, range(1, config.steps)):
        counts += PeCounts.of(wb.cooperative.cooperative_work(pes))
        relations.append(relations_per_row(pes))
    mean = PeCounts.mean(counts)
    cost = price(mean, work_of(mean, config, data, fmean(relations)), machine, config, data)
    training = cost.features.total + cost.forward_backward.total
    return {"sampling": cost.sampling.total, "training": training, "total": cost.sampling.total + training}


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = table[table.side == COOPERATIVE].set_index(CASE)
    text = "A cooperative step takes {measured:.2f} times an independent one's time, modelled {modelled:.2f} times"
    return Title(text, measured=rows.ratio, modelled=rows.modelled_ratio)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    bars = [
        StageBar(
            f"{row['dataset']}, {row['model']}, {row['sampler']}",
            kind,
            row["side"],
            {stage: row[f"{prefix}{stage}_seconds"] for stage in STAGES},
        )
        for row in table.sort_values(CASE, kind="stable").to_dict("records")
        for kind, prefix in {"measured": "", "modelled": "modelled_"}.items()
    ]
    bars.sort(key=lambda bar: (bar.panel, bar.group))
    return stage_bars(
        bars,
        axis="a step's time",
        title=title(table, reported).text,
        subtitle="training: copying or exchanging rows, forward and backward pass, sum of gradients",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = table[table.side == COOPERATIVE]
    less = "measured, a cooperative step takes less time than an independent one of the same global batch"
    same = "where measurements tell which approach takes less time, the model says the same"
    told: Any = rows[~((rows.ratio_low <= 1) & (rows.ratio_high >= 1))]  # NaN decides, and is lost
    known = told[["ratio", "ratio_low", "ratio_high", "modelled_ratio"]].notna().all(axis=1)
    agree = told.assign(agree=((told.ratio < 1) == (told.modelled_ratio < 1)).astype(float).where(known))
    options: dict[str, Any] = {"by": CASE, "form": ".2f", "timed": True}
    return [
        claims.within("faster", less, rows, value="ratio", most=claims.LESS, **options),
        claims.within("as-modelled", same, agree, value="agree", least=1, **options)
        if known.any()
        else Finding("as-modelled", same, False, f"none of {len(rows)} cases tells", timed=True, decided=False),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Cooperative ÷ independent, measured and modelled; and the measured seconds over the modelled ones."""
    seconds: Any = table.assign(over_model=table.total_seconds / table.modelled_total_seconds)
    over: Any = seconds.pivot_table(index=CASE, columns="side", values="over_model", sort=False)
    rows: Any = table[table.side == COOPERATIVE].set_index(CASE)[["ratio", "ratio_low", "ratio_high", "modelled_ratio"]]
    return rows.join(over.add_suffix(", measured ÷ modelled")).reset_index()

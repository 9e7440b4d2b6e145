"""Betty, Figure 2: peak memory of the whole batch by aggregator, depth, width and fanout. Figure 10 is a view of the
same rows: the same settings, cut into micro-batches that fit the capacity."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.errors import CapacityError
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import estimate_memory
from workbench.memory.plan import Plan, plan_micro_batches
from workbench.memory.training_setup import Recovery
from workbench.meter.limit import free_bytes, limit_memory
from workbench.meter.peak import PeakMeter
from workbench.meter.stopwatch import Stopwatch
from workbench.training.step import train_step

WARM_UP_SEEDS = 64
USABLE = {"cpu": 0.8, "cuda": 0.95}  # share of free memory: the OOM killer may end other processes than this one
CLOSE = 0.03
DEEPEST = "3"  # layers with which the paper's model fitted its GPU
AXES = {"aggregator": "aggregator", "layers": "layers", "hidden": "hidden width", "fanout": "fanout"}

Epoch = Callable[..., None]


class Config(ModelConfig):
    """All training nodes form one batch, run whole and as micro-batches that fit the capacity.

    Args:
        panel: of the figure, named after the setting that varies in it.
        learning_rate: of Adam.
        method: of `partition_batch`, which cuts the batch.
        capacity_bytes: of the modelled device.
    """

    panel: Literal["aggregator", "layers", "hidden", "fanout"]
    learning_rate: float
    method: PartitionMethod
    capacity_bytes: PositiveInt

    @property
    def setting(self) -> str:
        """Value of the setting that varies in the panel."""
        values = {
            "aggregator": self.model.removeprefix("sage-"),
            "layers": len(self.fanouts),
            "hidden": self.hidden_dim,
            "fanout": self.fanouts[0],
        }
        return str(values[self.panel])


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, sampler = config.dataset.load(), wb.NeighborSampler(config.fanouts, seed=config.seed)
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)

    def epoch(micro: Sequence[wb.MiniBatch], recover: Recovery | None = None) -> None:
        train_step(model, micro, data.x, data.y, cross_entropy, optimizer, recover=recover)
        optimizer.zero_grad()  # else the next measurement would include the gradients

    epoch(
        [sampler.sample(data.graph, data.train_idx[:WARM_UP_SEEDS])]
    )  # creates optimizer state, loads compiled kernels
    batch = sampler.sample(data.graph, data.train_idx)
    estimate = estimate_memory(model, batch, optimizer=optimizer)
    options = {"memory": config.capacity_bytes, "method": config.method, "seed": config.seed}
    try:
        plan, refused = plan_micro_batches(model, batch, optimizer=optimizer, recover=True, **options), None
    except CapacityError as error:
        plan, refused = None, str(error)
    yield {
        "setting": config.setting,
        "estimate_bytes": estimate.peak_bytes,
        **{f"{term}_bytes": size for term, size in estimate.terms.items()},
        **whole(config, epoch, batch, estimate),
        "refused": refused,
        **({} if plan is None else within_capacity(config, epoch, plan)),
    }


def whole(config: Config, epoch: Epoch, batch: wb.MiniBatch, estimate: MemoryEstimate) -> dict[str, Any]:
    """Measure an epoch of the whole batch; None if the device has too little free memory for it."""
    if not may_run(config, estimate):
        return {"peak_bytes": None, "epoch_seconds": None}
    return measure(config, lambda: epoch([batch]), held_bytes(config, batch, estimate))


def within_capacity(config: Config, epoch: Epoch, plan: Plan) -> dict[str, Any]:
    """Measure an epoch of the planned micro-batches under a memory limit of the capacity."""
    found: dict[str, Any] = {
        "num_parts": plan.num_parts,
        "inputs_ratio": plan.redundancy.ratio,
        "plan_bytes": plan.peak_bytes,
        "plan_seconds": sum(plan.seconds.values()),
    }
    estimate, largest = max(zip(plan.estimates, plan.micro, strict=True), key=lambda pair: pair[0].peak_bytes)
    if not may_run(config, estimate):
        return found
    again, held = [], held_bytes(config, largest, estimate)
    recover = Recovery(method=config.method, seed=config.seed, on_split=lambda *_: again.append(1))
    with limit_memory(config.capacity_bytes, device=config.device, held_bytes=held):
        measured = measure(config, lambda: epoch(plan.micro, recover), held)
    return {**found, **{f"cut_{name}": value for name, value in measured.items()}, "cut_again": len(again)}


def may_run(config: Config, estimate: MemoryEstimate) -> bool:
    """The device has enough free memory for the step."""
    return estimate.peak_bytes <= USABLE[config.device.partition(":")[0]] * free_bytes(config.device)


def held_bytes(config: Config, mb: wb.MiniBatch, estimate: MemoryEstimate) -> int:
    """Bytes allocated before the step: parameters, optimizer state, and on a CPU the blocks, which are not copied."""
    return estimate.fixed_bytes + (replace(mb, parent=None).nbytes if config.device == "cpu" else 0)


def measure(config: Config, epoch: Callable[[], None], held: int) -> dict[str, Any]:
    """Peak memory and time of an epoch; the meter slows it down a little."""
    watch = Stopwatch(config.device)
    with PeakMeter(config.device) as meter, watch.phase("epoch"):
        epoch()
    return {"peak_bytes": held + meter.peak_bytes, "epoch_seconds": watch.seconds["epoch"]}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """One row per setting, with its place in its panel and the whole batch's peak memory, measured or estimated."""
    rows = table.dropna(subset=["setting"]).assign(setting=lambda rows: rows.setting.astype(str))
    place = rows.groupby(["dataset", "panel"], sort=False).setting.transform(lambda found: pd.factorize(found)[0])
    return rows.assign(place=place, needed_bytes=rows.peak_bytes.astype(float).fillna(rows.estimate_bytes))


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = shown(table).set_index(["dataset", "panel", "setting"])
    over = rows.needed_bytes > rows.capacity_bytes
    return Title("{over} settings need more than the capacity, in one piece", over=over)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import bars

    rows = shown(table)
    given = [_bar(row) for row in rows.itertuples()]
    return bars(
        given, capacity_bytes=int(rows.capacity_bytes.iloc[0]), axes=axes_of(rows), title=title(table, reported).text
    )


def _bar(row: Any) -> Any:
    from workbench.plots.bars import Bar

    measured, hover = pd.notna(row.peak_bytes), f"estimated {row.estimate_bytes / 2**20:,.1f} MiB"
    return Bar(title_of(row), row.setting, int(row.needed_bytes), measured=measured, hover=hover)


def title_of(row: Any) -> str:
    """Title of the panel that shows a row."""
    return f"by {AXES[row.panel]} · {row.dataset}"


def axes_of(rows: pd.DataFrame) -> dict[str, str]:
    """Title of a panel to the label of its x axis."""
    return {title_of(row): _axis_of(row) for row in rows.itertuples()}


def _axis_of(row: Any) -> str:
    """Label of the x axis: the setting that varies in the panel, and those that do not."""
    model, fanouts = row.model.removeprefix("sage-"), row.fanouts.strip("[]")
    shared = {
        "aggregator": f"fanouts {fanouts}, width {row.hidden_dim}",
        "layers": f"{model}, width {row.hidden_dim}",
        "hidden": f"{model}, fanouts {fanouts}",
        "fanout": f"{model}, one layer",
    }
    return f"{AXES[row.panel]} ({shared[row.panel]})"


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    fitted = rows.query("panel == 'layers' and setting == @DEEPEST").needed_bytes.max(skipna=False)
    largest = rows.assign(fills=rows.needed_bytes / fitted)
    largest = largest.groupby(["dataset", "panel"], sort=False).fills.max(skipna=False).reset_index()
    measured = rows[rows.peak_bytes.notna()]
    measured = measured.assign(error=measured.estimate_bytes / measured.peak_bytes.astype(float) - 1)
    return [
        claims.monotone(
            f"{panel}-rises",
            f"memory rises {how}",
            rows.query("panel == @panel"),
            value="needed_bytes",
            along="place",
            named="setting",
            by=["dataset"],
        )
        for panel, how in (
            ("aggregator", "from mean to pool to LSTM"),
            ("layers", "with every layer"),
            ("hidden", "with the hidden width"),
            ("fanout", "with the fanout"),
        )
    ] + [
        claims.within(
            "over-the-capacity",
            f"in every panel, a setting needs more than {DEEPEST} layers do, the most that the paper's GPU held",
            largest,
            value="fills",
            by=["panel", "dataset"],
            least=claims.MORE,
            form=".0%",
        ),
        claims.within(
            "estimate-close",
            "where it was measured, the estimate is within 3 % of it",
            measured,
            value="error",
            by=["panel", "setting"],
            least=-CLOSE,
            most=CLOSE,
            form="+.2%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Peak memory of each setting, in bytes and relative to the first setting of its panel."""
    rows, paper = shown(table), reported.assign(setting=reported.setting.astype(str))
    here = rows[["panel", "dataset", "setting"]].assign(
        here_bytes=rows.needed_bytes,
        times_here=rows.needed_bytes / rows.groupby(["dataset", "panel"]).needed_bytes.transform("first"),
    )
    paper["times_paper"] = paper.peak_gb / paper.groupby("panel").peak_gb.transform("first")
    both = here.merge(paper.drop(columns="source"), "left", ["panel", "setting"])
    names = {"peak_gb": "paper, GB", "times_paper": "÷ first, paper", "times_here": "÷ first, here"}
    columns: Any = both[["panel", "dataset", "setting", "peak_gb", "here_bytes", "times_paper", "times_here"]]
    return columns.rename(columns=names)

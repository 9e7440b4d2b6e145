"""What `wb.advise` says, and what its programs then need: peak memory, bytes and seconds of every configuration.

The advice is for this machine, whose disk is measured for each graph and model, under three budgets: enough of all
memory, half of the device memory that a whole batch needs, and host memory for a part of the features. Every
configuration that has a price is run, also those that don't fit. What is advised is judged by case (a graph, a model
and a budget); the order, by graph and model, over all programs.
"""

import contextlib
import gc
import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field, PositiveInt

import workbench as wb
from workbench.advisor.advice import Advice
from workbench.advisor.counts import default_loss
from workbench.advisor.prices import Priced
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

TASK = ["dataset", "model"]
CASE = [*TASK, "budget"]
PEAK, BYTES, SECONDS, AS_FAST, ORDER = 0.05, 0.05, 0.25, 1.1, 0.8
ADVISED = 0.9
"""Share of cases in which the configuration advised is as fast."""

ENOUGH = 1 << 40

ROUNDS = 3
"""In each of which all programs are trained in turn."""


class Config(DataPointConfig):
    """A data set and a model, advised and run under each budget.

    Args:
        model: of `wb.build_model`.
        hidden_dim: width of its hidden layers.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch.
        device_share: device memory of the budget "device", relative to the peak of a whole batch.
        host_share: features that the host's memory has room for in the budget "host", relative to all.
        num_batches: batches that the advisor samples.
        epochs: epochs of a program that are timed in each round, at least, after one that is not.
        round_seconds: seconds for which they are, at least.
    """

    model: Literal["sage-mean", "gcn", "gat"]
    hidden_dim: PositiveInt
    fanouts: tuple[int, ...] = Field(min_length=1)
    batch_size: PositiveInt
    device_share: float = Field(default=0.6, gt=0, lt=1)
    host_share: float = Field(default=0.4, gt=0, lt=1)
    num_batches: PositiveInt = 24
    epochs: PositiveInt = 3
    round_seconds: float = Field(default=0.25, ge=0)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    sizes = {"in_dim": data.num_features, "hidden_dim": config.hidden_dim, "out_dim": data.num_classes}
    model = wb.build_model(config.model, **sizes, num_layers=len(config.fanouts), seed=config.seed)
    with tempfile.TemporaryDirectory() as folder:  # a disk's speed changes: that of each task's is measured
        machine = wb.Machine.here(folder)
    if machine.is_cpu != (config.device == "cpu"):
        raise ValueError(
            f"device is {config.device}, but advice is for this machine's {'CPU' if machine.is_cpu else 'GPU'}; choose "
            "--size paper where there is a GPU, and hide it (CUDA_VISIBLE_DEVICES=) for other sizes"
        )
    model = model.to(config.device)
    options: dict[str, Any] = {
        "machine": machine,
        "sampler": wb.NeighborSampler(config.fanouts, seed=config.seed),
        "batch_size": config.batch_size,
        "num_batches": config.num_batches,
        "seed": config.seed,
    }
    whole = wb.advise(data, model, memory=ENOUGH, host_memory=ENOUGH, **options)
    peak = whole.priced[0].peak_bytes if whole.plain is None else whole.plain.peak_bytes
    features = data.graph.nbytes + round(config.host_share * data.x.nbytes)
    budgets = {
        "enough": (ENOUGH, ENOUGH),
        "device": (round(config.device_share * peak), ENOUGH),
        "host": (ENOUGH, features),
    }
    priced = [
        (budget, place, advice, one)
        for budget, (memory, host_memory) in budgets.items()
        for advice in [wb.advise(data, model, memory=memory, host_memory=host_memory, **options)]
        for place, one in enumerate(advice.priced)
        if one.can_be_priced and one.peak_bytes
    ]
    times = timed(config, data, [advice.code(one, data="data") for _, _, advice, one in priced])
    for (budget, place, advice, one), took in zip(priced, times, strict=True):
        yield {
            "budget": budget,
            "place": place,
            **predicted(one),
            **measured(config, data, model, advice, one, took),
            **{name: took[name] for name in ("seconds", "seconds_low", "seconds_high")},
        }


def predicted(one: Priced) -> dict[str, Any]:
    c = one.configuration
    return {
        "configuration": str(c),
        "fits": int(one.fits),
        "changes": int(c.changes_samples),
        "predicted_peak_bytes": one.peak_bytes,
        "predicted_moved_bytes": one.moved_bytes,
        "predicted_seconds": one.epoch_seconds,
        "stated_error": one.error,
    }


def measured(
    config: Config, data: wb.Dataset, model: Any, advice: Advice, one: Priced, took: Mapping[str, float]
) -> dict[str, Any]:
    """What the meter, the system, the cache or the batches themselves say of a configuration."""
    c = one.configuration
    rows = took["missed_rows"] if c.cache else rows_of(config, data, advice, one)
    return {
        "peak_bytes": took["peak_bytes"] or peak_of(data, model, advice, one),
        "moved_bytes": rows * data.x[:1].nbytes if c.reading == "memory" else took["disk_bytes"],
    }


class Program:
    """A program of the advisor's, in this process.

    Args:
        data: what it trains on.
        code: its text.
    """

    def __init__(self, data: wb.Dataset, code: str) -> None:
        before = allocated()
        self._names: dict[str, Any] = {"data": data, "__name__": "program"}
        exec(compile(code.replace("range(3)", "range(0)"), "program", "exec"), self._names)
        self._epochs, self._disk_bytes, self._missed, self._rounds = 0, 0, 0, list[list[float]]()
        self._held_bytes, self._peak_bytes = allocated() - before, 0

    def train(self, epochs: int, round_seconds: float) -> None:
        """Train an epoch that is not timed, and others that are: a round."""
        held = allocated()
        self._epoch()
        bytes_before, missed_before, seconds = bytes_of_disk(), self._misses(), list[float]()
        while len(seconds) < epochs or sum(seconds) < round_seconds:
            start = time.perf_counter()
            self._epoch()
            seconds.append(time.perf_counter() - start)
        self._disk_bytes += bytes_of_disk() - bytes_before
        self._missed += self._misses() - missed_before
        self._rounds.append(seconds)
        if torch.cuda.is_available():  # the programs are in memory together
            self._peak_bytes = max(self._peak_bytes, self._held_bytes + torch.cuda.max_memory_allocated() - held)
            self._held_bytes += allocated() - held

    def _epoch(self) -> None:
        list(self._names["epoch"](self._epochs))
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._epochs += 1

    def _misses(self) -> int:
        x = self._names.get("x")
        return x.counts.misses if isinstance(x, wb.CachedRows) else 0

    def found(self) -> dict[str, Any]:
        """What its epochs took, and the least and most of the rounds' medians."""
        seconds, of_rounds = [*chain.from_iterable(self._rounds)], [median(some) for some in self._rounds]
        return {
            "disk_bytes": self._disk_bytes / len(seconds),
            "missed_rows": self._missed / len(seconds),
            "peak_bytes": self._peak_bytes,
            "seconds": median(seconds),
            "seconds_low": min(of_rounds),
            "seconds_high": max(of_rounds),
        }


def timed(config: Config, data: wb.Dataset, codes: list[str]) -> list[dict[str, Any]]:
    """Train all programs in turn, round after round, so that what else the machine does slows all of them alike."""
    with temporary_files(), contextlib.redirect_stdout(io.StringIO()):
        programs = [Program(data, code) for code in codes]
        for _ in range(ROUNDS):
            for program in programs:
                program.train(config.epochs, config.round_seconds)
        found = [program.found() for program in programs]
        del programs
        gc.collect()  # what they held, or the meter would count it as freed by a step
    return found


def allocated() -> int:
    """Bytes allocated of a GPU, whose peak begins anew; 0 on a CPU, which has a meter (`peak_of`)."""
    if not torch.cuda.is_available():
        return 0
    gc.collect()  # what an epoch left in cycles, or it would count for its program now and for another one later
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Delete at the end what is written to the folder of temporary files: programs keep their stores."""
    usual = tempfile.tempdir
    with tempfile.TemporaryDirectory() as tempfile.tempdir:
        try:
            yield
        finally:
            tempfile.tempdir = usual


def batches_of(data: wb.Dataset, advice: Advice, one: Priced) -> Any:
    c, counts = one.configuration, advice.pricer.counts
    sampler = counts.variant(labor=c.labor, kappa=c.kappa)
    return wb.batches(data.graph, data.train_idx, sampler=sampler, batch_size=counts.batch_size, seed=counts.seed)


def divided(mb: wb.MiniBatch, num_parts: int) -> list[wb.MiniBatch]:
    return [mb] if num_parts == 1 else mb.split(wb.partition_batch(mb, min(num_parts, mb.num_seeds)))


def rows_of(config: Config, data: wb.Dataset, advice: Advice, one: Priced) -> float:
    """Rows that the micro-batches of an epoch read."""
    num_parts, loader = one.configuration.num_parts, batches_of(data, advice, one)
    read = [
        sum(part.num_inputs for part in divided(mb, num_parts)) for _, mb in loader.steps(config.epochs * len(loader))
    ]
    return sum(read) / config.epochs


def peak_of(data: wb.Dataset, model: Any, advice: Advice, one: Priced) -> int:
    """Largest peak, by the meter, of as many steps as the advisor sampled batches."""
    loader, counts = batches_of(data, advice, one), advice.pricer.counts
    number = len(counts.sampled(labor=one.configuration.labor).batches)
    steps = [divided(mb, one.configuration.num_parts) for _, mb in loader.steps(number)]
    optimizer = torch.optim.Adam(model.parameters())
    found = wb.profile_epoch(model, steps, data.x, data.y, default_loss(data), optimizer).peak_bytes
    assert found is not None
    return found


def bytes_of_disk() -> int:
    """Bytes that this process has caused to be read from and written to storage, by the system's count."""
    fields: Mapping[str, str] = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"]) + int(fields["write_bytes"])


def ratios(table: Any) -> Any:
    """Rows with what was measured over what was predicted."""
    return table.assign(
        peak_ratio=table.peak_bytes / table.predicted_peak_bytes,
        moved_ratio=table.moved_bytes / table.predicted_moved_bytes,
        seconds_ratio=table.seconds / table.predicted_seconds,
        seconds_off=(table.seconds / table.predicted_seconds - 1).abs(),
    )


def of_cases(table: Any) -> Any:
    """Per case: the seconds of the configuration advised over the least that fit and leave out no neighbours."""
    found = []
    for case, rows in table[table.fits == 1].groupby(CASE, sort=False):
        whole = rows[~rows.configuration.str.contains("buffer")]  # it leaves neighbours out, and is advised last
        advised, fastest = rows.sort_values("place").iloc[0], (whole if len(whole) else rows).seconds.min()
        found.append({**dict(zip(CASE, case, strict=True)), "loss": advised.seconds / fastest})
    return pd.DataFrame(found)


def orders(table: Any) -> Any:
    """Per graph and model: Kendall's τ between predicted and measured seconds of all pairs of programs, and of those
    that are told apart, where all rounds of one took less than all of the other; NaN if there are none.

    A program that several budgets have was measured as often, and counts once, with its medians.
    """
    found = []
    for task, rows in table.groupby(TASK, sort=False):
        programs = rows.groupby("configuration")[["predicted_seconds", "seconds", "seconds_low", "seconds_high"]]
        predicted, seconds, low, high = programs.median().to_numpy().T
        one, other = np.triu_indices(len(predicted), k=1)
        same = np.sign(predicted[one] - predicted[other]) * np.sign(seconds[one] - seconds[other])
        measured = rows[["seconds", "seconds_low", "seconds_high"]].notna().to_numpy().all()
        same = same if measured else np.full(len(same), np.nan)
        apart = (high[one] < low[other]) | (high[other] < low[one])
        of_both = {"tau": same, "tau_apart": same[apart]}
        means = {name: pairs.mean() if len(pairs) else np.nan for name, pairs in of_both.items()}
        found.append({**dict(zip(TASK, task, strict=True)), "programs": len(predicted), "apart": apart.sum(), **means})
    return pd.DataFrame(found)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows: Any = ratios(table).set_index(CASE)
    text = (
        "Median error of predicted seconds {error:.0%}; the advice costs {loss:.2f} times the fastest program that "
        "leaves out no neighbours"
    )
    error: Any = rows.groupby(CASE, sort=False).seconds_off.median()
    return Title(text, error=error, loss=of_cases(table).set_index(CASE).loss)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.axes import PanelGrid, log_axis
    from workbench.plots.style import PALETTE, merge_legend, titled

    datasets: Any = table.groupby("dataset", sort=False)
    grid = PanelGrid(tuple(str(name) for name, _ in datasets))
    figure = grid.figure()
    for place, (_, rows) in enumerate(datasets):
        row, col = grid.cells(place)[0]
        for color, (budget, those) in zip(PALETTE, rows.groupby("budget", sort=False), strict=False):
            label = those.model + ": " + those.configuration
            options: dict[str, Any] = {"mode": "markers", "marker_color": color, "text": label, "row": row, "col": col}
            figure.add_scatter(x=those.predicted_seconds, y=those.seconds, name=f"memory: {budget}", **options)
        ends = [rows.predicted_seconds.min(), rows.predicted_seconds.max()]
        figure.add_scatter(x=ends, y=ends, mode="lines", name="as predicted", line_color="#9AA0A6", row=row, col=col)
        across, up = (log_axis(rows[column].dropna()) for column in ("predicted_seconds", "seconds"))
        figure.update_xaxes(across, title_text="predicted seconds per epoch", row=row, col=col)
        figure.update_yaxes(up, title_text="measured", row=row, col=col)
    merge_legend(figure)
    return titled(figure, title(table, reported).text, height=grid.height)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = ratios(table)
    by = [*CASE, "configuration"]
    one: dict[str, Any] = {"by": by, "form": ".3f"}
    timed: dict[str, Any] = {"form": ".3f", "timed": True}
    peak = f"measured peaks are within {PEAK:.0%} of predicted ones"
    moved = f"bytes moved are within {BYTES:.0%} of predicted ones"
    seconds = f"seconds are within {SECONDS:.0%} of predicted ones at the median"
    order = f"the order of a graph's programs is right: Kendall's τ is at least {ORDER:g}"
    apart = f"the order of those that all rounds tell apart is right: τ of their pairs is at least {ORDER:g}"
    advised = (
        f"in {ADVISED:.0%} of cases the configuration advised takes at most {AS_FAST:g} times the seconds of the "
        "fastest that fits and leaves out no neighbours"
    )
    return [
        claims.within("peak", peak, rows, value="peak_ratio", least=1 - PEAK, most=1 + PEAK, **one),
        claims.within("moved", moved, rows, value="moved_ratio", least=1 - BYTES, most=1 + BYTES, **one),
        claims.median_within("seconds", seconds, rows, value="seconds_off", most=SECONDS, timed=True, **one),
        claims.within("order", order, orders(table), value="tau", least=ORDER, by=TASK, **timed),
        claims.within("order-apart", apart, orders(table), value="tau_apart", least=ORDER, by=TASK, **timed),
        claims.within("advised", advised, of_cases(table), value="loss", most=AS_FAST, share=ADVISED, by=CASE, **timed),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Measured over predicted, by case: medians over configurations; what the advice costs, and τ of all budgets."""
    columns = ["peak_ratio", "moved_ratio", "seconds_ratio"]
    means: Any = ratios(table).groupby(CASE, sort=False)[columns].median().reset_index()
    return means.merge(of_cases(table), on=CASE).merge(orders(table).drop(columns=["programs", "apart"]), on=TASK)

"""Rows read ahead of training: epochs from disk beside epochs in memory, and beside their reading and training alone.

All epochs have the same batches. Reading alone samples, plans and reads, and trains nothing; training alone has its
batches and all rows in memory. Read ahead, an epoch should take as long as the longer of both. One loop reads all
epochs, so that a later one begins with what an earlier one left in memory; packed rows are written before each epoch,
which is part of its time. How many batches are read together, and which rows in one read, `plan_reading` chooses for
the disk as measured.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.beyond.reading_systems import ReadingConfig, WithBelady, WithPacked, rows_in_memory
from experiments.mariusgnn.training_systems import InMemory
from workbench.core.dataset import Dataset
from workbench.core.randomness import permutation
from workbench.core.trace import AccessTrace
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.outofcore.tuning import DiskModel

MEMORY, READING, TRAINING = "in memory", "reading alone", "training alone"
AHEAD, PACKED = "read ahead", "packed before"
OVERLAP, TIMES = 1.15, 1.5
"""Claimed of an epoch that is read ahead: over the longer of reading and training alone, and over one in memory."""

CASE = ["dataset", "num_partitions", "capacity"]


class Config(ReadingConfig):
    """A data set and the memory for its rows: `capacity` of `num_partitions` parts of them.

    Args:
        gap_bytes: None: as planned for the disk.
        group: None: as planned for the disk.
        steps: batches per epoch; None: as many as there are.
    """

    gap_bytes: int | None = None
    group: PositiveInt | None = None
    steps: PositiveInt | None = None


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = fewer(config.dataset.load(), config)
    with TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        wb.MappedRows.create(folder, data.x)
        planned = planned_for(config, data, DiskModel.measured(name))
        config = config.model_copy(update=planned)
        systems = {MEMORY: InMemory, TRAINING: TrainingAlone, READING: ReadingAlone, AHEAD: WithBelady}
        systems[PACKED] = WithPacked
        sides = {kind: Side(system(config, data, folder)) for kind, system in systems.items()}
        for kind, side in sides.items():  # not in turn: when an epoch ends, the next one is being read
            for epoch in range(config.epochs - 1):  # the last one has none after it to sample ahead
                side.epoch(epoch)
            if kind in (READING, AHEAD):
                side.system.finish()
    yield from ({**row, **{f"planned_{name}": value for name, value in planned.items()}} for row in rows(sides))


def planned_for(config: Config, data: Dataset, disk: DiskModel) -> dict[str, int]:
    """How the rows of an epoch are read ahead in the least time of a disk."""
    sampler = wb.DenseSampler(config.fanouts, seed=config.seed)  # that of all systems
    loader = wb.batches(data.graph, data.train_idx, sampler=sampler, batch_size=config.batch_size, seed=config.seed)
    row_bytes = data.x[:1].nbytes
    plan = wb.outofcore.plan_reading(
        AccessTrace.of(mb.node_ids for _, mb in loader.epoch(0)),
        num_rows=len(data.x),
        row_bytes=row_bytes,
        memory=rows_in_memory(config, data) * row_bytes,
        disk=disk,
    )
    ahead = next(reading for reading in (plan.best, *plan.others) if reading.method == "belady")
    return {"group": ahead.group, "gap_bytes": plan.gap_bytes}


def fewer(data: Dataset, config: Config) -> Dataset:
    """The data set with as many of its training nodes, drawn at random, as the steps of an epoch have."""
    count = len(data.train_idx) if config.steps is None else config.steps * config.batch_size
    return replace(data, train_idx=data.train_idx[permutation(config.seed, len(data.train_idx))[:count]])


class TrainingAlone(InMemory):
    """Steps on batches and rows that are in memory."""

    def epoch(self, epoch: int) -> Iterator[Any]:
        batches = [mb for _, mb in self._loader.epoch(epoch)]
        yield None  # from here on it is timed
        yield from (self._step(mb, self._x, self._data.y) for mb in batches)


class ReadingAlone(WithBelady):
    """Batches and their rows, which nobody trains on."""

    def epoch(self, epoch: int) -> Iterator[Any]:
        yield from (None for _ in self._items(epoch))


class Side:
    """Epochs of a kind, one after the other.

    Args:
        system: that trains or reads.
    """

    def __init__(self, system: Any) -> None:
        self.system = system
        self.losses: list[float] = []
        self.seconds: list[float] = []

    def epoch(self, epoch: int) -> None:
        """Run an epoch, and time it from the first step of training alone on."""
        steps, start = iter(self.system.epoch(epoch)), time.perf_counter()
        if isinstance(self.system, TrainingAlone):
            next(steps)
            start = time.perf_counter()
        losses = [loss for loss in steps if loss is not None]
        self.seconds.append(time.perf_counter() - start)
        self.losses += [float(loss) for loss in losses]


def rows(sides: dict[str, Side]) -> Iterator[dict[str, Any]]:
    """A row per kind of epoch: medians over all but the first, in which everything is used for the first time."""
    seconds = {kind: side.seconds[1:] for kind, side in sides.items()}
    longer = [max(both) for both in zip(seconds[READING], seconds[TRAINING], strict=True)]
    for kind, side in sides.items():
        over_memory = [a / b for a, b in zip(seconds[kind], seconds[MEMORY], strict=True)]
        same = [loss == other for loss, other in zip(side.losses, sides[MEMORY].losses, strict=False)]
        reads = getattr(side.system, "reads", None)
        yield {
            "epoch": kind,
            "num_steps": len(sides[MEMORY].losses) // len(sides[MEMORY].seconds),
            "epoch_seconds": median(seconds[kind]),
            "over_memory": median(over_memory),
            "over_memory_low": min(over_memory),
            "over_memory_high": max(over_memory),
            "over_longer": median(a / b for a, b in zip(seconds[kind], longer, strict=True)),
            "same_losses": sum(same) / len(same) if same else None,
            "read_bytes": 0.0 if reads is None else reads.read_bytes / len(side.seconds),
        }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    ahead: Any = table[table.epoch == AHEAD].set_index(CASE)
    text = "Read ahead, an epoch takes {memory:.2f} times one in memory, {longer:.2f} times its longer part alone"
    return Title(text, memory=ahead.over_memory, longer=ahead.over_longer)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    shares = table.capacity.astype(str) + "/" + table.num_partitions.astype(str) + " of the rows in memory"
    shown: Any = zip(shares, table.dataset, table.epoch, table.epoch_seconds, strict=True)
    bars = [StageBar(share, dataset, epoch, {"epoch": seconds}) for share, dataset, epoch, seconds in shown]
    return stage_bars(bars, axis="an epoch's time", title=title(table, reported).text)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    trained: Any = table[table.epoch.isin((TRAINING, AHEAD, PACKED))]
    ahead: Any = table[table.epoch == AHEAD]
    same = "losses of all steps are those of training in memory, bit for bit"
    memory = f"read ahead, an epoch takes at most {TIMES:g} times one in memory"
    longer = f"and at most {OVERLAP:g} times the longer of its reading and its training alone"
    timed: dict[str, Any] = {"by": CASE, "form": ".2f", "timed": True}
    return [
        claims.within("same-losses", same, trained, value="same_losses", by=[*CASE, "epoch"], least=1),
        claims.within("near-memory", memory, ahead, value="over_memory", most=TIMES, **timed),
        claims.within("overlapped", longer, ahead, value="over_longer", most=OVERLAP, **timed),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every kind of epoch, over one in memory and over the longer of reading and training."""
    found: Any = table[[*CASE, "epoch", "epoch_seconds", "over_memory", "over_longer", "read_bytes"]]
    return found

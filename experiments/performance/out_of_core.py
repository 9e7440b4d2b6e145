"""Overlap of I/O and computation: an epoch of node classification from disk, with and without prefetching partitions.

Four epochs of the same order: the buffer's reads without any computation; an epoch without prefetching, whose time
outside of the buffer is the computation alone; and an epoch with prefetching, which should take as long as the longer
of the two. The first state is loaded before there is anything to compute, and what was written is flushed afterwards:
both are reported apart. Seconds of a phase are those in which at least one thread is in it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.core.dataset import Dataset
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

IO, COMPUTE, SERIAL, OVERLAPPED = "I/O alone", "computation alone", "one after the other", "overlapped"
MOST = 1.15
"""Claimed: the overlapped epoch over the longer of I/O and computation."""

LONG_SECONDS = 1.0
"""Both must take longer than this for the claim to apply."""

CASE = ["graph", "num_partitions", "capacity", "hidden_dim", "train_share"]
_EDGES = ("fill_wall_seconds", "flush_wall_seconds")

Phase = Callable[[str], AbstractContextManager[Any]]


class Config(ModelConfig):
    """One shape of the buffer.

    Args:
        num_partitions: p, of which all have training nodes.
        capacity: c, partitions in the buffer.
        batch_size: training nodes per step.
        train_share: fraction of the training nodes that are used, which sets how long the computation takes.
        repeats: epochs of each kind, in turn.
    """

    num_partitions: PositiveInt
    capacity: PositiveInt
    batch_size: PositiveInt
    train_share: float = 1.0
    repeats: PositiveInt = 3


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    with TemporaryDirectory() as name:
        folder = Path(name) / "store"
        store = wb.outofcore.PartitionStore.build(
            folder, data.graph, rows=data.x, num_partitions=config.num_partitions, seed=config.seed
        )
        sides = {kind: Side(config, data, store, kind) for kind in (IO, SERIAL, OVERLAPPED)}
        for _ in range(config.repeats + 1):  # the first round warms up
            for side in sides.values():
                side.epoch()
        yield from rows(config, sides)


class Side:
    """Epochs of one kind, all of them the same.

    Args:
        config: of the point.
        data: the data set.
        store: its partitions.
        kind: what happens in the epoch.
    """

    def __init__(self, config: Config, data: Dataset, store: Any, kind: str) -> None:
        self.passes: list[dict[str, Any]] = []
        self._links = wb.Traffic()
        self._config, self._store, self._kind = config, store, kind
        self._order = wb.outofcore.node_order(
            config.num_partitions, config.capacity, config.num_partitions, seed=config.seed
        )
        self._data, self._labels = data, data.y[store.node_ids]
        ids = torch.isin(store.node_ids, data.train_idx).nonzero()[:, 0]
        self._ids = ids[: max(1, round(config.train_share * len(ids)))]
        if config.train_share < 1:
            ids = ids[torch.linspace(0, len(ids) - 1, len(self._ids)).long()]  # of all partitions
            self._ids = ids.unique()

    def epoch(self) -> None:
        """Run and measure one epoch."""
        measured = wb.meter.measure_epoch(self._steps, traffic=self._links, warm_up=False)
        self.passes.append(measured.row())

    def _steps(self, phase: Phase) -> Iterator[Any]:
        options: dict[str, Any] = {"prefetch": self._kind != SERIAL, "traffic": self._links}
        with wb.outofcore.PartitionBuffer(self._store, capacity=self._config.capacity, **options) as buffer:
            yield from (self._states(buffer, phase) if self._kind == IO else self._train(buffer, phase))

    def _states(self, buffer: Any, phase: Phase) -> Iterator[None]:
        states = buffer.epoch(self._order)
        for number in range(self._order.num_states):
            with phase("load" if number else "fill"):
                next(states)
            yield None
        with phase("flush"):
            next(states, None)

    def _train(self, buffer: Any, phase: Phase) -> Iterator[torch.Tensor]:
        config, model = self._config, self._config.build(self._data)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        sampler = wb.DenseSampler(config.fanouts, seed=config.seed)
        loader = wb.outofcore.batches(
            buffer, self._order, self._ids, sampler=sampler, batch_size=config.batch_size, epoch=0, phase=phase
        )
        for state, _, mb in loader:
            yield wb.train_step(model, mb, state.rows, self._labels, cross_entropy, optimizer, phase=phase)


def rows(config: Config, sides: dict[str, Side]) -> Iterator[dict[str, Any]]:
    """A row per kind of epoch, medians over the repetitions; computation alone is a part of the serial epoch."""
    found = {kind: _medians(side.passes[1:]) for kind, side in sides.items()}
    serial = found[SERIAL]
    computing = {name: 0.0 if name.startswith(("load_", "read_")) else value for name, value in serial.items()}
    computing["steady_seconds"] -= serial.get("load_wall_seconds", 0.0)
    longer = max(found[IO]["steady_seconds"], computing["steady_seconds"])
    fixed = {"graph": config.dataset.name, "num_states": config.num_partitions - config.capacity + 1}
    for kind, row in ({IO: found[IO], COMPUTE: computing} | {k: found[k] for k in (SERIAL, OVERLAPPED)}).items():
        yield fixed | {"epoch": kind, **row, "over_longer": row["steady_seconds"] / longer, "longer_seconds": longer}


def _medians(passes: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of all columns; `steady_seconds` is the epoch without its initial fill and final flush."""
    for row in passes:
        row["read_bytes"] = row["disk_rows_bytes"] + row["disk_edges_bytes"]
        row["steady_seconds"] = row["epoch_seconds"] - sum(row.get(name, 0.0) for name in _EDGES)
    names = dict.fromkeys(name for row in passes for name in row)
    values = {name: [row.get(name, 0) for row in passes] for name in names}
    return {name: None if None in found else median(found) for name, found in values.items()}


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    overlapped: Any = table[table.epoch == OVERLAPPED].set_index(CASE)
    return Title(
        "Overlapped, an epoch takes {longer:.2f} times the longer of I/O and computation", longer=overlapped.over_longer
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    rows: Any = table.itertuples()
    bars = [StageBar(_setting(row), row.graph, row.epoch, _stages(row)) for row in rows]
    return stage_bars(
        bars,
        axis="an epoch's time",
        title=title(table, reported).text,
        subtitle="main thread, without the initial fill and the final flush",
    )


def _setting(row: Any) -> str:
    share = f"{row.train_share:.0%} of its training nodes"
    return f"p = {row.num_partitions}, c = {row.capacity}, width {row.hidden_dim}, {share}"


def _stages(row: Any) -> dict[str, float]:
    """Of the main thread; it waits all the time if it does nothing else."""
    if row.epoch == IO:
        return {"waiting for partitions": row.steady_seconds, "sampling": 0.0, "training": 0.0}
    waiting = 0.0 if row.epoch == COMPUTE else row.load_wall_seconds
    training = row.steady_seconds - waiting - row.sample_wall_seconds
    return {"waiting for partitions": waiting, "sampling": row.sample_wall_seconds, "training": max(0.0, training)}


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    trained: Any = table[table.epoch.isin([SERIAL, OVERLAPPED])]
    apart: Any = trained.groupby(CASE).loss.agg(
        lambda losses: float(losses.max(skipna=False) - losses.min(skipna=False))
    )
    found = [
        claims.within(
            "same-losses",
            "with and without prefetching the losses are equal",
            apart.reset_index(name="apart"),
            value="apart",
            by=CASE,
            most=0,
        )
    ]
    if len(long := _long(table)):
        statement = f"overlapped, an epoch takes at most {MOST:g} times the longer of I/O and computation"
        options: dict[str, Any] = {"value": "over_longer", "by": CASE, "most": MOST, "form": ".2f", "timed": True}
        found.append(claims.within("overlapped", statement, long, **options))
    return found


def _long(table: pd.DataFrame) -> Any:
    """Overlapped epochs of the cases in which I/O and computation both take long enough to be compared."""
    alone = table[table.epoch.isin([IO, COMPUTE])]
    shortest: Any = alone.groupby(CASE).steady_seconds.min(skipna=False)
    chosen = shortest[~(shortest <= LONG_SECONDS)].index  # a case whose seconds were lost is not left out
    overlapped: Any = table[table.epoch == OVERLAPPED]
    return overlapped[[key in chosen for key in overlapped[CASE].itertuples(index=False, name=None)]]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every kind of epoch, over the longer of I/O and computation."""
    found: Any = table[[*CASE, "epoch", "steady_seconds", "over_longer", "read_bytes"]]
    return found

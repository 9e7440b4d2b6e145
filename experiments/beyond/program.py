"""One program of all ideas, on real ranks: dependence, a disk, a cache, placement, macrobatches, micro-batches.

Each piece is replaced by its plain form in turn. The losses must not change, and the bytes that cross each link tell
what the piece is for.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.distributed.group import gather_numbers
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title, case_words

PIECES = ("disk", "cache", "placement", "macrobatch", "micro-batches")
PLAIN = ("none", *PIECES, "all")
LINKS = ("disk", "host", "device", "peer")

CASE = ["dataset", "num_ranks"]
LOSSES = 1e-10
"""Relative difference that float64 allows: micro-batches add gradients in another order."""


class Config(DataPointConfig):
    """Training steps of all ranks, with each piece of the program in its plain form.

    Args:
        num_ranks: ranks, processes of this machine; each has every rank-th training node.
        fanouts: neighbours per layer of LABOR, input layer first.
        kappa: batches per group of dependent ones.
        batch_size: training nodes per rank and batch.
        steps: training steps.
        window: batches per macrobatch.
        num_parts: micro-batches per batch.
        cache_share: rows of the cache as a fraction of the nodes.
        placed_share: rows that are placed on each rank as a fraction of the nodes.
        peer_cost: cost of a row from a peer relative to one from the host.
        hidden_dim: width of the model's hidden layers.
        timeout_seconds: for the ranks as a whole.
    """

    num_ranks: PositiveInt
    fanouts: tuple[int, ...] = Field(min_length=1)
    kappa: PositiveInt
    batch_size: PositiveInt
    steps: PositiveInt
    window: PositiveInt
    num_parts: PositiveInt
    cache_share: float = Field(gt=0, le=1)
    placed_share: float = Field(gt=0, le=1)
    peer_cost: float = Field(default=0.3, gt=0, le=1)
    hidden_dim: PositiveInt
    timeout_seconds: float = Field(default=600, gt=0)


def run(config: Config) -> Iterator[dict[str, Any]]:
    values = config.model_dump(mode="json")
    yield from wb.run_ranks(on_rank, values, config.num_ranks, timeout_seconds=config.timeout_seconds)


def on_rank(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The work of one rank; rows are those of rank 0, with the bytes of all ranks."""
    config = Config(**values)
    data = config.dataset.load()
    expected: list[float] = []
    for plain in reversed(PLAIN):  # first all
        pieces = {*PIECES} - ({*PIECES} if plain == "all" else {plain})
        with tempfile.TemporaryDirectory() as folder:
            losses, peak_bytes, moved = train(config, data, pieces, Path(folder))
        expected = expected or losses
        yield {
            "plain": plain,
            "num_steps": len(losses),
            "loss_difference": max(abs(a / b - 1) for a, b in zip(losses, expected, strict=True)),
            "step_peak_bytes": peak_bytes,
            **{f"{link}_bytes": nbytes for link, nbytes in zip(LINKS, moved, strict=True)},
        }


def train(config: Config, data: Any, pieces: set[str], folder: Path) -> tuple[list[float], int, list[int]]:
    """Train with some pieces of the program, the others in their plain form.

    Returns:
        Losses of the steps, the largest peak of a step on this rank, and the bytes of rows that crossed each link.
    """
    data = replace(data, x=data.x.double())
    rank, world = wb.distributed.get_rank(), wb.distributed.get_world_size()
    depth, links = len(config.fanouts), wb.Traffic()
    sizes = {"in_dim": data.num_features, "hidden_dim": config.hidden_dim, "out_dim": data.num_classes}
    model = wb.build_model("sage-mean", **sizes, num_layers=depth, seed=config.seed).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = wb.LaborSampler(config.fanouts, seed=config.seed, dependence=wb.Smoothed(config.kappa))
    mine = data.train_idx[rank::world]
    batches = wb.batches(data.graph, mine, sampler=sampler, batch_size=config.batch_size, drop_last=True)
    store = store_of(config, data, pieces, folder, links)
    before, losses, peak_bytes = links.snapshot(), [], 0
    for window in wb.windows(batches.steps(config.steps), size=config.window):
        rows = wb.stage(store, window) if "macrobatch" in pieces else store
        for _, mb in window:
            micro = mb.split(wb.partition_batch(mb, config.num_parts)) if "micro-batches" in pieces else [mb]
            with wb.PeakMeter() as meter:
                loss = wb.cooperative.train_step(model, micro, rows, data.y, cross_entropy, optimizer)
            losses.append(float(loss))
            peak_bytes = max(peak_bytes, meter.peak_bytes)
    moved = links.snapshot() - before
    return losses, peak_bytes, [int(sum(gather_numbers(moved.nbytes(link, "rows")))) for link in LINKS]


def store_of(config: Config, data: Any, pieces: set[str], folder: Path, links: wb.Traffic) -> Any:
    """Features as a rank reads them: from the host's memory or a disk, through a cache and placed rows."""
    rank, nodes = wb.distributed.get_rank(), data.graph.num_nodes
    store: Any = wb.MemoryRows(data.x, traffic=links)
    if "disk" in pieces:
        wb.MappedRows.create(folder / "x", data.x)
        store = wb.DiskRows(folder / "x", traffic=links)
    if "cache" in pieces:
        store = wb.CachedRows(store, round(config.cache_share * nodes), policy="sieve", traffic=links)
    if "placement" in pieces:
        setting: dict[str, Any] = {"fanouts": config.fanouts, "batch_size": config.batch_size}
        probability = wb.placement.inclusion_probability(data.graph, data.train_idx, **setting)
        held = round(config.placed_share * nodes)
        devices = {"num_devices": config.num_ranks, "rows_per_device": held, "peer_cost": config.peer_cost}
        placement = wb.placement.place_rows(probability, **devices)
        store = wb.placement.PlacedRows(placement, rank, host=store, traffic=links)
    return store


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    saved: Any = with_store_bytes(table).pivot_table("store_bytes", CASE, "plain")
    text = "The program reads {times:.1f} times fewer bytes from disk than its plain form from the host"
    return Title(text, times=saved["all"] / saved["none"])


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.axes import PanelGrid
    from workbench.plots.style import PALETTE, merge_legend, titled

    ordered = table.sort_values("plain", key=lambda plain: plain.map(PLAIN.index), kind="stable")
    cases: Any = ordered.groupby(CASE, sort=False)
    grid = PanelGrid(tuple(case_words(CASE, at) for at, _ in cases))
    figure = grid.figure()
    unit = 2.0**20
    for place, (_, rows) in enumerate(cases):
        row, col = grid.cells(place)[0]
        for link, color in zip(LINKS, PALETTE, strict=False):
            figure.add_bar(
                x=rows.plain, y=rows[f"{link}_bytes"] / unit, name=link, marker_color=color, row=row, col=col
            )
        figure.update_yaxes(title_text="rows read from (MiB)", row=row, col=col)
        # The names, long and the same everywhere, would run into the titles of the panels below.
        figure.update_xaxes(showticklabels=place + grid.columns >= len(cases), row=row, col=col)
    merge_legend(figure)
    figure.update_layout(barmode="stack")
    subtitle = "bars by the piece that is in its plain form"
    return titled(figure, title(table, reported).text, subtitle=subtitle, height=grid.height)


def with_store_bytes(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the bytes that leave the slowest store: the disk, or in the plain form the host's memory."""
    return table.assign(store_bytes=table.disk_bytes.where(table.plain != "all", table.host_bytes))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    return [
        claims.within(
            "losses-are-equal",
            "no piece changes a loss by more than float64 rounds",
            table,
            value="loss_difference",
            by=[*CASE, "plain"],
            most=LOSSES,
            form=".1e",
        ),
        claims.least(
            "each-spares-the-disk",
            "without the cache, the placement or the macrobatch more bytes are read from the disk",
            table,
            value="disk_bytes",
            among="plain",
            winner="none",
            rivals=["cache", "placement", "macrobatch"],
            by=CASE,
        ),
        claims.least(
            "parts-need-less",
            "a step on micro-batches has a lower peak than on the whole batch",
            table,
            value="step_peak_bytes",
            among="plain",
            winner="none",
            rivals=["micro-batches"],
            by=CASE,
        ),
        claims.least(
            "program-reads-least",
            "the program reads fewer bytes from the disk than its plain form from the host",
            with_store_bytes(table),
            value="store_bytes",
            among="plain",
            winner="none",
            rivals=["all"],
            by=CASE,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MiB of rows by link and piece, over all ranks, and the largest peak of a step."""
    mib: Any = table.set_index([*CASE, "plain"])[[*(f"{link}_bytes" for link in LINKS), "step_peak_bytes"]] / 2**20
    return mib.rename(columns=lambda name: name.removesuffix("_bytes").replace("_", " ") + " (MiB)").reset_index()

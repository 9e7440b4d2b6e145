"""Macrobatches beside mini-batches sampled and fetched one by one, by the same engine, on ranks of this machine.

Both train the same model on the same mini-batches of each rank's own seeds, over sockets: topology and features are
divided over the ranks at random. Epochs alternate and start together. Preparation is the time in which a rank waits for
its next mini-batch and rows: sampling, fetching features, and waiting for other ranks there. Ratios are macrobatch over
one by one; counts are those of all ranks in one epoch, and seconds those of the slowest rank.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn import functional as F

import workbench as wb
from experiments.performance.ratios import ratio_columns, ratio_dots
from workbench.distributed.group import gather_numbers
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.kernels.threads import get_num_threads

MEASURES = {"rows": "rows fetched", "wall": "epoch time", "preparation": "preparation time"}
"""What is compared, by the name of its ratio."""

SAMPLERS = {"NS": lambda fanouts: wb.NeighborSampler(fanouts, replace=True), "LABOR-0": wb.LaborSampler}
"""Neighbour sampling is with replacement, as in the paper."""


class Config(ModelConfig):
    """A number of ranks and a size of the window.

    Args:
        device: only the CPU is benchmarked.
        sampler: name in the papers.
        num_ranks: ranks, which share the cores.
        batch_size: seeds per mini-batch and rank.
        window: mini-batches of a macrobatch, B = F.
        repeats: epochs of each side that are timed.
        timeout_seconds: of all ranks together.
    """

    device: Literal["cpu"] = "cpu"
    sampler: Literal["NS", "LABOR-0"]
    num_ranks: PositiveInt
    batch_size: PositiveInt
    window: PositiveInt
    repeats: PositiveInt
    timeout_seconds: PositiveInt = 7200


def run(config: Config) -> Iterator[dict[str, Any]]:
    values = config.model_dump(mode="json")
    yield from wb.run_ranks(on_rank, values, config.num_ranks, timeout_seconds=config.timeout_seconds)


def on_rank(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The work of one rank; rank 0 yields the row of the point."""
    config, size = Config(**values), wb.distributed.get_world_size()
    data = config.dataset.load()
    owner = wb.partition_graph(data.graph, size, method="random", seed=config.seed)
    wb.distributed.check_ranks_agree({"data": data.fingerprint, "owner": owner})
    owned = wb.sampling.OwnedGraph.of(data.graph, owner, wb.distributed.get_rank(), size)
    seeds = data.train_idx[owner[data.train_idx] == wb.distributed.get_rank()]
    sides = {
        name: Side(config, data, owned, owner, seeds, window)
        for name, window in {"": config.window, "one_by_one_": 1}.items()
    }
    losses = {name: side.epoch()["loss"] for name, side in sides.items()}  # warms up too
    counts = {name: side.counts() for name, side in sides.items()}
    rounds = [epochs_of(sides, flipped=turn % 2 == 1) for turn in range(config.repeats)]
    if wb.distributed.get_rank() == 0:
        fixed = {"graph": config.dataset.name, "num_threads": get_num_threads(), "steps": len(sides[""].loader)}
        equal = losses[""] == losses["one_by_one_"]
        yield fixed | {"losses_equal": equal, "num_layers": len(config.fanouts)} | columns(counts, rounds)


class Side:
    """One of the two: a loader over this rank's seeds, a model, and counters of what crosses ranks."""

    def __init__(
        self,
        config: Config,
        data: Any,
        owned: wb.sampling.OwnedGraph,
        owner: torch.Tensor,
        seeds: torch.Tensor,
        window: int,
    ) -> None:
        self.links = wb.Traffic()
        sampler = wb.macrobatch.MacrobatchSampler(SAMPLERS[config.sampler](config.fanouts), owned, traffic=self.links)
        store = wb.distributed.OwnedRows.of(data.x, owner, traffic=self.links)
        options: dict[str, Any] = {"sampler": sampler, "store": store, "size": window, "epoch": 0}
        self.loader = wb.macrobatch.batches(owned.graph, seeds, batch_size=config.batch_size, **options)
        self.model, self.labels = config.build(data), data.y
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def epoch(self) -> dict[str, Any]:
        """Train an epoch; seconds of the slowest rank, and the losses of the steps."""
        losses, waited = [], 0.0
        gather_numbers(0)  # starts the ranks together
        begin = since = time.perf_counter()
        for _, mb, rows in self.loader:
            waited += time.perf_counter() - since
            losses.append(wb.cooperative.train_step(self.model, mb, rows, self.labels, F.cross_entropy, self.optimizer))
            since = time.perf_counter()
        seconds = {"wall": since - begin, "preparation": waited}
        slowest = {name: max(gather_numbers(value)) for name, value in seconds.items()}
        return slowest | {"loss": torch.stack(losses).tolist()}

    def counts(self) -> dict[str, float]:
        """What the epoch so far has received from other ranks, all ranks together; relays are those of one rank."""
        links = self.links.snapshot()
        rows, nbytes = sum(gather_numbers(links.count("rank"))), sum(gather_numbers(links.nbytes("rank")))
        return {"rows": rows, "rank_bytes": nbytes, "relays": links.count("rank", "relays")}


def epochs_of(sides: dict[str, Side], *, flipped: bool) -> dict[str, dict[str, Any]]:
    return {name: sides[name].epoch() for name in (reversed(sides) if flipped else sides)}


def columns(counts: Mapping[str, Mapping[str, float]], rounds: list[dict[str, dict[str, Any]]]) -> dict[str, float]:
    """Columns of a row: counts, median seconds, and ratios macrobatch ÷ one by one with their quartiles."""
    row = {f"{side}{name}": value for side, values in counts.items() for name, value in values.items()}
    row["rows_ratio"] = counts[""]["rows"] / counts["one_by_one_"]["rows"]
    for clock in ("wall", "preparation"):
        for side in counts:
            row[f"{side}{clock}_seconds"] = float(np.median([one[side][clock] for one in rounds]))
        ratios = [one[""][clock] / one["one_by_one_"][clock] for one in rounds]
        row |= ratio_columns(clock, ratios)
    return row


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    return ratio_dots(
        table,
        table.sampler + table.window.map(", window of {}".format) + table.num_ranks.map(", {} ranks".format),
        MEASURES,
        title="Macrobatches beside mini-batches fetched one by one",
        subtitle="macrobatch ÷ one by one, an epoch of ranks that share this machine's cores",
        axis="macrobatch ÷ one by one",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "sampler", "num_ranks", "window"]
    relays = (table.num_layers + 1) * np.ceil(table.steps / table.window)
    extra = table.assign(extra=table.relays - relays, unequal=1.0 - table.losses_equal.astype(float))
    few = "a window takes one relay per layer and one for features, however many mini-batches it has"
    return [
        claims.within("same-losses", "the losses are equal, bit for bit", extra, value="unequal", by=by, most=0),
        claims.within("few-relays", few, extra, value="extra", by=by, least=0, most=0),
        claims.within("fewer-rows", "fewer rows are fetched", table, value="rows_ratio", by=by, most=0.999),
        claims.within(
            "prepared-sooner",
            "preparation takes less time",
            table,
            value="preparation_ratio",
            by=by,
            most=claims.LESS,
            form=".2f",
            timed=True,
        ),
        claims.within(
            "shorter-epoch",
            "an epoch takes less time",
            table,
            value="wall_ratio",
            by=by,
            most=claims.LESS,
            form=".2f",
            timed=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of rows and times over all cases."""
    return pd.DataFrame(
        {
            "measured": f"{text}, macrobatch ÷ one by one",
            "cases": len(table),
            "median": table[f"{name}_ratio"].median(),
            "from": table[f"{name}_ratio"].min(),
            "to": table[f"{name}_ratio"].max(),
        }
        for name, text in MEASURES.items()
    )

"""Epochs on real ranks: mini-batches one by one, in macrobatches, and with cached aggregates, timed part by part.

The three ways train equal models on the same seeds, epoch by epoch in turn; each epoch starts on all ranks together.
"""

import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.batchgnn.rank_fetches import (
    CACHE,
    MACROBATCH,
    ONE_BY_ONE,
    EpochConfig,
    owners,
    rank_orders,
    reads,
    row_bytes,
)
from workbench.distributed.group import gather_numbers

PARTS = {
    "topology": ("topology",),
    "features": ("features",),
    "export": ("fetch", "transfer"),
    "forward": ("forward",),
    "backward": ("backward", "step"),
}
"""The paper's parts of an epoch by the phases that they consist of: "topology" includes fetching cached aggregates,
"export" cuts a mini-batch's rows out of those of its macrobatch, "backward" includes the sum of gradients over the
ranks and the optimizer's step. Before each step a rank waits for the others, which is in none of them."""


class RankConfig(EpochConfig):
    """Epochs of a number of ranks.

    Args:
        model: kind of layer.
        hidden_dim: width of hidden layers.
        epochs: epochs of each way that are timed, after one that is not.
        export: also measure converting an epoch's mini-batches for other libraries.
        system: this library's ways to fetch, or DistDGL itself, which takes Linux and its root.
        timeout_seconds: of all ranks together.
    """

    model: Literal["sage-mean", "gcn", "gin"]
    hidden_dim: PositiveInt
    epochs: PositiveInt
    export: tuple[Literal["dgl", "pyg"], ...] = ()
    system: Literal["workbench", "DistDGL"] = "workbench"
    timeout_seconds: PositiveInt = 3600

    def build(self, data: Any) -> Any:
        """Build the model as the paper does: dropout for SAGE and GCN, batch norms for GIN."""
        options: dict[str, Any] = {"norm": "batch"} if self.model == "gin" else {"dropout": 0.5}
        sizes = {"hidden_dim": self.hidden_dim, "out_dim": data.num_classes, "num_layers": len(self.fanouts)}
        return wb.build_model(self.model, in_dim=data.num_features, seed=self.seed, **sizes, **options)


def on_rank(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The work of one rank; rank 0 yields the rows of the point, one per way to fetch."""
    config, rank = RankConfig(**values), wb.distributed.get_rank()
    data = config.dataset.load()
    owner = owners(data.graph, config, 0)
    wb.distributed.check_ranks_agree({"data": data.fingerprint, "owner": owner})
    orders = rank_orders(data.train_idx, owner, config, 0)[rank]
    sides = {name: Side(name, config, data, owner, orders) for name in (ONE_BY_ONE, MACROBATCH, CACHE)}
    for side in sides.values():
        side.epoch(0)  # warms up
    for number in range(config.epochs):
        for name in reversed(sides) if number % 2 else sides:
            sides[name].timed_epoch(number + 1)
    counts = last_counts(config, data, owner, orders)
    for name, side in sides.items():
        row = side.row() | modelled(side, counts, data)
        if rank == 0:
            yield {"fetching": name, "num_batches": len(orders), "num_nodes": data.graph.num_nodes, **row}


class Side:
    """One way to fetch: a model, its optimizer, and what the rank samples and reads.

    Args:
        name: ONE_BY_ONE, MACROBATCH or CACHE.
        config: of the point.
        data: whole, of which the rank keeps its part.
        owner: int64 [num_nodes].
        orders: seeds of the rank's mini-batches.
    """

    def __init__(self, name: str, config: RankConfig, data: Any, owner: Any, orders: list[Any]) -> None:
        rank, size = wb.distributed.get_rank(), wb.distributed.get_world_size()
        self.name, self.config, self.orders, self.y = name, config, orders, data.y
        self.relayed, self.fetched = wb.Traffic(), wb.Traffic()
        self.size = 1 if name == ONE_BY_ONE else len(orders)
        self.owned = wb.sampling.OwnedGraph.of(data.graph, owner, rank, size)
        self.model = config.build(data)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003)
        sampler: Any = wb.NeighborSampler(config.fanouts, replace=config.replace, seed=config.seed)
        self.rows: Any = wb.distributed.OwnedRows.of(data.x, owner, traffic=self.fetched)
        self.cache_seconds = self.aggregated = None
        if name == CACHE:
            for _ in range(2):  # the first one loads compiled code
                gather_numbers(0)  # starts the ranks together
                start = time.perf_counter()
                aggregated = wb.macrobatch.aggregate_rows(self.owned, self.rows, model=self.model, traffic=self.fetched)
                self.cache_seconds = max(gather_numbers(time.perf_counter() - start))
            self.aggregated = aggregated
            sampler = wb.macrobatch.WithoutInputLayer(sampler)
        self.sampler = wb.macrobatch.MacrobatchSampler(sampler, self.owned, traffic=self.relayed)
        self.epochs: list[dict[str, float]] = []
        self.counts: dict[str, int] = {}

    def epoch(self, number: int, watch: wb.Stopwatch | None = None) -> list[float]:
        """Train on all mini-batches; seconds until the end of each one's forward pass, since that of the one before."""
        watch, ends = watch or wb.Stopwatch(), []
        steps = range(number * len(self.orders), (number + 1) * len(self.orders))
        for window in wb.windows(zip(steps, self.orders, strict=True), size=self.size):
            with watch.phase("topology"):
                numbers, seeds = zip(*window, strict=True)
                batches = self.sampler.sample_window(self.owned.graph, seeds, steps=numbers)
                aggregated = None if self.aggregated is None else wb.stage(self.aggregated, batches)
            with watch.phase("features"):
                rows: Any = wb.stage(self.rows, batches)
            rows = rows if aggregated is None else wb.training.AggregatedRows(rows, aggregated)
            for mb in batches:
                self._step(mb, rows, watch)
                ends.append(prepared(watch))
        return [end - before for before, end in zip([0.0, *ends], ends, strict=False)]

    def _step(self, mb: wb.MiniBatch, rows: Any, watch: wb.Stopwatch) -> None:
        wb.cooperative.train_step(self.model, mb, rows, self.y, cross_entropy, self.optimizer, phase=watch.phase)

    def timed_epoch(self, number: int) -> None:
        """Train an epoch and keep its seconds by part, means over the ranks, and its traffic, summed over them."""
        watch = wb.Stopwatch()
        before = self.relayed.snapshot(), self.fetched.snapshot()
        gather_numbers(0)  # starts the ranks together
        start, processor = time.perf_counter(), time.process_time()
        batches = self.epoch(number, watch)
        found = {"processor_seconds": mean(time.process_time() - processor)}
        found["epoch_seconds"] = mean(time.perf_counter() - start)
        for part, phases in PARTS.items():
            found[f"{part}_seconds"] = mean(sum(watch.seconds.get(phase, 0.0) for phase in phases))
        ranks = [gather_numbers(seconds) for seconds in batches]
        found["batch_seconds"] = sum(map(sum, ranks)) / len(ranks) / len(ranks[0])
        found["range_seconds"] = sum(max(one) - min(one) for one in ranks) / len(ranks)
        self.epochs.append(found)
        relayed, fetched = (link.snapshot() - old for link, old in zip(self.links(), before, strict=True))
        own = {
            "rows": fetched.count("rank", "rows"),
            "relays": relayed.count("rank", "relays") + fetched.count("rank", "relays"),
            "topology_bytes": relayed.nbytes("rank", "ids") + relayed.nbytes("rank", "edges"),
            "relays_bytes": relayed.nbytes("rank", "relays") + fetched.nbytes("rank", "relays"),
            "features_bytes": fetched.nbytes("rank", "rows"),
            "request_bytes": fetched.nbytes("rank", "ids"),
        }
        self.counts = {name: int(sum(gather_numbers(count))) for name, count in own.items()}

    def links(self) -> tuple[wb.Traffic, wb.Traffic]:
        """What counts the topology and the features that this rank receives."""
        return self.relayed, self.fetched

    def row(self) -> dict[str, float | None]:
        """Medians of seconds over the epochs and the spread of those of an epoch; the traffic of the last one."""
        columns = {name: median(one[name] for one in self.epochs) for name in self.epochs[0]}
        times = [one["epoch_seconds"] for one in self.epochs]
        ends = {"epoch_seconds_low": min(times), "epoch_seconds_high": max(times)}
        own = {"macrobatch": self.size, "cache_seconds": self.cache_seconds}
        return {**own, **columns, **ends, **self.counts, **self._exports()}

    def _exports(self) -> dict[str, float]:
        """Seconds of converting an epoch's mini-batches to other libraries' forms."""
        if not self.config.export:
            return {}
        numbers = range(len(self.orders))
        batches = self.sampler.sample_window(self.owned.graph, self.orders, steps=numbers)
        found = {}
        for library in self.config.export:
            convert = {"dgl": wb.MiniBatch.to_dgl, "pyg": wb.MiniBatch.to_pyg}[library]
            convert(batches[0])  # imports the library
            start = time.perf_counter()
            for mb in batches:
                convert(mb)
            found[f"export_{library}_seconds"] = mean(time.perf_counter() - start)
        return found


def last_counts(config: RankConfig, data: Any, owner: Any, orders: list[Any]) -> wb.macrobatch.MacrobatchCounts:
    """What the last epoch's mini-batches ask of other ranks, counted on the whole graph without any exchange."""
    sampler = wb.NeighborSampler(config.fanouts, replace=config.replace, seed=config.seed)
    steps = range(config.epochs * len(orders), (config.epochs + 1) * len(orders))
    batches = (sampler.sample(data.graph, seeds, step=step) for step, seeds in zip(steps, orders, strict=True))
    return wb.macrobatch.count_macrobatches(batches, owner=owner, rank=wb.distributed.get_rank())


def modelled(side: Side, counts: wb.macrobatch.MacrobatchCounts, data: Any) -> dict[str, float]:
    """Bytes of equations 2 to 5, of all ranks together, relays apart."""
    cost = wb.macrobatch.macrobatch_bytes(reads(counts, side.name), size=side.size, row_bytes=row_bytes(data))
    parts = {"topology": cost.topology, "features": cost.features}
    return {f"modelled_{name}_bytes": sum(gather_numbers(value)) for name, value in parts.items()}


def prepared(watch: wb.Stopwatch) -> float:
    """Seconds of preparation and forward passes so far."""
    phases = [phase for part in ("topology", "features", "export", "forward") for phase in PARTS[part]]
    return sum(watch.seconds.get(phase, 0.0) for phase in phases)


def mean(value: float) -> float:
    """Mean over the ranks; collective."""
    found = gather_numbers(value)
    return sum(found) / len(found)

"""Steps, micro-batches, sampling, cache hits and prefetch on a device, each beside its plain form."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.gpu_check.throughput import synchronized
from experiments.performance.timing import interleaved
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding

OVERHEAD = {4: 1.1, 16: 1.5}
"""Claimed time of a step in so many micro-batches, divided by that of the whole batch; as on a CPU."""
HIDDEN = 0.5

Operation = Literal["step", "micro-batches", "sampling", "cache hits", "prefetch"]
Call = Callable[[], Any]


class Config(ModelConfig):
    """One operation beside its plain form.

    Args:
        operation: a step beside the CPU's; a step in micro-batches beside one on the whole batch; sampling on the
            device beside sampling on the host and copying; cached rows beside pinned rows of the host; an epoch with
            prefetch beside one without.
        model: without effect on sampling and cache hits.
        num_parts: micro-batches of the operation "micro-batches".
        method: that cuts them.
        num_seeds: the first training nodes are the seeds of the batch, or of one epoch.
        num_batches: of an epoch.
        repeats: rounds that are timed.
    """

    operation: Operation
    num_parts: PositiveInt = 1
    method: PartitionMethod = "auto"
    num_seeds: PositiveInt
    num_batches: PositiveInt = 1
    repeats: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    operations: dict[str, Callable[[Config, Any], tuple[Call, Call, dict[str, Any]]]] = {
        "step": step,
        "micro-batches": micro_batches,
        "sampling": sampling,
        "cache hits": cache_hits,
        "prefetch": prefetch,
    }
    ours, plain, more = operations[config.operation](config, data)
    times = interleaved(
        lambda: synchronized(ours, config.device), lambda: synchronized(plain, config.device), repeats=config.repeats
    )
    yield {
        "seconds": times["ours_seconds"],
        "plain_seconds": times["theirs_seconds"],
        "ratio": times["ratio_median"],
        "overhead": 1 / times["ratio_median"] if config.operation == "micro-batches" else None,
        "redundancy": None,
        "hidden": hidden(config, data, times) if config.operation == "prefetch" else None,
        **more,
    }


def step(config: Config, data: Any) -> tuple[Call, Call, dict[str, Any]]:
    """A step on the device, its rows in pinned memory of the host, beside the same step on the CPU."""
    batch = _batch(config, data)
    on_cpu = config.model_copy(update={"device": "cpu"})
    ours, plain = (_trainer(at, data, pin=at.device != "cpu") for at in (config, on_cpu))
    return lambda: ours([batch]), lambda: plain([batch]), {}


def micro_batches(config: Config, data: Any) -> tuple[Call, Call, dict[str, Any]]:
    """A step in micro-batches, which are cut already, beside one on the whole batch."""
    batch, train = _batch(config, data), _trainer(config, data, pin=_is_cuda(config))
    parts = batch.split(wb.partition_batch(batch, config.num_parts, method=config.method, seed=config.seed))
    more = {"redundancy": wb.redundancy(parts, batch).ratio}
    return lambda: train(parts), lambda: train([batch]), more


def sampling(config: Config, data: Any) -> tuple[Call, Call, dict[str, Any]]:
    """Sampling a graph on the device, beside sampling on the host and copying the batch."""
    sampler, seeds = wb.NeighborSampler(config.fanouts, seed=config.seed), _seeds(config, data)
    graph, seeds_there = data.graph.to(config.device), seeds.to(config.device)
    return (
        lambda: sampler.sample(graph, seeds_there),
        lambda: sampler.sample(data.graph, seeds).to(config.device),
        {},
    )


def cache_hits(config: Config, data: Any) -> tuple[Call, Call, dict[str, Any]]:
    """Rows that a cache on the device has, beside pinned rows of the host that are gathered and copied."""
    ids = _batch(config, data).node_ids
    host = wb.MemoryRows(data.x, pin=_is_cuda(config))
    cache = wb.CachedRows(host, len(ids), device=config.device)
    cache.read(ids)
    return lambda: cache.read(ids), lambda: host.read(ids).to(config.device, non_blocking=True), {}


def prefetch(config: Config, data: Any) -> tuple[Call, Call, dict[str, Any]]:
    """An epoch whose batches a thread samples ahead, beside one that samples and trains in turn."""
    train, loader = _trainer(config, data, pin=_is_cuda(config)), _loader(config, data)
    return lambda: _epoch(train, wb.prefetch(loader.epoch(0))), lambda: _epoch(train, loader.epoch(0)), {}


def hidden(config: Config, data: Any, times: dict[str, float]) -> float:
    """The share of what can be hidden, the shorter of sampling and training, by which prefetch shortens an epoch."""
    train, loader = _trainer(config, data, pin=_is_cuda(config)), _loader(config, data)
    sampled = list(loader.epoch(0))
    alone = interleaved(
        lambda: synchronized(lambda: _epoch(train, sampled), config.device),
        lambda: list(loader.epoch(0)),
        repeats=config.repeats,
        warmup=1,
    )
    return (times["theirs_seconds"] - times["ours_seconds"]) / min(alone["ours_seconds"], alone["theirs_seconds"])


def _trainer(config: ModelConfig, data: Any, *, pin: bool) -> Callable[[list[wb.MiniBatch]], Any]:
    """A function that takes a step on micro-batches."""
    model, x = config.build(data), wb.MemoryRows(data.x, pin=pin)
    optimizer = torch.optim.Adam(model.parameters())
    return lambda micro: wb.train_step(model, micro, x, data.y, cross_entropy, optimizer, verify=False)


def _epoch(train: Callable[[list[wb.MiniBatch]], Any], batches: Iterable[tuple[int, wb.MiniBatch]]) -> None:
    for _, mb in batches:
        train([mb])


def _loader(config: Config, data: Any) -> Any:
    sampler, size = wb.NeighborSampler(config.fanouts, seed=config.seed), -(-config.num_seeds // config.num_batches)
    return wb.batches(data.graph, _seeds(config, data), sampler=sampler, batch_size=size, seed=config.seed)


def _batch(config: Config, data: Any) -> wb.MiniBatch:
    return wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, _seeds(config, data))


def _seeds(config: Config, data: Any) -> torch.Tensor:
    return data.train_idx[: config.num_seeds]


def _is_cuda(config: ModelConfig) -> bool:
    return config.device.startswith("cuda")


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    case = table.operation + ", " + table.model.where(table.operation == "step", table.num_parts.map("{} parts".format))
    rows = table.assign(case=case, half_width=float("nan"))
    title = "Time of the plain form over ours"
    return interval_dots(rows, x="case", y="ratio", group="device", ratios=True, title=title)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    about: dict[str, Any] = {"by": ["model", "num_parts"], "form": ".2f", "timed": True}
    statements = {
        "step": "a step takes no longer than on the CPU",
        "sampling": "sampling on the device takes no longer than on the host, the copy included",
        "cache hits": "cached rows take no longer than pinned rows of the host",
    }
    found = []
    for name, statement in statements.items():
        rows: Any = table[table.operation == name]
        if len(rows):
            found.append(claims.within(name.replace(" ", "-"), statement, rows, value="ratio", least=1, **about))
    for parts, most in OVERHEAD.items():
        rows = table[(table.operation == "micro-batches") & (table.num_parts == parts)]
        if len(rows):
            statement = f"a step in {parts} micro-batches takes at most {most:g} times as long as on the whole batch"
            found.append(claims.within(f"in-{parts}-parts", statement, rows, value="overhead", most=most, **about))
    rows = table[table.operation == "prefetch"]
    if len(rows):
        statement = f"prefetch hides {HIDDEN:.0%} of the shorter of sampling and training"
        found.append(claims.within("prefetch", statement, rows, value="hidden", least=HIDDEN, **about))
    return found


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Seconds of every operation beside those of its plain form."""
    return table.set_index(["operation", "model", "num_parts"])[["seconds", "plain_seconds", "ratio", "hidden"]]

"""Cooperative minibatching beside independent minibatching, on ranks that share this machine's cores.

Both train the same model on the same global batches. Independent ranks each sample the whole neighbourhood of the seeds
that they own, and fetch the rows of other ranks' nodes from their owners; one rank is the library's plain step on the
whole graph, so that its ratio is what the cooperative path costs by itself. Cooperative ranks share the work and
exchange ids, rows of every layer and their gradients.

Both sides run the same steps in turn, round by round, and start each round together. `wall_ratio` and `cpu_ratio` are
cooperative ÷ independent: elapsed time, and processor time of all ranks, which waiting does not add to.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn import functional as F

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.performance.ratios import ratio_columns, ratio_dots
from workbench.core.dataset import Dataset
from workbench.distributed.group import gather_numbers
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import case_words
from workbench.kernels.threads import get_num_threads

MOST = 1.1
"""Claimed time of the cooperative path on one rank, relative to the plain step."""

MEASURES = {"inputs": "input nodes", "edges": "edges", "wall": "elapsed time", "cpu": "processor time"}
"""What is compared, by the name of its ratio."""

WORK = ("inputs", "edges", "id_bytes", "row_bytes", "gradient_bytes")


class Config(ModelConfig):
    """A number of ranks, a sampler, an assignment of nodes.

    Args:
        device: only the CPU is benchmarked.
        sampler: name in the paper.
        ownership: assignment of nodes to ranks.
        num_ranks: ranks, which share the cores.
        batch_size: seeds per rank.
        steps: optimizer steps of a round.
        repeats: rounds that are timed.
        timeout_seconds: of all ranks together.
    """

    device: Literal["cpu"] = "cpu"
    sampler: Literal["NS", "LABOR-0"]
    ownership: Literal["random", "metis"]
    num_ranks: PositiveInt
    batch_size: PositiveInt
    steps: PositiveInt
    repeats: PositiveInt
    timeout_seconds: PositiveInt = 3600


def run(config: Config) -> Iterator[dict[str, Any]]:
    values = config.model_dump(mode="json")
    yield from wb.run_ranks(on_rank, values, config.num_ranks, timeout_seconds=config.timeout_seconds)


def on_rank(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The work of one rank; rank 0 yields the row of the point."""
    config, rank, size = Config(**values), wb.distributed.get_rank(), wb.distributed.get_world_size()
    data = config.dataset.load()
    owner = wb.partition_graph(data.graph, size, method=config.ownership, seed=config.seed)
    wb.distributed.check_ranks_agree({"data": data.fingerprint, "owner": owner})
    seeds = global_batches(config, data, size)
    links = {"cooperative": wb.Traffic(), "independent": wb.Traffic()}
    other = plain(config, data) if size == 1 else independent(config, data, owner, rank, links["independent"])
    sides = {
        "cooperative": cooperative(config, data, owner, rank, size, links["cooperative"]),
        "independent": other,
    }
    work = {name: work_of(step, seeds, links[name]) for name, step in sides.items()}  # warms up too
    rounds = [timed_round(sides, seeds, flipped=turn % 2 == 1) for turn in range(config.repeats)]
    if rank == 0:
        yield {"graph": config.dataset.name, "num_threads": get_num_threads(), **columns(work, rounds, config.steps)}


Step = Callable[[int, torch.Tensor], wb.MiniBatch]
"""Trains on the global batch of a step and returns this rank's part of it."""


def global_batches(config: Config, data: Dataset, size: int) -> list[torch.Tensor]:
    """Seeds of each step, the same on all ranks."""
    order = torch.randperm(len(data.train_idx), generator=torch.Generator().manual_seed(config.seed))
    return list(data.train_idx[order].split(config.batch_size * size))[: config.steps]


def cooperative(config: Config, data: Dataset, owner: torch.Tensor, rank: int, size: int, traffic: wb.Traffic) -> Step:
    """One global batch for all ranks."""
    owned, rows = wb.sampling.OwnedGraph.of(data.graph, owner, rank, size), wb.distributed.OwnedRows.of(data.x, owner)
    model = config.build(data)
    optimizer, drawn = torch.optim.Adam(model.parameters()), build_sampler(config.sampler, config.fanouts, seed=0)
    sampler = wb.cooperative.CooperativeSampler(drawn, owned, traffic=traffic)

    def step(number: int, seeds: torch.Tensor) -> wb.MiniBatch:
        mb = sampler.sample(owned.graph, seeds, step=number)
        wb.cooperative.train_step(model, mb, rows, data.y, F.cross_entropy, optimizer, traffic=traffic)
        return mb

    return step


def independent(config: Config, data: Dataset, owner: torch.Tensor, rank: int, traffic: wb.Traffic) -> Step:
    """A batch per rank: the seeds that it owns."""
    model = config.build(data)
    optimizer, drawn = torch.optim.Adam(model.parameters()), build_sampler(config.sampler, config.fanouts, seed=0)
    rows = wb.distributed.OwnedRows.of(data.x, owner, traffic=traffic)

    def step(number: int, seeds: torch.Tensor) -> wb.MiniBatch:
        mb = drawn.sample(data.graph, seeds[owner[seeds] == rank], step=number)
        staged = wb.stage(rows, [mb])
        wb.cooperative.train_step(model, mb, staged, data.y, F.cross_entropy, optimizer, traffic=traffic)
        return mb

    return step


def plain(config: Config, data: Dataset) -> Step:
    """The library's step in one process."""
    model = config.build(data)
    optimizer, drawn = torch.optim.Adam(model.parameters()), build_sampler(config.sampler, config.fanouts, seed=0)

    def step(number: int, seeds: torch.Tensor) -> wb.MiniBatch:
        mb = drawn.sample(data.graph, seeds, step=number)
        wb.train_step(model, mb, data.x, data.y, F.cross_entropy, optimizer)
        return mb

    return step


def work_of(step: Step, batches: list[torch.Tensor], traffic: wb.Traffic) -> dict[str, float]:
    """Work of all ranks in one step, on average: input nodes, edges, and bytes received from other ranks."""
    parts = [step(number, seeds) for number, seeds in enumerate(batches)]
    links = traffic.snapshot()
    own = [sum(mb.num_inputs for mb in parts), sum(mb.num_edges for mb in parts)]
    own += [links.nbytes("rank", item) for item in ("ids", "rows", "gradients")]
    return {name: sum(gather_numbers(count)) / len(batches) for name, count in zip(WORK, own, strict=True)}


def timed_round(sides: dict[str, Step], batches: list[torch.Tensor], *, flipped: bool) -> dict[str, float]:
    """Seconds of each side: elapsed, and of the processors of all ranks."""
    times: dict[str, float] = {}
    for name in reversed(sides) if flipped else sides:
        gather_numbers(0)  # starts the ranks together
        wall, cpu = time.perf_counter(), time.process_time()
        for number, seeds in enumerate(batches):
            sides[name](number, seeds)
        used = sum(gather_numbers(time.process_time() - cpu))
        times |= {f"{name}_wall": time.perf_counter() - wall, f"{name}_cpu": used}
    return times


def columns(work: Mapping[str, Mapping[str, float]], rounds: list[dict[str, float]], steps: int) -> dict[str, float]:
    """Columns of a row: work and seconds of a step, and ratios cooperative ÷ independent with their quartiles."""
    row = {f"{side}_{name}": value for side, counts in work.items() for name, value in counts.items()}
    for clock in ("wall", "cpu"):
        for side in work:
            row[f"{side}_{clock}_seconds"] = statistics.median(one[f"{side}_{clock}"] for one in rounds) / steps
        ratios = [one[f"cooperative_{clock}"] / one[f"independent_{clock}"] for one in rounds]
        row |= ratio_columns(clock, ratios)
    for name in ("inputs", "edges"):
        row[f"{name}_ratio"] = work["cooperative"][name] / work["independent"][name]
    return row


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    cases = table.num_ranks.map(_ranks) + ", " + table.sampler + ", " + table.ownership
    return ratio_dots(
        table,
        cases + table.hidden_dim.map(", width {}".format),
        MEASURES,
        title="Cooperative minibatching beside independent minibatching",
        subtitle="cooperative ÷ independent, work of all ranks together and time of a step; one rank: the plain step",
        axis="cooperative ÷ independent",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "sampler", "ownership", "hidden_dim", "num_ranks"]
    alone, several = table.query("num_ranks == 1"), table.query("num_ranks > 1")
    ratio = {"value": "cpu_ratio", "by": by, "form": ".2f", "timed": True}
    findings = []
    if len(alone):
        most = f"on one rank it takes at most {MOST:g} times the plain step"
        findings.append(claims.within("cheap-alone", most, alone, most=MOST, **ratio))
    if len(several):
        less = "cooperating ranks read fewer input nodes and draw fewer edges than independent ones"
        work = several.assign(most=several[["inputs_ratio", "edges_ratio"]].max(axis=1, skipna=False))
        findings.append(claims.within("less-work", less, work, value="most", by=by, most=claims.LESS, form=".2f"))
    return findings


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of work and time, by number of ranks."""
    return pd.DataFrame(
        {
            "measured": f"{text} of {_ranks(ranks)}, cooperative ÷ independent",
            "cases": len(rows),
            "median": rows[f"{name}_ratio"].median(),
            "from": rows[f"{name}_ratio"].min(),
            "to": rows[f"{name}_ratio"].max(),
        }
        for name, text in MEASURES.items()
        for ranks, rows in table.groupby("num_ranks")
    )


def _ranks(number: Any) -> str:
    return case_words(["num_ranks"], number)

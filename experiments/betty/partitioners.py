"""Beyond Betty's figures: quality of every batch partitioner, by inputs of its micro-batches, against its host cost."""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from statistics import median
from typing import Any, Literal

import pandas as pd
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.betty.partitioner_targets import CASE, FAST, LARGEST, TARGETS, TOTAL, held
from workbench.core.dataset import Dataset
from workbench.core.errors import CapacityError
from workbench.core.randomness import Purpose, permutation, stream
from workbench.datasets.raw import permute_nodes
from workbench.experiment import claims
from workbench.experiment.config import DataConfig, DataPointConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.meter.limit import HostPeak
from workbench.meter.stopwatch import Stopwatch
from workbench.partition.batch.reg import redundancy_embedded_graph
from workbench.partition.isolated import program_calls

WARM_UP_SEEDS = 256
EXCESS_TO_REG, LARGEST_TO_REG = "excess_to_reg", "largest_to_reg"
PAGE = 4096  # bytes: resolution of the host's memory measurement, and the least value on a logarithmic axis


class Config(DataPointConfig):
    """All seeds form one batch, of a graph whose node ids are permuted.

    Args:
        method: of `partition_batch`, which cuts the batch.
        objective: option of `partition_batch`; None for methods without objectives.
        num_parts: number of micro-batches.
        fanouts: sampled neighbours per layer, input layer first.
        outputs: seeds: "train", the training nodes, or "half", a random half of all nodes.
        timed_passes: maximum number of timed partitions and splits.
        timed_seconds: time after which no further pass begins.
    """

    method: PartitionMethod
    objective: Literal["largest", "total"] | None = None
    num_parts: PositiveInt
    fanouts: tuple[int, ...]
    outputs: Literal["train", "half"] = "train"
    timed_passes: PositiveInt = 3
    timed_seconds: PositiveFloat = 2.0


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = permuted(config.dataset, config.seed)  # pyright: ignore[reportArgumentType]  # frozen, so it can be hashed
    batch = sample(data, config.fanouts, config.outputs, config.seed)
    about: dict[str, Any] = {"num_outputs": batch.num_seeds, "num_edges": batch.num_edges}
    options: dict[str, Any] = {} if config.objective is None else {"objective": config.objective}
    if config.method == "cluster":
        cut = graph_parts(data.graph, config.num_parts, config.seed)
        options["node_parts"], about["partition_graph_seconds"] = cut
    partition = partial(
        wb.partition_batch, num_parts=config.num_parts, method=config.method, seed=config.seed, **options
    )
    few = batch.seeds[: max(WARM_UP_SEEDS, config.num_parts)]
    small = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, few)
    small.split(partition(small))  # loads compiled kernels
    about |= {"full_inputs": batch.num_inputs, "reg_nonzeros": reg_nonzeros(batch)}
    try:
        parts, passes, host_bytes = measure(batch, partition, config.timed_passes, config.timed_seconds)
    except CapacityError as error:
        yield {**about, "refused": str(error)}
        return
    inputs = wb.redundancy(batch.split(parts), batch)
    yield {
        **about,
        "total_inputs": inputs.total_inputs,
        "excess": inputs.ratio - 1,
        "largest_inputs": inputs.largest,
        "largest_ratio": inputs.largest / inputs.full_inputs,
        "partition_seconds": median(seconds["partition"] for seconds in passes),
        "split_seconds": median(seconds["split"] for seconds in passes),
        "host_bytes": host_bytes,
        "passes": len(passes),
    }


@lru_cache(maxsize=1)
def permuted(dataset: DataConfig, seed: int) -> Dataset:
    return permute_nodes(dataset.load(), seed=seed)


@lru_cache(maxsize=1)
def sample(data: Dataset, fanouts: tuple[int, ...], outputs: str, seed: int) -> wb.MiniBatch:
    """The batch of all seeds."""
    nodes = permutation(stream(seed, Purpose.SPLIT), data.graph.num_nodes)
    seeds = data.train_idx if outputs == "train" else nodes[: len(nodes) // 2].sort().values
    return wb.NeighborSampler(fanouts, seed=seed).sample(data.graph, seeds)


@lru_cache(maxsize=1)
def reg_nonzeros(batch: wb.MiniBatch) -> int | None:
    """Nonzeros of REG's graph; None if the graph is too large for this machine."""
    try:
        return len(redundancy_embedded_graph(batch).indices)
    except CapacityError:
        return None


@lru_cache(maxsize=8)
def graph_parts(graph: wb.Graph, num_parts: int, seed: int) -> tuple[Tensor, float]:
    """A partition of the whole graph, computed once for all batches, and its seconds."""
    begin = time.perf_counter()
    return wb.partition_graph(graph, num_parts, seed=seed), time.perf_counter() - begin


def measure(
    batch: wb.MiniBatch, partition: Callable[[wb.MiniBatch], Tensor], most_passes: int, most_seconds: float
) -> tuple[Tensor, list[dict[str, float]], int | None]:
    """The parts, the seconds of every pass, and the peak host memory of the first partition.

    The peak is that of this process plus the largest of the subprocesses that METIS or Mt-KaHyPar ran in: these run one
    after the other.
    """
    watch = Stopwatch()
    with HostPeak() as peak, program_calls() as calls, watch.phase("partition"):
        parts = partition(batch)
    own, others = peak.nbytes, [call.peak_bytes for call in calls]
    host_bytes = None if own is None or None in others else own + max((b for b in others if b), default=0)
    passes: list[dict[str, float]] = []
    while True:
        with watch.phase("split"):
            batch.split(parts)
        passes.append(watch.seconds)
        if len(passes) == most_passes or sum(sum(seconds.values()) for seconds in passes) >= most_seconds:
            return parts, passes, host_bytes
        watch = Stopwatch()
        with watch.phase("partition"):
            partition(batch)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with their choice, a method and its objective, and the total host seconds."""
    objective = table.objective if "objective" in table else pd.Series(None, table.index, dtype=object)
    choice = table.method + (" (" + objective.astype(object) + ")").fillna("")
    return table.assign(choice=choice, host_seconds=table.partition_seconds + table.split_seconds)


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """One row per data set and choice: medians, over the cases that most choices ran, of the excess and of the largest
    part relative to REG's."""
    rows = shown(table)
    rows = rows.assign(ran=rows.groupby(CASE).choice.transform("nunique"))
    rows = rows.loc[
        rows.ran >= rows.groupby("dataset").ran.transform("max") - 1
    ]  # a case may have run hypergraph_deep alone
    reg = rows[rows.choice == "reg"].groupby(CASE)[["excess", "largest_inputs"]].median()
    rows = rows.join(reg.add_suffix("_of_reg"), on=CASE)
    rows = rows.assign(excess_to_reg=rows.excess / rows.excess_of_reg)
    rows = rows.assign(largest_to_reg=rows.largest_inputs / rows.largest_inputs_of_reg)
    values = ["excess_to_reg", "largest_to_reg", "host_seconds", "host_bytes", "partition_seconds", "split_seconds"]
    return rows.groupby(["dataset", "choice"], sort=False)[values].median().reset_index()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    rows = shown(table)
    ways: dict[str, Any] = {"among": "choice", "between": ("auto (largest)", "reg"), "by": CASE}
    auto = claims.method_ratios(rows, value="largest_inputs", **ways)
    return Title("The largest part by auto has {auto:.2f} times the inputs of REG's", auto=auto)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    told = title(table, reported).text or "Largest part over host time"
    return _pareto(medians(table), [("host_seconds", LARGEST_TO_REG)], told)


def draw_every_pair(table: pd.DataFrame) -> Any:
    """Excess inputs and the largest part over host time, the largest part over host memory and over the excess."""
    time, memory = "host_seconds", "host_memory_bytes"
    pairs = [(time, EXCESS_TO_REG), (time, LARGEST_TO_REG), (memory, LARGEST_TO_REG), (EXCESS_TO_REG, LARGEST_TO_REG)]
    return _pareto(medians(table), pairs, "Less is better everywhere")


def _pareto(rows: pd.DataFrame, pairs: list[tuple[str, str]], title: str) -> Any:
    from workbench.plots.scatter import pareto

    told = {"host_seconds": "partition + split", EXCESS_TO_REG: "excess inputs ÷ REG's"}
    return pareto(
        rows.assign(host_memory_bytes=rows.host_bytes.clip(lower=PAGE)),
        pairs,
        group="choice",
        facet="dataset",
        names=told | {LARGEST_TO_REG: "largest part ÷ REG's"},
        title=title,
        subtitle="medians over the cases that most choices ran; less is better, the line is the Pareto front",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    blind = claims.least(
        "reg-beats-blind-cuts",
        "REG's parts have fewer inputs than those of range and random in every case",
        rows,
        value="excess",
        among="choice",
        winner="reg",
        rivals=["range", "random"],
        by=CASE,
    )
    return [blind, *(found for target in TARGETS for found in held(target, rows))]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Input nodes that a choice saves relative to the mean of range, random and METIS, on average over fanouts and K
    and at best, and METIS's excess at K = 8; the paper's numbers are REG's."""
    rows = shown(table)
    inputs = rows.pivot_table("total_inputs", CASE, "choice")
    told = reported.set_index("what").reduction
    lines = [("paper", "reg", told["mean"], told["best"], told["metis at 8"])]
    for choice in [choice for choice in ("reg", TOTAL, LARGEST, FAST) if choice in inputs]:
        saved = 1 - inputs[choice] / inputs[["range", "random", "metis"]].mean(axis=1)
        more: Any = (inputs["metis"] / inputs[choice] - 1).xs(8, level="num_parts").groupby("dataset").mean()
        lines += [(name, choice, part.mean(), part.max(), more.get(name)) for name, part in saved.groupby("dataset")]
    return pd.DataFrame(lines, columns=["where", "choice", "saved, mean", "saved at best", "METIS has more, K = 8"])

"""Betty, Figure 11: peak memory by partitioner and number of micro-batches. Figures 12, 14 and 15 are views of it."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.meter.stopwatch import Stopwatch
from workbench.partition.batch.baselines import share_among_seeds
from workbench.training.profile import profile_epoch

WARM_UP_SEEDS = 256
RIVALS = ["range", "random", "metis"]


class Config(ModelConfig):
    """All training nodes form one batch.

    Args:
        method: of `partition_batch`, which cuts the batch.
        num_parts: number of micro-batches.
        learning_rate: of Adam.
        timed_passes: number of timed epochs.
    """

    method: PartitionMethod
    num_parts: PositiveInt
    learning_rate: float
    timed_passes: PositiveInt = 3


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, watch = config.dataset.load(), Stopwatch()
    node_parts = None
    if config.method == "cluster":  # once, for all batches of the graph
        with watch.phase("partition_graph"):
            node_parts = wb.partition_graph(data.graph, config.num_parts, seed=config.seed)
    prepare(
        config, data, data.train_idx[: max(WARM_UP_SEEDS, config.num_parts)], node_parts, Stopwatch()
    )  # loads compiled kernels
    batch, micro = prepare(config, data, data.train_idx, node_parts, watch)
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    profile = profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer, repetitions=config.timed_passes)
    inputs = wb.redundancy(micro, batch)
    yield {
        "total_inputs": inputs.total_inputs,
        "full_inputs": inputs.full_inputs,
        "largest_inputs": inputs.largest,
        "inputs_ratio": inputs.ratio,
        "largest_ratio": inputs.largest / inputs.full_inputs,
        "share_among_outputs": share_among_seeds(batch),
        **profile.row(),
        **{f"{phase}_seconds": seconds for phase, seconds in watch.seconds.items()},
    }


def prepare(
    config: Config, data: Any, seeds: Tensor, node_parts: Tensor | None, watch: Stopwatch
) -> tuple[wb.MiniBatch, list[wb.MiniBatch]]:
    """Sample the batch and cut it into micro-batches."""
    with watch.phase("sample"):
        batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, seeds)
    with watch.phase("partition"):
        parts = wb.partition_batch(
            batch, config.num_parts, method=config.method, seed=config.seed, node_parts=node_parts
        )
    with watch.phase("split"):
        return batch, batch.split(parts)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of two-layer GraphSAGE with the mean aggregator."""
    return table.query("model == 'sage-mean' and fanouts == '[10, 25]'")


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    peaks = _peaks(table)
    times: Any = (peaks["reg"] / peaks[RIVALS].min(axis=1)).dropna()
    return Title("REG needs {times:.2f} times the peak memory of the best of range, random and METIS", times=times)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows = relative_to_reg(shown(table))
    told = reported.dropna(subset="metis_at_8") if "metis_at_8" in reported else reported[:0]
    paper = pd.DataFrame({"num_parts": 8, "method": "metis", "of_reg": 1 + told.metis_at_8}) if len(told) else None
    return lines(
        rows,
        x="num_parts",
        log_x=True,
        y="of_reg",
        group="method",
        facet="dataset",
        reported=paper,
        title=title(table, reported).text,
    )


def relative_to_reg(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of cut batches with their peak memory relative to REG's with the same data set and K, `of_reg`."""
    cut = rows.query("num_parts > 1")
    reg = cut[cut.method == "reg"].groupby(["dataset", "num_parts"]).peak_bytes.median().rename("reg_bytes")
    joined = cut.join(reg, on=["dataset", "num_parts"])
    return joined.assign(of_reg=joined.peak_bytes / joined.reg_bytes)


def _peaks(table: pd.DataFrame) -> pd.DataFrame:
    return shown(table).query("num_parts > 1").pivot_table("peak_bytes", ["dataset", "num_parts"], "method")


def _saved(table: pd.DataFrame) -> Any:
    """Memory that REG saves relative to the mean of range, random and METIS: by data set, a value per K."""
    peaks = _peaks(table)
    return (1 - peaks["reg"] / peaks[RIVALS].mean(axis=1)).groupby("dataset")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    cut = shown(table).query("num_parts > 1")
    least = {"value": "peak_bytes", "among": "method", "winner": "reg", "by": ["dataset", "num_parts"]}
    beyond: dict[str, Any] = {**least, "winner": "star_refined"}
    return [
        claims.least(
            "reg-least-memory",
            "REG needs less peak memory than range, random and METIS at every K",
            cut,
            rivals=RIVALS,
            **least,
        ),
        claims.least(
            "reg-beats-blind-cuts",
            "REG needs less peak memory than range and random at every K",
            cut,
            rivals=["range", "random"],
            **least,
        ),
        claims.least(
            "refined-least-memory",
            "Beyond the paper: star, refined needs less peak memory than these, REG and the whole-graph cut at every K",
            cut,
            rivals=[*RIVALS, "reg", "cluster"],
            **beyond,
        ),
        claims.monotone(
            "memory-falls",
            "more micro-batches by REG need less peak memory",
            shown(table).query("method == 'reg'"),
            value="peak_bytes",
            along="num_parts",
            by=["dataset"],
            falling=True,
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Memory that REG saves relative to the mean of range, random and METIS, at every K."""
    peaks = _peaks(table)
    saved: Any = 1 - peaks["reg"] / peaks[RIVALS].mean(axis=1, skipna=False)
    names = saved.index.get_level_values("dataset").map(published_name)
    return {f"memory-saved-on-{name}": saved[names == name] for name in ("arxiv", "products", "cora", "pubmed")}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Memory that REG saves relative to the mean of range, random and METIS, at the best K and on average over K, and
    METIS's excess over REG at K = 8, in percent: one row per data set, stand-ins beside what they stand for."""
    peaks, saved = _peaks(table), _saved(table)
    here = pd.DataFrame({"reduction": saved.max(), "mean": saved.mean()})
    here["metis_at_8"] = (peaks["metis"] / peaks["reg"] - 1).xs(8, level="num_parts")
    names = {"reduction": "saved at best", "mean": "saved, mean over K", "metis_at_8": "METIS needs more, K = 8"}
    return side_by_side(reported.set_index("dataset"), here, names)


def published_name(dataset: str) -> str:
    """The data set that a stand-in, or one with other features, stands for."""
    return dataset.removeprefix("synthetic-").removeprefix("ogbn-").removesuffix("-nofeat")


def side_by_side(paper: pd.DataFrame, here: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Shares of the paper and of here in percent, and their difference in points: one row per data set.

    Args:
        paper: the paper's shares by data set.
        here: those measured here, with the same columns; "synthetic-products" stands for "ogbn-products".
        names: column to its title.
    """
    own = {published_name(name): name for name in paper.index}
    index = [own.get(published_name(name), name) for name in here.index]
    by_name = here.set_axis(index)
    both, columns = paper.reindex(dict.fromkeys([*paper.index, *index])), {}
    for column, title in names.items():
        columns[f"{title}: paper (%)"] = 100 * both[column]
        columns[f"{title}: here (%)"] = 100 * by_name[column].reindex(both.index)
        columns[f"{title}: difference (points)"] = columns[f"{title}: here (%)"] - columns[f"{title}: paper (%)"]
    told = dict(zip(index, here.index, strict=True))
    shown = [name if told.get(name, name) == name else f"{name} (here {told[name]})" for name in both.index]
    found = pd.DataFrame({"data set": shown, **{title: values.to_numpy() for title, values in columns.items()}})
    return found.dropna(axis=1, how="all")

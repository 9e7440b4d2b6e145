"""Betty, Figure 16: redundant input nodes by partitioner and number of micro-batches."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.config import DataConfig, DataPointConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.partition.batch.baselines import share_among_seeds

RIVALS = ["range", "random", "metis"]
FEW = 0.1
"""Share of a graph's nodes up to which seeds are as few as in the paper: 8 % of ogbn-products are training nodes."""


class Config(DataPointConfig):
    """All seeds form one batch, which a method cuts into several numbers of parts.

    Args:
        method: of `partition_batch`, which cuts the batch.
        fanouts: sampled neighbours per layer, input layer first.
        counts: numbers of micro-batches.
        seed_share: seeds as a share of all nodes, drawn from the training nodes; None: all of these.
    """

    method: PartitionMethod
    fanouts: tuple[int, ...] = Field(min_length=1)
    counts: tuple[PositiveInt, ...] = Field(min_length=2)
    seed_share: float | None = Field(default=None, gt=0, le=1)


def run(config: Config) -> Iterator[dict[str, Any]]:
    data, batch = sample(config.dataset, config.fanouts, config.seed_share, config.seed)  # pyright: ignore[reportArgumentType]  # frozen, so it can be hashed
    prepared = wb.partition.Partitioner(config.method, seed=config.seed).prepare(batch)
    for num_parts in config.counts:
        inputs = wb.redundancy(batch.split(prepared.cut(num_parts).assignment), batch)
        yield {
            "num_parts": num_parts,
            "total_inputs": inputs.total_inputs,
            "full_inputs": inputs.full_inputs,
            "largest_inputs": inputs.largest,
            "inputs_ratio": inputs.ratio,
            "share_of_nodes": batch.num_seeds / data.graph.num_nodes,
            "share_among_outputs": share_among_seeds(batch),
        }


@lru_cache(maxsize=1)
def sample(dataset: DataConfig, fanouts: tuple[int, ...], share: float | None, seed: int) -> tuple[Any, wb.MiniBatch]:
    """The data set and the batch of all seeds."""
    data = dataset.load()
    seeds = data.train_idx
    if share is not None:
        wanted = round(share * data.graph.num_nodes)
        if not 0 < wanted <= len(seeds):
            raise ValueError(
                f"seed_share is {share}, or {wanted} of {data.graph.num_nodes} nodes, but {len(seeds)} are training "
                "nodes; choose a smaller share"
            )
        seeds = seeds[permutation(stream(seed, Purpose.SPLIT), len(seeds))[:wanted]].sort().values
    return data, wb.NeighborSampler(fanouts, seed=seed).sample(data.graph, seeds)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with a panel per data set, depth and share of nodes that are seeds."""
    depth = (table.fanouts.str.count(",") + 1).astype(str)
    seeds = table.share_of_nodes.map("{:.0%} seeds".format)
    return table.assign(panel=table.dataset + ", " + depth + " layers, " + seeds)


def few_seeds(rows: Any) -> Any:
    """Rows of batches whose seeds are as few as in the paper."""
    return rows[rows.share_of_nodes <= FEW]


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    times, few = _to_best(shown(table)), _to_best(few_seeds(shown(table)))
    text = "REG reads {times:.2f} times the input nodes of the best of range, random and METIS"
    if 0 < len(few) < len(times):
        text += "; where at most {share:.0%} of the nodes are seeds {few:.2f}"
        return Title(text, times=times, few=few, share=FEW)
    return Title(text, times=times)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    return lines(
        shown(table),
        x="num_parts",
        log_x=True,
        y="inputs_ratio",
        group="method",
        facet="panel",
        log_y=True,
        title=title(table, reported).text,
    )


def _inputs(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.query("num_parts > 1").pivot_table("total_inputs", ["panel", "num_parts"], "method")


def _to_best(rows: pd.DataFrame) -> Any:
    """Input nodes of REG relative to the best of the others, in every case."""
    if not len(rows):
        return []
    inputs = _inputs(rows)
    return (inputs["reg"] / inputs[RIVALS].min(axis=1)).dropna()


def _over_reg(rows: pd.DataFrame) -> pd.DataFrame:
    """Input nodes of the three others relative to REG's, in panels with several numbers of parts."""
    cut: Any = rows.query("num_parts > 1 and method in @RIVALS").rename(columns={"total_inputs": "inputs"})
    reg = rows.loc[rows.method == "reg", ["panel", "num_parts", "total_inputs"]]
    both = cut[cut.groupby("panel").num_parts.transform("nunique") > 1].merge(reg, "left", on=["panel", "num_parts"])
    return both.assign(over_reg=both.inputs / both.total_inputs)


def _saved(rows: pd.DataFrame) -> Any:
    """Input nodes that REG saves against the mean of the three others: by panel, a value per K."""
    inputs = _inputs(rows)
    return (1 - inputs["reg"] / inputs[RIVALS].mean(axis=1)).groupby("panel")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    least = {"value": "inputs_ratio", "among": "method", "winner": "reg", "by": ["panel", "num_parts"]}
    beyond: dict[str, Any] = {**least, "winner": "star_refined"}
    statement = f"it does where at most {FEW:.0%} of the nodes are seeds, as in the paper (ogbn-products: 8 %)"
    cut = few_seeds(rows).query("num_parts > 1")
    few = [claims.least("reg-fewest-inputs-few-seeds", statement, cut, rivals=RIVALS, **least)] if len(cut) else []
    return [
        claims.least(
            "reg-fewest-inputs",
            "REG makes fewer redundant inputs than range, random and METIS at every K",
            rows.query("num_parts > 1"),
            rivals=RIVALS,
            **least,
        ),
        *few,
        claims.least(
            "reg-beats-blind-cuts",
            "REG makes fewer redundant inputs than range and random at every K",
            rows.query("num_parts > 1"),
            rivals=["range", "random"],
            **least,
        ),
        claims.least(
            "refined-fewer-inputs",
            "Beyond the paper: star, refined makes fewer redundant inputs than REG at every K",
            rows.query("num_parts > 1"),
            rivals=["reg"],
            **beyond,
        ),
        claims.monotone(
            "difference-grows",
            "the more micro-batches, the more inputs each of the three reads relative to REG",
            _over_reg(rows),
            value="over_reg",
            along="num_parts",
            by=["panel", "method"],
        ),
        claims.monotone(
            "redundancy-grows",
            "every partitioner makes more redundant inputs with more micro-batches",
            rows,
            value="inputs_ratio",
            along="num_parts",
            by=["panel", "method"],
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Input nodes that REG saves against the mean of the three others, by panel and K, where seeds are few."""
    rows = shown(table)
    inputs = _inputs(few_seeds(rows) if len(few_seeds(rows)) else rows)
    saved = 1 - inputs["reg"] / inputs[RIVALS].mean(axis=1, skipna=False)
    return {"saved-on-average": saved, "saved-at-best": saved}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Input nodes that REG saves against the mean of the three others, on average over K and at best, and how many more
    METIS has at K = 8, where the grid has that."""
    inputs, saved = _inputs(shown(table)), _saved(shown(table))
    more: Any = inputs["metis"] / inputs["reg"] - 1
    paper = reported.set_index("what")["reduction"]
    rows = [("ogbn-products (paper)", paper["mean"], paper["best"], paper["metis at 8"])]
    rows += [(f"{panel} (here)", part.mean(), part.max(), more[panel].get(8)) for panel, part in saved]
    found = pd.DataFrame(
        rows, columns=["where", "saved, mean over K (%)", "saved at best (%)", "METIS has more, K = 8 (%)"]
    )
    return found.assign(**{column: 100 * found[column].astype(float) for column in [*found][1:]})

"""Betty, Figure 16: redundant input nodes by partitioner and number of micro-batches. A view of Figure 11."""

from typing import Any

import pandas as pd

from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

RIVALS = ["range", "random", "metis"]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of GraphSAGE with the mean aggregator, with a panel per data set and depth."""
    rows = table[table.model == "sage-mean"]
    depth = rows.fanouts.str.count(",") + 1
    return rows.assign(panel=rows.dataset + ", " + depth.astype(str) + " layers")


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    inputs = _inputs(shown(table))
    times: Any = (inputs["reg"] / inputs[RIVALS].min(axis=1)).dropna()
    return Title("REG reads {times:.2f} times the input nodes of the best of range, random and METIS", times=times)


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


def _saved(rows: pd.DataFrame) -> Any:
    """Input nodes that REG saves against the mean of the three others: by panel, a value per K."""
    inputs = _inputs(rows)
    return (1 - inputs["reg"] / inputs[RIVALS].mean(axis=1)).groupby("panel")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = shown(table)
    least = {"value": "inputs_ratio", "among": "method", "winner": "reg", "by": ["panel", "num_parts"]}
    beyond: dict[str, Any] = {**least, "winner": "star_refined"}
    return [
        claims.least(
            "reg-fewest-inputs",
            "REG makes fewer redundant inputs than range, random and METIS at every K",
            rows.query("num_parts > 1"),
            rivals=RIVALS,
            **least,
        ),
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
            "redundancy-grows",
            "every partitioner makes more redundant inputs with more micro-batches",
            rows,
            value="inputs_ratio",
            along="num_parts",
            by=["panel", "method"],
        ),
    ]


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Input nodes that REG saves against the mean of the three others, by panel and K."""
    inputs = _inputs(shown(table))
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

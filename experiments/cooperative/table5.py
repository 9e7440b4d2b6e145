"""Cooperative Minibatching, Table 5: speedup of cooperative over independent minibatching, modelled. A view of
Table 4."""

from typing import Any

import pandas as pd

from experiments.cooperative.table4 import shown, speedups
from workbench.experiment import claims
from workbench.experiment.finding import Finding

__all__ = ["check", "compare", "draw", "shown"]
MODELS = {
    "speedup": "bandwidths",
    "speedup_with_arithmetic": "bandwidths and products",
}
"""Column of the modelled speedup to what the model counts."""


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    names = {column: f"{column}_modelled" for column in MODELS}
    paper = pd.concat(
        [reported.rename(columns={"speedup": name})[["num_pes", "dataset", "sampler", name]] for name in names.values()]
    )
    found = speedups(table)
    return lines(
        found.rename(columns=names),
        x="num_pes",
        log_x=True,
        y=[*names.values()],
        group="sampler",
        facet="dataset",
        reported=paper,
        title=f"Modelled speedups: up to {found.speedup.max():.2f} with 16 GPUs",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = speedups(table)
    return [
        claims.within(
            "speedup",
            "in the model, cooperative minibatching is faster in all cases",
            rows,
            value="speedup",
            by=["dataset", "sampler", "num_pes"],
            least=1.0,
        ),
        *(
            claims.monotone(
                name,
                f"the modelled speedup grows with the number of GPUs, counting {what}",
                rows,
                value=value,
                along="num_pes",
                by=["dataset", "sampler"],
            )
            for name, value, what in (
                ("grows-with-gpus", "speedup", MODELS["speedup"]),
                ("grows-with-arithmetic", "speedup_with_arithmetic", MODELS["speedup_with_arithmetic"]),
            )
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Speedups by system: the paper's, from the totals of Table 4, and the modelled ones, with their deviations."""
    keys = ["dataset", "sampler", "num_pes"]
    both = reported.rename(columns={"speedup": "paper"}).merge(speedups(table), on=keys)
    columns: dict[str, Any] = {key: both[key] for key in keys} | {"paper, measured": both.paper}
    for column, what in MODELS.items():
        columns[f"modelled, {what}"] = both[column]
        columns[f"{what} ÷ paper − 1"] = (both[column] / both.paper - 1).map("{:+.0%}".format)
    return pd.DataFrame(columns)

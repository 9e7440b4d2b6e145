"""Rethinking Graph Data Placement, the worked example: Algorithm 1 on six rows and two GPUs."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from pydantic import Field

import workbench as wb
from workbench.experiment import claims
from workbench.experiment.config import PointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

P = (0.0, 5.0, 4.0, 3.0, 2.0, 1.0)
"""The slides order the nodes 1, 2, 3, 4, 5, 0, and give no probabilities; any of this order decide alike at α = 0.3."""

NUM_DEVICES, ROWS_PER_DEVICE = 2, 2


class Config(PointConfig):
    """One method.

    Args:
        method: of `place_rows`.
        alpha: cost of a row of the other GPU; the host's is 1.
    """

    method: str
    alpha: float = Field(ge=0, le=1)


def place(method: str, alpha: float) -> wb.placement.Placement:
    """The example's placement by one method."""
    rows: dict[str, Any] = {"num_devices": NUM_DEVICES, "rows_per_device": ROWS_PER_DEVICE}
    return wb.placement.place_rows(torch.tensor(P, dtype=torch.float64), **rows, peer_cost=alpha, method=method)


def run(config: Config) -> Iterator[dict[str, Any]]:
    placed = place(config.method, config.alpha)
    for device, rows in enumerate(placed.buffers):
        yield {
            "gpu": device,
            "holds": " ".join(map(str, sorted(rows.tolist()))),
            "expected_cost": float(placed.expected_cost[device]),
            "lower_bound": placed.lower_bound,
            "num_distinct": placed.num_distinct,
        }


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    return Title("Giving up a duplicate for a new row, α = {alpha:g}", alpha=float(table.alpha.iloc[0]))


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.heat_maps import draw_holders
    from workbench.plots.style import looks

    costs: Any = table.groupby("method", sort=False).expected_cost.max()
    alpha, told = float(table.alpha.iloc[0]), looks(costs.index)
    return draw_holders(
        [
            (f"{told[method].name}: the slower GPU pays {cost:.2f} per batch", place(method, alpha))
            for method, cost in costs.items()
        ],
        title=title(table, reported).text,
        subtitle="two GPUs with two rows each; row 1 is read most often, row 0 least; dark: held",
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    """The buffers of the slides, for Algorithm 1 corrected; the listing ends elsewhere."""
    told = "Algorithm 1, corrected, ends with the buffers of the slides"
    right: Any = _compared(table, reported).assign(same=lambda rows: (rows.holds == rows.holds_paper).astype(float))
    corrected, printed = (right[right.method == name] for name in ("algorithm-1", "algorithm-1-printed"))
    costs: Any = table.groupby("method").expected_cost.max(skipna=False).rename("cost").reset_index()
    ends = f"the listing as printed ends there too: {'; '.join(printed.holds)}"
    return [
        claims.within("corrected-as-drawn", told, corrected, value="same", by=["gpu"], least=1),
        claims.within("printed-as-drawn", ends, printed, value="same", by=["gpu"], least=1),
        claims.least(
            "corrected-costs-less",
            "Algorithm 1, corrected, costs less than as printed",
            costs.assign(case="example"),
            value="cost",
            among="method",
            winner="algorithm-1",
            rivals=["algorithm-1-printed"],
            by=["case"],
        ),
    ]


def _compared(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    return table.assign(holds=table.holds.astype(str)).merge(
        reported.assign(holds=reported.holds.astype(str)), on="gpu", suffixes=("", "_paper")
    )


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Rows that each GPU holds, in the slides and here."""
    both = _compared(table, reported)
    columns = {"method": both.method, "GPU": both.gpu, "paper": both.holds_paper, "here": both.holds}
    return pd.DataFrame(columns | {"expected cost": both.expected_cost, "lower bound": both.lower_bound})

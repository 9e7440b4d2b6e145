"""Betty, Figure 13: test accuracy over epochs, with the whole batch and with 2, 4 and 8 micro-batches."""

from typing import Any

import pandas as pd

from experiments.betty.curves import (
    CurveConfig,
    curve_gaps,
    float32_rows,
    mean_curves,
    same_curves,
    training_curve,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

Config = CurveConfig
run = training_curve
shown = float32_rows


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    gaps: Any = 100 * curve_gaps(shown(table), value="test_accuracy").set_index(["dataset", "num_parts", "seed"]).gap
    return Title(
        "Micro-batches are at most {gaps.most:.2f} points from the whole batch's test accuracy in any epoch", gaps=gaps
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    curves = mean_curves(shown(table), values=["test_accuracy"], by=["dataset", "num_parts"])
    return lines(
        curves.assign(cut=curves.num_parts.map(_name)),
        x="epoch",
        y="test_accuracy",
        spread={"test_accuracy": ("test_accuracy_low", "test_accuracy_high")},
        band=True,
        group="cut",
        facet="dataset",
        title=title(table, reported).text,
    )


def _name(num_parts: int) -> str:
    return "K = 1 (whole)" if num_parts == 1 else f"K = {num_parts}"


def ends(table: pd.DataFrame) -> pd.DataFrame:
    """First and last loss and test accuracy of each run."""
    runs: Any = shown(table).sort_values("epoch", kind="stable").groupby(["dataset", "num_parts", "seed"], sort=False)
    columns = {f"{end}_{value}": getattr(runs[value], end)() for value in ("loss", "test_accuracy") for end in ENDS}
    return pd.DataFrame(columns).reset_index()


ENDS = ("first", "last")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found = ends(table)
    return [
        *same_curves(table),
        claims.within(
            "converges",
            "and it is a curve of convergence: the last test accuracy is above the first",
            found.assign(gain=found.last_test_accuracy - found.first_test_accuracy),
            value="gain",
            by=["dataset", "num_parts", "seed"],
            least=0.01,
            form=".1%",
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Largest difference of each curve from the whole batch's, which the paper puts in words, and its last values."""
    gaps = {name: curve_gaps(shown(table), value=name) for name in ("loss", "test_accuracy")}
    here: Any = {
        f"largest difference, {name.replace('_', ' ')}": gap.groupby(["dataset", "num_parts"]).gap.max()
        for name, gap in gaps.items()
    }
    last: Any = ends(table).groupby(["dataset", "num_parts"])[["last_loss", "last_test_accuracy"]].mean()
    both = pd.DataFrame(here).join(last, how="right").reset_index()
    both.insert(2, "paper", both.num_parts.map(reported.set_index("num_parts").statement))
    return both.rename(columns={"num_parts": "K", "last_loss": "last loss", "last_test_accuracy": "last test accuracy"})

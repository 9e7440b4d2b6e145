"""Betty's Figures 4 and 13 and Table 5: claims on tables where they hold, and on spoiled ones; figures, comparisons."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.experiments.betty.curve_tables import (
    EPOCHS,
    against_mini_batches,
    by_number_of_parts,
    with_independent_seeds,
)
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.interval import mean_intervals

TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "fig4": against_mini_batches,
    "fig13": by_number_of_parts,
    "table5": with_independent_seeds,
}


def lost(figure: str, table: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions(f"betty/{figure}", table) if not finding.held}


@pytest.mark.parametrize("figure", TABLES)
def test_claims_hold_where_they_do(figure: str) -> None:
    assert lost(figure, TABLES[figure]()) == set()


MICRO = "approach == 'micro' and seed == 0"
SPOILED: list[tuple[str, str, str, float, set[str]]] = [
    ("fig4", f"{MICRO} and precision == 'float32' and epoch == 5", "loss", 2e-4, {"same-losses-float32"}),
    ("fig4", f"{MICRO} and precision == 'float64' and epoch == 5", "loss", 2e-8, {"same-losses-float64"}),
    ("fig4", f"{MICRO} and epoch == 5 and dataset == 'y'", "test_accuracy", 0.002, {"same-accuracies"}),
    ("fig4", "approach == 'mini' and epoch == 2", "test_accuracy", -0.3, {"mini-batches-first"}),
    ("fig4", "approach == 'mini' and epoch > 5", "test_accuracy", 0.3, {"mini-batches-end-lower"}),
    ("fig13", f"{MICRO} and num_parts == 4 and precision == 'float32'", "loss", 2e-4, {"same-losses-float32"}),
    ("fig13", f"{MICRO} and num_parts == 8 and precision == 'float64'", "loss", 2e-8, {"same-losses-float64"}),
    ("fig13", f"approach == 'whole' and epoch == {EPOCHS}", "test_accuracy", -0.9, {"same-accuracies", "converges"}),
    ("table5", f"{MICRO} and precision == 'float32' and model == 'gat'", "loss", 2e-4, {"same-losses-float32"}),
    ("table5", f"{MICRO} and precision == 'float32'", "test_accuracy", -0.0216, {"same-accuracies"}),
    ("table5", "seed > 2 and model == 'gat' and dataset == 'y'", "test_accuracy", -0.06, {"no-difference-seen"}),
]


@pytest.mark.parametrize(("figure", "where", "column", "change", "expected"), SPOILED)
def test_a_spoiled_table_loses_just_that_claim(
    figure: str, where: str, column: str, change: float, expected: set[str]
) -> None:
    table = TABLES[figure]()
    rows = table.query(where).index
    assert len(rows)
    table.loc[rows, column] += change
    assert lost(figure, table) == expected


def test_mini_batches_that_train_alike_lose_what_is_said_of_them() -> None:
    table = against_mini_batches()
    losses = table.query("approach == 'whole' and precision == 'float32'").loss.to_numpy()
    table.loc[table.approach == "mini", "loss"] = losses + 0.05
    assert lost("fig4", table) == {"mini-batches-differ", "mini-batches-fluctuate"}


def test_mini_batches_that_break_off_show_no_difference() -> None:
    table = against_mini_batches()
    broken = table.query(f"approach == 'mini' and dataset == 'x' and seed == 1 and epoch == {EPOCHS}").index
    assert "mini-batches-differ" in lost("fig4", table.drop(broken))


def test_fluctuation_is_distance_from_the_neighbours_middle() -> None:
    fluctuation = load_experiment("betty/fig4").module.fluctuation
    assert fluctuation(pd.Series([9.0, 9, 9, 9, 4, 3, 2, 1])) == 0
    assert fluctuation(pd.Series([9.0, 9, 9, 2, 3, 2])) == pytest.approx(0.5)


def lines_of(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.fill is None]


def test_figure_4_shows_means_and_intervals_of_three_trainings() -> None:
    table = against_mini_batches()
    figure = load_experiment("betty/fig4").draw(table)
    assert {trace.name for trace in figure.data} == {"whole batch", "micro-batches", "mini-batches"}
    assert len(lines_of(figure)) == 3 * 2 * 2 and all(len(trace.x) == EPOCHS for trace in lines_of(figure))
    whole = next(t for t in lines_of(figure) if t.name == "whole batch")
    expected = table.query("approach == 'whole' and precision == 'float32' and dataset == 'x'")
    assert list(whole.y) == pytest.approx(expected.groupby("epoch").loss.mean().tolist())
    (band,) = [t for t in figure.data if t.fill and t.name == whole.name and t.yaxis == whole.yaxis]
    assert max(band.y) == pytest.approx(mean_intervals(expected, value="loss", by=["epoch"]).high.max())


def test_figure_13_shows_a_curve_for_every_number_of_parts() -> None:
    figure = load_experiment("betty/fig13").draw(by_number_of_parts())
    assert [trace.name for trace in lines_of(figure)] == ["K = 1 (whole)", "K = 2", "K = 4", "K = 8"]
    first, *others = (trace.y for trace in lines_of(figure))
    assert all(y == first for y in others)


def test_table_5_is_of_independent_runs() -> None:
    module = load_experiment("betty/table5").module
    shown = module.shown(with_independent_seeds())
    assert len(shown) == 4 * 6 and set(shown.epoch) == {EPOCHS}
    assert sorted(shown.query("approach == 'micro' and dataset == 'y' and model == 'gat'").seed) == [3, 4, 5]
    figure = load_experiment("betty/table5").draw(with_independent_seeds())
    assert {trace.name for trace in figure.data} == {"micro-batches", "whole batch"}
    assert all(len(trace.y) == 4 for trace in figure.data)
    assert "The same batches end at most 0.00% apart in accuracy" in figure.layout.title.text
    cases = ("cora<br>sage-mean", "cora<br>gat", "y<br>sage-mean", "y<br>gat")
    assert figure.layout.xaxis.ticktext == cases, "in the table's order"


def test_table_5_says_how_small_a_difference_it_could_see() -> None:
    """Means of three runs with a deviation of 0.005 each: √(2/3) · 0.005 · t, with 4 degrees of freedom and 5 % / 4."""
    table = with_independent_seeds()
    widened = table.query("approach == 'micro' and seed == 5 and model == 'gat' and dataset == 'y'").index
    table.loc[widened, "test_accuracy"] -= 0.001
    (finding,) = [f for f in directions("betty/table5", table) if f.name == "no-difference-seen"]
    assert finding.held and "4 of 4 cases; farthest from 0 for its width cora, sage-mean: -0.75 ± " in finding.evidence
    half = 100 * 0.005 * (2 / 3) ** 0.5 * 4.3147
    assert f"narrowest cora, sage-mean: -0.75 ± {half:.2f}" in finding.evidence
    assert "widest y, gat: -0.78 ± " in finding.evidence


def test_table_5_is_undecided_where_seeds_could_not_show_a_difference() -> None:
    table = with_independent_seeds()
    table["test_accuracy"] -= 0.03 * table.seed  # intervals of ten points hold 0 whatever the means
    (finding,) = [f for f in directions("betty/table5", table) if f.name == "no-difference-seen"]
    assert not finding.held and not finding.decided
    assert "4 can't show 2 points: about " in finding.evidence
    assert " seeds per approach would decide " in finding.evidence
    table["test_accuracy"] -= 0.2 * (table.seed > 2)
    (finding,) = [f for f in directions("betty/table5", table) if f.name == "no-difference-seen"]
    assert not finding.held and finding.decided, "a difference that wide intervals show refutes the claim"


def test_table_5_does_not_compare_what_has_not_learnt() -> None:
    table = with_independent_seeds()
    table.loc[table.dataset == "y", "test_accuracy"] = 0.31
    found = {f.name: f for f in directions("betty/table5", table)}
    assert not found["trained"].held and not found["no-difference-seen"].trained


def test_comparisons_stand_beside_the_paper() -> None:
    fig4 = load_experiment("betty/fig4").compare(against_mini_batches()).set_index(["dataset", "approach"])
    assert fig4.loc[("x", "mini"), ["steps, paper", "steps, here"]].tolist() == [16, 16]
    losses = [fig4.loc[("x", way), "last loss"] for way in ("whole", "micro", "mini")]
    whole = 3.01 * 2 ** (-EPOCHS / 3)
    assert losses == pytest.approx([whole, whole, 3.01 * 2**-EPOCHS * 1.2], abs=2e-7)
    fig13 = load_experiment("betty/fig13").compare(by_number_of_parts()).set_index(["dataset", "K"])
    assert fig13.loc[("x", 4), "paper"] == "very close"
    assert fig13.loc[("x", 4), "largest difference, loss"] == pytest.approx(1e-7, rel=1e-3)
    table5 = load_experiment("betty/table5").compare(with_independent_seeds()).set_index(["dataset", "model"])
    gat = table5.loc[("cora", "gat")]
    assert gat["micro-batch, paper"] == "78.24 ± 1.85" and gat["same seed, difference"] == 0
    assert gat["whole batch, here"].startswith(f"{100 * (0.8 * (1 - 0.7**EPOCHS) - 0.005):.2f} ± 1.24")
    assert len(table5) == 9 + 2
    assert gat["difference, independent seeds"] == "-0.75 ± 1.76"

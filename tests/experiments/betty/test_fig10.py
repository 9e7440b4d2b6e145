"""Betty's Figure 10: its claims on a table where they hold, and on spoiled ones."""

from typing import Any

import pandas as pd
import pytest

from tests.experiments.betty.settings import MIB, settings
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment


def verdicts(table: pd.DataFrame) -> dict[str, bool]:
    return {finding.name: finding.held for finding in directions("betty/fig10", table)}


def spoiled(where: str, **values: Any) -> pd.DataFrame:
    table = settings()
    for column, value in values.items():
        table.loc[table.query(where).index, column] = value
    return table


LSTM = "panel == 'aggregator' and setting == 'lstm'"


def test_claims_hold_where_they_do() -> None:
    found = verdicts(settings())
    assert len(found) == 4 and all(found.values())


@pytest.mark.parametrize(
    ("values", "lost"),
    [
        ({"cut_peak_bytes": 8 * MIB + 1}, {"all-fit"}),
        ({"cut_again": 1}, {"as-planned"}),
        ({"num_parts": 1}, {"over-is-cut"}),
        ({"refused": "one node alone needs 9 MiB", "num_parts": None, "cut_peak_bytes": None}, {"all-fit"}),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(values: dict[str, Any], lost: set[str]) -> None:
    assert {name for name, held in verdicts(spoiled(LSTM, **values)).items() if not held} == lost


def test_fewer_parts_for_more_layers_lose_that_claim() -> None:
    found = verdicts(spoiled("panel == 'layers' and setting == '2'", num_parts=5))
    assert [name for name, held in found.items() if not held] == ["more-parts"]


def test_numbers_of_parts_are_written_on_the_bars() -> None:
    figure = load_experiment("betty/fig10").draw(settings())
    drawn = [trace for trace in figure.data if trace.type == "bar"]
    assert sorted(text for trace in drawn for text in trace.text) == ["K=1"] * 10 + ["K=2"] * 4
    assert all(trace.name == "fits" for trace in drawn)
    assert "14 of 14 settings fit when cut into K parts, 10 of 14 in one piece" in figure.layout.title.text


def test_what_does_not_fit_or_was_not_run_looks_so() -> None:
    figure = load_experiment("betty/fig10").draw(spoiled(LSTM, refused="too much", num_parts=None, cut_peak_bytes=None))
    (refused,) = [trace for trace in figure.data if trace.name == "estimated, not run"]
    assert (refused.x, refused.y, refused.text) == (("lstm",), (0,), ("no K fits",))
    table = spoiled(LSTM, cut_peak_bytes=None)
    assert all(verdicts(table).values())
    (planned,) = [t for t in load_experiment("betty/fig10").draw(table).data if t.name == "estimated, not run"]
    assert (planned.y, planned.text) == ((8,), ("K=2",))


def test_the_papers_parts_stand_beside_ours() -> None:
    shown = load_experiment("betty/fig10").compare(settings()).set_index(["panel", "setting"])
    assert shown.loc[("aggregator", "lstm"), ["K, paper", "K, here"]].tolist() == [9, 2]
    assert shown.loc[("layers", "4"), "whole ÷ capacity"] == 2
    assert pd.isna(shown.loc[("layers", "1"), "K, paper"])

"""Ratios of here to the paper, and the order of rows by them."""

import math

import pandas as pd
import pytest

from workbench.experiment.distance import RATIO, with_ratios


@pytest.mark.parametrize(
    ("paper", "here"),
    [
        ("time, paper", "time"),
        ("time, paper", "time, here"),
        ("paper, time", "here, time"),
        ("t: paper (%)", "t: here (%)"),
    ],
)
def test_columns_in_pairs_get_a_ratio_and_the_worst_row_comes_first(paper, here):
    table = pd.DataFrame({"case": list("abcd"), paper: [2.0, 4, 3, None], here: [2.2, 1, 6, 5]})
    found = with_ratios(table)
    assert found.case.tolist() == ["b", "c", "a", "d"], "a quarter is farther off than twice"
    assert found[RATIO].round(2).tolist()[:3] == [0.25, 2.0, 1.1] and math.isnan(found[RATIO].iloc[3])
    assert [*found][-1] == RATIO


def test_several_pairs_are_named():
    table = pd.DataFrame({"rows, paper": [1.0], "rows": [2.0], "time, paper": [1.0], "time": [3.0], "note": ["x"]})
    assert [*with_ratios(table)] == [
        "rows, paper", "rows", f"{RATIO}, rows", "time, paper", "time", f"{RATIO}, time", "note",
    ]  # fmt: skip


def test_rows_in_pairs():
    table = pd.DataFrame(
        {
            "dataset": ["a (paper)", "b (paper)", "synthetic-a", "b", "c"],
            "num_ranks": [1, 1, 1, 1, 1],
            "seconds": [1.0, 2, 3, 2, 9],
        }
    )
    found = with_ratios(table)
    assert found.dataset.tolist()[:2] == [f"a ({RATIO})", f"b ({RATIO})"] and found.seconds.tolist()[:2] == [3, 1]
    assert found.iloc[2:].reset_index(drop=True).equals(table), "the comparison itself follows"


def test_without_pairs_nothing_changes():
    table = pd.DataFrame({"K": [1, 2], "memory, x": [1.0, 2.0], "said in the paper": ["a", "b"]})
    assert with_ratios(table).equals(table)
    assert with_ratios(table.head(0)).equals(table.head(0))


def test_the_papers_column_is_beside_those_of_all_graphs_here():
    table = pd.DataFrame(
        {"K": [1, 2], "memory, paper": [4.0, 2], "memory, x": [4.0, 1], "memory, y": [2.0, 2], "time, x": 1}
    )
    found = with_ratios(table)
    assert [name for name in found if RATIO in name] == [f"{RATIO}, memory, x", f"{RATIO}, memory, y"]


def test_the_only_row_of_the_paper_is_beside_all_others():
    table = pd.DataFrame({"where": ["products (paper)", "x (here)", "y (here)"], "saved": [10.0, 20.0, 5.0]})
    assert sorted(with_ratios(table).saved.head(2)) == [0.5, 2.0]

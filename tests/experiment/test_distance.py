"""Ratios of here to the paper, and the order of rows by them."""

import math

import pandas as pd
import pytest

from workbench.experiment.distance import RATIO, ratio_range, with_ratios


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


def test_means_with_half_widths_are_numbers():
    table = pd.DataFrame({"case": ["a", "b"], "f1, paper": ["80.0 ± 0.1", None], "f1, here": ["60.0 ± 2.5", "7 ± 1"]})
    assert with_ratios(table)[RATIO].tolist()[0] == 0.75
    text = pd.DataFrame({"case": ["a", "b"], "f1, paper": ["80.0 ± 0.1", None], "f1, here": ["60.0 ± 2.5", "gains"]})
    assert with_ratios(text).equals(text)


def test_what_the_paper_measured_is_beside_what_is_modelled():
    table = pd.DataFrame({"paper, measured": [2.0], "modelled": [1.0], "modelled, bytes": [4.0], "counts": [9.0]})
    found = with_ratios(table)
    assert found[f"{RATIO}, modelled"].tolist() == [0.5] and found[f"{RATIO}, modelled, bytes"].tolist() == [2.0]
    assert f"{RATIO}, counts" not in found


def test_a_panel_of_the_paper_is_not_beside_itself():
    table = pd.DataFrame({"K": [1, 2], "time, x (paper)": [1.0, 2.0], "time, y": [2.0, 1.0]})
    assert [name for name in with_ratios(table) if RATIO in name] == [RATIO]
    assert with_ratios(table)[RATIO].tolist() == [0.5, 2.0] or with_ratios(table)[RATIO].tolist() == [2.0, 0.5]
    theirs = pd.DataFrame({"copy, in the paper (ms)": [4.0], "copy, modelled from the paper's counts (ms)": [2.0]})
    assert with_ratios(theirs)[RATIO].tolist() == [0.5], "a model of the paper's counts is not the paper's number"


def test_rows_of_any_data_set_are_beside_all():
    table = pd.DataFrame({"dataset": ["any (reported)", "a", "b"], "num_logical": [7, 7, 8], "bias": [0.8, 0.4, 0.9]})
    found = with_ratios(table)
    assert found.dataset.tolist()[0] == f"a ({RATIO})" and found.bias.iloc[0] == 0.5 and len(found) == 4


def test_a_text_that_only_here_has_identifies_no_row():
    table = pd.DataFrame({"order": ["a (paper)", "a"], "p": [4, 4], "swaps": [10.0, 20.0], "bias": [None, "0.9"]})
    assert with_ratios(table).swaps.iloc[0] == 2


def test_the_range_of_all_ratios():
    columns = pd.DataFrame({"t, paper": [2.0, 4, 8], "t": [1.0, 8, math.nan]})
    assert ratio_range(with_ratios(columns)) == (0.5, 2)
    rows = pd.DataFrame({"dataset": ["a (paper)", "a"], "num_ranks": [8, 8], "s": [1.0, 3]})
    assert ratio_range(with_ratios(rows)) == (3, 3), "the number of ranks is no ratio"
    assert ratio_range(pd.DataFrame({"K": [1]})) is None
    none = pd.DataFrame({"t, paper": [2.0, None], "t": [None, 8.0]})
    assert ratio_range(with_ratios(none)) is None

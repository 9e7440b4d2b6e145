"""Betty's Figure 9: its claims on a table where they hold, and on spoiled ones."""

import pandas as pd
import pytest

from tests.experiments.betty.parts import parts
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment


def verdicts(table: pd.DataFrame) -> dict[str, bool]:
    return {finding.name: finding.held for finding in directions("betty/fig9", table)}


def test_claims_hold_where_they_do() -> None:
    assert verdicts(parts()) == {"last-is-largest": True, "last-is-unequal": True}


def test_a_spoiled_table_loses_just_that_claim() -> None:
    small = parts()
    small.loc[small.num_parts == 1, "degree_1"] = 61
    assert verdicts(small) == {"last-is-largest": False, "last-is-unequal": True}
    equal = parts()
    equal.loc[equal.num_parts == 2, "degree_3"] = [31, 29]
    assert verdicts(equal) == {"last-is-largest": True, "last-is-unequal": False}


def test_the_batch_and_two_parts_are_drawn() -> None:
    figure = load_experiment("betty/fig9").draw(parts())
    assert [(trace.name, trace.x, trace.y) for trace in figure.data] == [
        ("batch", (1, 2, 3), (20, 20, 60)),
        ("part 0", (1, 2, 3), (5, 10, 36)),
        ("part 1", (1, 2, 3), (15, 10, 24)),
    ]
    assert "33% apart" in figure.layout.title.text


def test_comparison_lists_the_artifacts_counts() -> None:
    shown = load_experiment("betty/fig9").compare(parts()).set_index("in-degree")
    assert sum(shown["destinations, ogbn-arxiv (paper)"].dropna()) == 90_941
    assert shown["apart, x"].dropna().tolist() == pytest.approx([1 - 5 / 15, 0, 1 - 24 / 36])
    assert shown["apart, ogbn-arxiv (paper)"].dropna().tolist() == [0.19]

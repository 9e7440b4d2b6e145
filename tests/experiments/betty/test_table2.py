"""Betty's Table 2: its rows against the primitives, its claims on a table where they hold, and on spoiled ones."""

from typing import Any

import pandas as pd
import pytest

import workbench as wb
from tests.experiments.betty.parts import parts
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.recorded import recorded

TINY = {"name": "synthetic-products", "scale": 0.001}


def rows(module: Any, num_parts: int, **given: Any) -> list[dict[str, Any]]:
    about = {"model": "sage-lstm", "fanouts": [4], "hidden_dim": 8, "learning_rate": 0.01, "method": "reg"}
    return list(module.run(module.Config(dataset=TINY, num_parts=num_parts, **about | given)))


def test_parts_share_the_seeds_and_their_edges() -> None:
    module = load_experiment("betty/table2").module
    (whole,), cut = rows(module, 1), rows(module, 4)
    assert [row["part"] for row in cut] == [0, 1, 2, 3]
    for column in ("num_seeds", "num_edges", *(f"degree_{degree}" for degree in range(5))):
        assert sum(row[column] for row in cut) == whole[column], column
    assert whole["num_edges"] == sum(degree * whole[f"degree_{degree}"] for degree in range(5))
    data = wb.load_dataset(**TINY)
    degrees = data.graph.indptr.diff()[data.train_idx].clamp(max=4)
    assert [whole[f"degree_{degree}"] for degree in range(5)] == degrees.bincount(minlength=5).tolist()


def test_every_part_needs_what_is_estimated() -> None:
    for row in rows(load_experiment("betty/table2").module, 2):
        assert row["peak_bytes"] == pytest.approx(row["estimate_bytes"], rel=0.05)


def test_a_step_for_which_there_is_no_room_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_experiment("betty/table2").module
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(module, "profile_epoch", None)
    assert [row["peak_bytes"] for row in rows(module, 2)] == [None, None]


def verdicts(table: pd.DataFrame) -> dict[str, bool]:
    return {finding.name: finding.held for finding in directions("betty/table2", table)}


def test_claims_hold_where_they_do_measured_or_estimated() -> None:
    assert verdicts(parts()) == {"unequal-in-memory": True, "more-apart": True}
    assert verdicts(parts().assign(peak_bytes=None)) == {"unequal-in-memory": True, "more-apart": True}


def test_a_spoiled_table_loses_just_that_claim() -> None:
    even = parts().assign(peak_bytes=lambda table: table.num_seeds * 2.0**20)
    even.loc[even.num_parts == 4, "num_seeds"] = [30, 25, 25, 20]
    assert verdicts(even) == {"unequal-in-memory": False, "more-apart": True}
    narrow = parts()
    narrow.loc[narrow.num_parts == 4, "peak_bytes"] = [60 * 2**20, 50 * 2**20, 50 * 2**20, 50 * 2**20]
    assert verdicts(narrow) == {"unequal-in-memory": True, "more-apart": False}


def test_a_bar_a_part_of_what_is_cut() -> None:
    figure = load_experiment("betty/table2").draw(parts())
    assert [len(trace.x) for trace in figure.data] == [2, 4]
    assert "20% to 36% apart in memory, 4% to 8% in seeds" in figure.layout.title.text


def test_comparison_gives_the_papers_distance() -> None:
    shown = load_experiment("betty/table2").compare(parts()).set_index("K")
    assert shown["memory, paper"].tolist() == pytest.approx([1 - 1.91 / 2.13, 1 - 0.79 / 1.17])
    assert shown["seeds, here"].tolist() == pytest.approx([1 - 49 / 51, 1 - 24 / 26])


def test_recorded_in_degrees_of_arxiv_are_the_artifacts() -> None:
    published = load_experiment("betty/fig9").reported
    tables = [kept.table.query("dataset == 'ogbn-arxiv' and num_parts == 1") for kept in recorded("betty/table2")]
    found = [table.iloc[0] for table in tables if len(table)]
    assert found
    for row in found:
        assert [row[f"degree_{degree}"] for degree in published.degree] == published.destinations.tolist()
        assert row.num_edges == 513_414

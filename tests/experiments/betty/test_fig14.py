"""Betty's Figure 14: its claims on a table where they hold and on spoiled ones; what time and data movement are."""

import pandas as pd
import pytest

from tests.experiments.betty.tables import COUNTS, partitioners
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment


def table() -> pd.DataFrame:
    rows = partitioners()
    return rows.assign(fetch_seconds=0.01 * rows.inputs_ratio, transfer_seconds=0.02 * rows.inputs_ratio)


def spoiled(column: str, factor: float) -> pd.DataFrame:
    rows = table().astype({column: float})
    chosen = rows.query("dataset == 'y' and method == 'reg' and model == 'sage-mean' and num_parts == 8").index
    rows.loc[chosen, column] *= factor
    return rows


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("betty/fig14", rows) if not finding.held}


def test_claims_hold_where_they_do() -> None:
    assert lost(table()) == set()


@pytest.mark.parametrize(
    ("column", "factor", "name"),
    [
        ("epoch_seconds", 0.5, "time-rises"),
        ("transfer_seconds", 0.1, "data-time-rises"),
        ("total_inputs", 2, "inputs-grow"),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(column: str, factor: float, name: str) -> None:
    assert lost(spoiled(column, factor)) == {name}


def test_other_models_depths_and_partitioners_do_not_count() -> None:
    rows = table()
    other = rows.query("method != 'reg' or model != 'sage-mean' or fanouts != '[10, 25]'").index
    rows.loc[other, ["epoch_seconds", "transfer_seconds"]] = 0.0
    assert lost(rows) == set()


def test_seconds_are_never_asserted() -> None:
    timed = {finding.name: finding.timed for finding in directions("betty/fig14", table())}
    assert timed == {"time-rises": True, "data-time-rises": True, "inputs-grow": False}


def test_the_figure_shows_epochs_with_their_spread_above_data_movement() -> None:
    figure = load_experiment("betty/fig14").draw(table())
    assert [len(trace.x) for trace in figure.data] == [len(COUNTS)] * 4  # the paper's are without data movement
    assert figure.data[0].error_y.array is not None and figure.data[1].error_y.array is None
    assert [trace.yaxis for trace in figure.data] == ["y", "y3", "y2", "y4"]
    assert figure.layout.yaxis3.title.text == "data movement (ms)" and figure.data[1].y[0] == pytest.approx(30)


def test_comparison_is_relative_to_the_whole_batch() -> None:
    found = load_experiment("betty/fig14").compare(table()).set_index("K")
    assert found.loc[64, "inputs, ogbn-products (paper, without movement)"] == pytest.approx(7820693 / 1829066)
    assert found.loc[16, "time, x"] == pytest.approx(2.5)
    assert pd.isna(found.loc[64, "time, x"])

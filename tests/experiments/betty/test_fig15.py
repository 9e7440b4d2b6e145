"""Betty's Figure 15: its claims on a table where they hold and on spoiled ones; what efficiency is."""

import pandas as pd
import pytest

from tests.experiments.betty.tables import COUNTS, partitioners
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment


def table() -> pd.DataFrame:
    """REG makes 2000 nodes a second at every K, the others 1600."""
    rows = partitioners()
    share = rows.method.map({"reg": 1.0}).fillna(1.25)
    return rows.assign(epoch_seconds=rows.total_inputs / 2000 * share)


def spoiled(where: str, factor: float) -> pd.DataFrame:
    rows = table()
    rows.loc[rows.query(where + " and model == 'sage-mean' and fanouts == '[10, 25]'").index, "epoch_seconds"] *= factor
    return rows


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("betty/fig15", rows) if not finding.held}


def test_claims_hold_where_they_do() -> None:
    assert lost(table()) == set()
    assert all(finding.timed for finding in directions("betty/fig15", table()))


@pytest.mark.parametrize(
    ("where", "factor", "names"),
    [
        ("method == 'reg' and num_parts == 16", 0.7, {"efficiency-stays"}),
        ("method == 'reg' and num_parts == 2 and dataset == 'y'", 1.22, set()),
        ("method == 'reg' and num_parts == 2", 1.4, {"efficiency-stays", "reg-most-efficient"}),
        ("method == 'range' and num_parts == 4 and dataset == 'x'", 0.7, {"reg-most-efficient"}),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(where: str, factor: float, names: set[str]) -> None:
    assert lost(spoiled(where, factor)) == names


def test_efficiency_is_inputs_of_all_parts_over_the_time_of_an_epoch() -> None:
    experiment = load_experiment("betty/fig15")
    rows = experiment.shown(table())
    assert len(rows) == 4 * 2 * len(COUNTS)
    assert rows.query("method == 'reg'").nodes_per_second.to_numpy() == pytest.approx(2000)
    assert rows.query("method == 'metis'").nodes_per_second.to_numpy() == pytest.approx(1600)
    drawn = experiment.draw(table()).data
    assert sum(len(trace.x) for trace in drawn if "paper" not in trace.name) == len(rows)
    (paper, _) = [trace for trace in drawn if trace.name == "REG, paper"]
    assert paper.y[0] == 1 and paper.y[-1] == pytest.approx(7820693 / 2.5511 / (1829066 / 0.49))


def test_comparison_has_the_papers_efficiency_and_gains_beside_ours() -> None:
    found = load_experiment("betty/fig15").compare(table()).set_index("data set")
    paper = found.loc["ogbn-products (paper)"]
    assert paper["K = 64"] == pytest.approx(7820693 / 2.5511 / (1829066 / 0.49))
    assert paper[["gains over metis", "gains over range", "gains over random"]].tolist() == [0.206, 0.211, 0.229]
    assert found.loc["x", ["K = 16", "gains over metis"]].tolist() == pytest.approx([1, 0.25])
    assert pd.isna(found.loc["x", "K = 64"])


def test_without_rivals_only_the_paper_has_gains() -> None:
    found = load_experiment("betty/fig15").compare(table().query("method in ('reg', 'metis')"))
    assert "gains over metis" in found and "gains over range" not in found

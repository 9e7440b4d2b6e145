"""Random configurations: a fixed sequence, cut into ranges and graphs without a difference, and rows of its cases."""

import random
from itertools import islice
from typing import Any

import pytest

from experiments.performance import estimate, plan, traced
from experiments.performance.cases import CasesPoint
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.recorded import recorded


def sequence(rng: random.Random, graphs: tuple[str, ...]):
    while True:
        yield {"graph": rng.choice(graphs), "value": rng.random()}


def cases(first: int, last: int, **given: Any) -> list[dict[str, Any]]:
    return list(CasesPoint(draws=(first, last), **given).cases(sequence, ("power-law", "cora")))


def test_ranges_and_graphs_divide_the_sequence() -> None:
    whole = list(islice(sequence(random.Random(3), ("power-law", "cora")), 12))
    later, earlier = cases(7, 12, seed=3), cases(0, 7, seed=3)
    assert earlier + later == [case for case in whole if case["graph"] == "power-law"]
    assert cases(0, 12, seed=3, dataset="cora") == [case for case in whole if case["graph"] == "cora"]


def test_a_point_may_draw_from_its_own_graph_alone() -> None:
    assert [case["graph"] for case in cases(0, 5, all_graphs=False)] == ["power-law"] * 5


def test_a_graph_of_which_no_case_is_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="no case is drawn for citeseer; choose from power-law, cora"):
        cases(0, 5, dataset="citeseer")


def test_the_recorded_cases_are_those_of_the_sequence() -> None:
    tables = [found.table for found in recorded("performance/estimate") if found.size == "real"]
    drawn = list(islice(estimate.sequence(random.Random(0), estimate.GRAPHS), 364))
    keys = {(case["graph"], case["kind"], str(case["fanouts"]), case["hidden_dim"], case["seed"]) for case in drawn}
    assert tables
    for table in tables:  # one per maker of processors
        columns = table[["graph", "kind", "fanouts", "hidden_dim", "case_seed"]]
        assert len(table) == 360 and {tuple(row) for row in columns.to_numpy()} <= keys


def test_the_real_grids_cover_their_sequences() -> None:
    for figure, (module, draws) in {"estimate": (estimate, 364), "traced": (traced, 120), "plan": (plan, 300)}.items():
        points = load_experiment(f"performance/{figure}").sweep.spec.sizes["real"].grids
        ranges = [draw for grid in points for draw in grid["draws"]]
        assert {number for first, last in ranges for number in range(first, last)} == set(range(draws))
        graphs = [name for grid in points for name in grid.get("dataset", ["power-law"])]
        assert tuple(graphs) == module.GRAPHS


def test_an_estimate_is_compared_with_the_measured_peak() -> None:
    for row in estimate.run(estimate.Config(all_graphs=False, draws=(8, 10))):
        assert row["peak_error"] == row["estimated_bytes"] / row["measured_bytes"] - 1
        assert abs(row["peak_error"]) <= abs(row["worst_error"]) < 0.03


def test_a_traced_model_is_estimated_in_all_numbers_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "PARTS", (1, 3))
    rows = list(traced.run(traced.Config(all_graphs=False, draws=(1, 2))))
    assert [(row["model"], row["num_parts"]) for row in rows] == [("Propagation", 1), ("Propagation", 3)]
    assert all(row["required_error"] >= 0 for row in rows)


def test_a_plan_is_compared_with_the_smallest_that_fits() -> None:
    (row,) = plan.run(plan.Config(all_graphs=False, draws=(1, 2)))
    assert row["measured_bytes"] <= row["capacity_bytes"]
    assert row["hit"] == (abs(row["planned"] - row["smallest"]) <= max(1, 0.08 * row["smallest"]))


def test_the_labels_of_the_whole_batch_count_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow model cut into eight parts needs hardly more than the batch's labels: 15 % were missing."""
    case = {"graph": "power-law", "kind": "gcn", "num_layers": 1, "in_dim": 32, "hidden_dim": 256, "out_dim": 2,
            "heads": 1, "norm": "layer", "dropout": 0.0, "dtype": "bfloat16", "optimizer": "sgd momentum",
            "fanouts": [1], "num_seeds": 429, "num_parts": 8, "seed": 106430}  # fmt: skip
    monkeypatch.setattr(estimate, "sequence", lambda rng, graphs: iter([case]))
    (row,) = estimate.run(estimate.Config(all_graphs=False, draws=(0, 1)))
    assert abs(row["worst_error"]) < 0.03

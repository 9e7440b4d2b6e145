"""Betty's Figure 2: its rows against the primitives, its claims on a table where they hold, and on spoiled ones."""

from typing import Any

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.experiments.betty.settings import GIVEN, MIB, settings
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment
from workbench.memory.estimate import TERMS
from workbench.training.profile import profile_epoch


@pytest.fixture
def module() -> Any:
    return load_experiment("betty/fig2").module


def row(module: Any, **given: Any) -> dict[str, Any]:
    (found,) = module.run(module.Config(**GIVEN | given))
    return found


def measured(num_parts: int) -> int | None:
    data = wb.load_dataset(**GIVEN["dataset"])
    batch = wb.NeighborSampler(GIVEN["fanouts"], seed=0).sample(data.graph, data.train_idx)
    micro = batch.split(wb.partition_batch(batch, num_parts, method="reg", seed=0))
    model = wb.build_model("sage-mean", in_dim=data.num_features, hidden_dim=8, out_dim=data.num_classes, seed=0)
    optimizer = torch.optim.Adam(model.parameters())
    return profile_epoch(model, [micro], data.x, data.y, cross_entropy, optimizer).peak_bytes


@pytest.fixture(scope="module")
def roomy() -> dict[str, Any]:
    """A row whose capacity the whole batch does not reach."""
    return row(load_experiment("betty/fig2").module)


def test_the_whole_batch_needs_what_a_profile_measures(roomy: dict[str, Any]) -> None:
    found = roomy
    assert found["peak_bytes"] == found["cut_peak_bytes"] == pytest.approx(measured(1), rel=0.01)  # rounds up arrays
    assert (found["setting"], found["num_parts"], found["inputs_ratio"]) == ("2", 1, 1)
    assert found["estimate_bytes"] == pytest.approx(found["peak_bytes"], rel=0.02)
    assert sum(found[f"{term}_bytes"] for term in TERMS) == found["estimate_bytes"]


def test_what_is_cut_needs_what_a_profile_measures_and_fits(module: Any, roomy: dict[str, Any]) -> None:
    capacity = roomy["peak_bytes"] * 4 // 5
    found = row(module, capacity_bytes=capacity)
    assert found["num_parts"] > 1 and found["inputs_ratio"] > 1 and found["cut_again"] == 0
    assert found["cut_peak_bytes"] <= capacity < found["peak_bytes"]
    assert found["cut_peak_bytes"] == pytest.approx(measured(found["num_parts"]), rel=0.01)


def test_an_epoch_that_needs_more_than_planned_is_cut_again(
    module: Any, roomy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = module.plan_micro_batches
    capacity = roomy["peak_bytes"] * 4 // 5
    monkeypatch.setattr(module, "plan_micro_batches", lambda *a, **k: plan(*a, **k | {"memory": 2**30}))
    found = row(module, capacity_bytes=capacity)
    assert found["num_parts"] == 1 and found["cut_again"] >= 1
    assert found["cut_peak_bytes"] <= capacity * 1.05  # of the blocks, those of the whole batch are counted


def test_a_step_for_which_there_is_no_room_is_not_begun(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(module, "PeakMeter", None)
    found = row(module)
    assert found["peak_bytes"] is None and "cut_peak_bytes" not in found
    assert found["estimate_bytes"] > 1000 and found["plan_bytes"] > 1000


def test_where_no_number_of_parts_fits_the_row_says_so(module: Any) -> None:
    found = row(module, capacity_bytes=50_000)
    assert "50,000 bytes" in found["refused"] and "num_parts" not in found
    assert found["peak_bytes"] > 50_000


def verdicts(table: pd.DataFrame) -> dict[str, bool]:
    return {finding.name: finding.held for finding in directions("betty/fig2", table)}


def test_claims_hold_where_they_do() -> None:
    found = verdicts(settings())
    assert len(found) == 6 and all(found.values())


@pytest.mark.parametrize(
    ("where", "column", "value", "lost"),
    [
        ("panel == 'aggregator' and setting == 'pool'", "peak_bytes", 17 * MIB, {"aggregator-rises", "estimate-close"}),
        ("panel == 'layers' and setting == '3'", "peak_bytes", MIB, {"layers-rises", "estimate-close"}),
        ("panel == 'hidden' and setting == '64'", "estimate_bytes", 4 * MIB, {"estimate-close"}),
        ("panel == 'fanout' and setting == '100'", "peak_bytes", 8 * MIB, {"over-the-capacity", "estimate-close"}),
    ],
)
def test_a_spoiled_table_loses_just_that_claim(where: str, column: str, value: int, lost: set[str]) -> None:
    table = settings()
    table.loc[table.query(where).index, column] = value
    assert {name for name, held in verdicts(table).items() if not held} == lost


def test_where_it_was_not_run_the_estimate_counts() -> None:
    table = settings()
    over = table.query("panel == 'fanout' and setting == '100'").index
    table.loc[over, "peak_bytes"] = float("nan")
    assert all(verdicts(table).values())
    figure = load_experiment("betty/fig2").draw(table)
    (bar,) = [trace for trace in figure.data if trace.name == "estimated, not run"]
    assert bar.x == ("100",) and bar.y == (16,)


def test_every_setting_is_drawn_in_its_panel() -> None:
    figure = load_experiment("betty/fig2").draw(settings())
    drawn = [trace for trace in figure.data if trace.type == "bar"]
    assert sum(len(trace.x) for trace in drawn) == len(settings()) and len({trace.xaxis for trace in drawn}) == 4
    assert "4 of 14 settings" in figure.layout.title.text


def test_the_comparison_is_relative_to_a_panels_first() -> None:
    shown = load_experiment("betty/fig2").compare(settings()).set_index(["panel", "setting"])
    assert shown.loc[("layers", "4"), "÷ first, here"] == 8
    assert shown.loc[("layers", "4"), "÷ first, paper"] == pytest.approx(22.11 / 7.66)
    assert pd.isna(shown.loc[("aggregator", "lstm"), "paper, GB"])

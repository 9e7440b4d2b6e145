"""Conversion of points to MLflow's fields."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.tracking.points import make_point
from workbench.tracking.mlflow_fields import Value, metrics, parameters, plain_rows, row_parameters, run_name, safe_name


def test_parameters_are_flat_text() -> None:
    found = parameters(make_point(note="x" * 7000).config)
    assert found["dataset"] == "cora" and found["dataset.undirected"] == "null" and found["fanouts"] == "[10, 25]"
    assert len(found["note"]) == 6000


def test_a_name_has_what_tells_the_point_apart() -> None:
    assert run_name(replace(make_point(), label="reg · parts=8")) == "reg · parts=8 · fig11"
    assert run_name(replace(make_point(), size="real", label="reg")) == "reg · fig11 real"
    assert run_name(make_point()) == "cora · reg · parts=8 · rate=1e-05 · fig11"
    assert len(run_name(make_point(note="x" * 300))) == 160


@given(st.text(min_size=1, max_size=400))
def test_any_name_becomes_a_valid_one(name: str) -> None:
    validation = pytest.importorskip("mlflow.utils.validation")
    validation._validate_param(safe_name(name), "")
    validation._validate_metric_name(safe_name(name))
    validation._validate_tag_name(safe_name(name))


def test_rows_are_copies() -> None:
    row = {"a": 1}
    assert plain_rows([row])[0] is not row


def test_one_row_gives_plain_metrics() -> None:
    row = {"hits": 7, "method": "reg", "won": True, "none": None, "bad": math.inf}
    assert metrics([row]) == [Value("hits", 7.0, 0), Value("won", 1.0, 0)] and row_parameters([row]) == {}


@pytest.mark.parametrize("axis", ["epoch", "step"])
def test_a_curve_is_over_its_steps(axis: str) -> None:
    rows = [{axis: 10, "loss": 2.0}, {axis: 30, "loss": 1.0}]
    assert metrics(rows) == [Value("loss", 2.0, 10), Value("loss", 1.0, 30)] and row_parameters(rows) == {}


def test_values_of_a_sweep_within_a_point_are_parameters_and_the_axis_of_its_metrics() -> None:
    rows = [
        {"policy": policy, "kappa": kappa, "run": run, "nodes": 5, "miss_rate": kappa / 10 + run}
        for policy in ("lru", "s3/fifo")
        for kappa in (4, 1, 64)
        for run in (0, 1)
    ]
    found = {(value.name, value.step): value.value for value in metrics(rows)}
    assert found[("miss_rate/lru", 64)] == pytest.approx(6.4 + 0.5), "the mean over repetitions"
    assert {name for name, _ in found} == {
        f"{name}/{policy}" for name in ("miss_rate", "nodes") for policy in ("lru", "s3 fifo")
    }
    assert row_parameters(rows) == {"policy": '["lru", "s3/fifo"]', "kappa": "[1, 4, 64]", "run": "[0, 1]"}


def test_rows_that_only_a_measurement_tells_apart_are_over_their_positions() -> None:
    rows = [{"loss": 0.5, "epoch": 1}, {"loss": 0.25, "epoch": 1}]  # an epoch that occurs twice is not an axis
    assert [(v.name, v.step) for v in metrics(rows)] == [("loss", 0), ("epoch", 0), ("loss", 1), ("epoch", 1)]
    assert row_parameters(rows) == {}


def test_each_number_is_logged_once_in_a_unit_that_people_read() -> None:
    assert metrics([{"peak_bytes": 3 * 2**19, "epoch_seconds": 2}]) == [
        Value("memory/peak_MiB", 1.5, 0),
        Value("seconds/epoch", 2.0, 0),
    ]
    rows = [{"term": "inputs", "term_bytes": 2**20}, {"term": "loss", "term_bytes": 2**21}]
    assert metrics(rows) == [Value("memory/term_MiB/inputs", 1.0, 0), Value("memory/term_MiB/loss", 2.0, 1)]


def test_only_what_a_figure_draws_is_logged() -> None:
    row = {"peak_bytes": 2**20, "hits": 3, "misses": 0}
    assert metrics([row], ["hits", "epoch_seconds"]) == [Value("hits", 3.0, 0)]
    assert len(metrics([row], ["of_another_version"])) == 3


def test_nan_is_shown() -> None:
    (value,) = metrics([{"loss": math.nan}])
    assert math.isnan(value.value)


@pytest.mark.parametrize("column", ["ours", "betty", "measured", "whole", "dropin", "native", "anonymous"])
def test_peaks_by_another_name_are_memory_too(column: str) -> None:
    """They stand beside `estimated_bytes` and `peak_bytes` of the same tables."""
    (value,) = metrics([{f"{column}_bytes": 2**20}])
    assert value == Value(f"memory/{column}_MiB", 1.0, 0)

"""Conversion of points to MLflow's fields."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tracking.points import make_point
from workbench.tracking.mlflow_fields import Value, metrics, parameters, plain_rows, run_name, safe_name


def test_one_row_gives_plain_metrics() -> None:
    row = {"peak_bytes": 7, "method": "reg", "won": True, "none": None, "bad": math.inf}
    assert metrics([row]) == [Value("peak_bytes", 7.0, 0), Value("won", 1.0, 0)]


@pytest.mark.parametrize("axis", ["epoch", "step"])
def test_a_curve_is_over_its_steps(axis: str) -> None:
    rows = [{axis: 10, "loss": 2.0}, {axis: 30, "loss": 1.0}]
    assert metrics(rows) == [Value("loss", 2.0, 10), Value("loss", 1.0, 30)]


def test_rows_without_steps_are_over_their_positions() -> None:
    rows = [{"part": 5, "epoch": 1}, {"part": 6, "epoch": 1}]  # an epoch that occurs twice is not an axis
    assert [(v.name, v.step) for v in metrics(rows)] == [("part", 0), ("epoch", 0), ("part", 1), ("epoch", 1)]


def test_nan_is_shown() -> None:
    (value,) = metrics([{"loss": math.nan}])
    assert math.isnan(value.value)


def test_parameters_are_flat_text() -> None:
    found = parameters(make_point(note="x" * 7000).config)
    assert found["dataset"] == "cora" and found["dataset.undirected"] == "null" and found["fanouts"] == "[10, 25]"
    assert len(found["note"]) == 6000


def test_a_name_is_short() -> None:
    assert run_name(make_point()) == "fig11 · reg · parts=8 · rate=1e-05 · cora"
    assert run_name(make_point(note="x" * 100, seed=3)).endswith("rate=1e-05 · seed=3 · cora")


@given(st.text(min_size=1, max_size=400))
def test_any_name_becomes_a_valid_one(name: str) -> None:
    validation = pytest.importorskip("mlflow.utils.validation")
    validation._validate_param(safe_name(name), "")
    validation._validate_metric_name(safe_name(name))
    validation._validate_tag_name(safe_name(name))


def test_rows_are_copies() -> None:
    row = {"a": 1}
    assert plain_rows([row])[0] is not row

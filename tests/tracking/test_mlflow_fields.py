"""Conversion of points to MLflow's fields."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from tests.tracking.points import make_point
from workbench.tracking.mlflow_fields import parameters, plain_rows, run_name, safe_name


def test_parameters_are_flat_text() -> None:
    found = parameters(make_point(note="x" * 7000).config)
    assert found["dataset"] == "cora" and found["dataset.undirected"] == "null" and found["fanouts"] == "[10, 25]"
    assert len(found["note"]) == 6000


def test_a_name_has_what_tells_the_point_apart() -> None:
    assert run_name(replace(make_point(), label="reg · parts=8")) == "fig11 · reg · parts=8"
    assert run_name(replace(make_point(), size="real", label="reg")) == "fig11 real · reg"
    assert run_name(make_point()) == "fig11 · cora · reg · parts=8 · rate=1e-05"
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

"""Training curves of whole batch, micro-batches and mini-batches."""

from typing import Any

import pytest

import workbench as wb
from workbench.widgets import curve_explorer, curve_view

SMALL: dict[str, Any] = {"fanout": (3, 3), "hidden_dim": 8, "epochs": 3}


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_micro_batches_match_the_whole_batch_and_mini_batches_do_not(data: Any) -> None:
    figure: Any = curve_view(data, num_parts=4, **SMALL)
    losses = {trace.name: trace.y for trace in figure.data if trace.yaxis == "y"}
    assert set(losses) == {"whole batch", "micro-batches", "mini-batches"}
    assert losses["micro-batches"] == pytest.approx(losses["whole batch"], abs=1e-5)
    assert abs(losses["mini-batches"][-1] - losses["whole batch"][-1]) > 0.1
    accuracies = [trace.y for trace in figure.data if trace.yaxis == "y2"]
    assert len(accuracies) == 3 and all(0 <= value <= 1 for line in accuracies for value in line)
    assert figure.layout.title.text == "synthetic-products: sage-mean, K = 4, dropout 0.5"


def test_dropout_and_model_reach_the_training(data: Any) -> None:
    choices: list[dict[str, Any]] = [{"dropout": 0.0}, {"model": "gcn"}, {}]
    views: list[Any] = [curve_view(data, num_parts=2, **SMALL, **more) for more in choices]
    assert len({view.data[0].y for view in views}) == 3


def test_the_explorer_trains(data: Any) -> None:
    pytest.importorskip("ipywidgets")
    assert curve_explorer(data, **SMALL) is not None

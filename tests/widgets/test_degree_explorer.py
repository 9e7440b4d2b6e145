"""In-degrees of a batch and its micro-batches, against those of the graph."""

from typing import Any

import pytest

import workbench as wb
from workbench.widgets import degree_view


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_the_parts_add_up_to_the_graphs_in_degrees(data: Any) -> None:
    figure: Any = degree_view(data, method="range", num_parts=3, fanout=4)
    batch, *parts = figure.data
    degrees = data.graph.indptr.diff()[data.train_idx].clamp(max=4)
    assert list(batch.y) == degrees.bincount(minlength=5).tolist()
    assert [sum(values) for values in zip(*(part.y for part in parts), strict=True)] == list(batch.y)
    assert figure.layout.title.text.startswith("synthetic-products: range, K = 3<br>")


def test_the_subtitle_states_the_imbalance(data: Any) -> None:
    figure: Any = degree_view(data, method="metis", num_parts=2, fanout=4)
    first, second = (part.y for part in figure.data[1:])
    shares = [1 - min(pair) / max(pair) for pair in ((sum(first), sum(second)), (first[4], second[4]))]
    assert f"differ by {shares[0]:.0%} in seeds, {shares[1]:.0%} in the last bucket" in figure.layout.title.text


def test_more_parts_than_colours(data: Any) -> None:
    with pytest.raises(ValueError, match="there are 8 names"):
        degree_view(data, method="range", num_parts=7)

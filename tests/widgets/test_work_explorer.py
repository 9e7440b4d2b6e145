"""Work of batches in a notebook: the lines and the subtitle are the counts of `measure_work`."""

from math import log10
from typing import Any

import pytest

import workbench as wb
from workbench.widgets import WORK_SAMPLERS, work_explorer, work_view


@pytest.fixture(scope="module")
def data() -> Any:
    return wb.load_dataset("synthetic-products", scale=0.001)


def test_lines_are_means_of_the_measured_work(data: Any) -> None:
    figure: Any = work_view(data, samplers=["NS"], fanouts=(3, 3), batch_size=32, repetitions=3)
    (line,) = figure.data
    assert list(line.x) == [8, 16, 32, 128]
    works = wb.cooperative.measure_work(
        data.graph, data.train_idx, sampler=wb.NeighborSampler((3, 3)), batch_sizes=[32], repetitions=3
    )
    inputs = sorted(w.num_inputs for w in works)
    assert line.y[2] == pytest.approx(inputs[1] / 32)
    epoch = sum(inputs) / 3 * len(data.train_idx) / 32
    assert f"batches of 32 (and of 128): NS {epoch:,.0f} (" in figure.layout.title.text


def test_all_samplers_are_compared_by_default(data: Any) -> None:
    figure: Any = work_view(data, fanouts=(2,), batch_size=16, repetitions=1)
    assert {trace.name for trace in figure.data} == set(WORK_SAMPLERS)


def test_batches_do_not_exceed_the_training_nodes(data: Any) -> None:
    figure: Any = work_view(data, samplers=["NS"], fanouts=(2,), batch_size=len(data.train_idx), repetitions=1)
    assert max(figure.data[0].x) == len(data.train_idx)
    with pytest.raises(ValueError, match="a batch size is"):
        work_view(data, samplers=["NS"], fanouts=(2,), batch_size=len(data.train_idx) + 1)


def test_no_sampler(data: Any) -> None:
    with pytest.raises(ValueError, match="no sampler is chosen; choose from"):
        work_view(data, samplers=[])


def test_the_axes_stay_while_controls_move(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    box: Any = work_explorer(data, fanouts=((2,), (3, 3)), batch_sizes=(32, 64))
    controls = {widget.description: widget for widget in box.children[0].children}
    controls["fanouts"].value = (3, 3)
    controls["batch size"].value = 64
    controls["samplers"].value = ("LABOR-0",)
    assert len(shown) == 4 and len({(f.layout.xaxis.range, f.layout.yaxis.range) for f in shown}) == 1
    for figure in shown:
        for axis, values in (("xaxis", "x"), ("yaxis", "y")):
            low, high = figure.layout[axis].range
            assert all(low < log10(v) < high for line in figure.data for v in line[values])

"""Interactive cells: a control moved draws anew, and the pure function behind them measures what it says."""

import sys
from typing import Any

import ipywidgets
import pytest
import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from workbench.core.dataset import Dataset
from workbench.training.profile import profile_epoch
from workbench.widgets import explore, micro_batch_explorer, micro_batch_view


@pytest.fixture
def dataset() -> Dataset:
    graph = random_graph(300, 1500, edge_ids=False)
    nodes = torch.arange(300)
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    return Dataset.build(
        graph, x, nodes % 3, train_idx=nodes[:200], val_idx=nodes[200:250], test_idx=nodes[250:], name="toy"
    )


class Drawn:
    """Remembers what it was asked to draw."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **values: Any) -> str:
        self.calls.append(values)
        return "figure"


def control(box: Any, name: str) -> Any:
    return next(widget for widget in box.children[0].children if widget.description == name)


def test_begins_with_the_first_values_and_draws_anew_when_one_changes() -> None:
    draw = Drawn()
    box = explore(draw, num_parts=[4, 1, 2], method=["reg", "range"], seed=range(3, 9, 2), log=True, shown={"b", "a"})
    begin = {"num_parts": 4, "method": "reg", "seed": 3, "log": True, "shown": ("a", "b")}
    assert draw.calls == [begin]
    control(box, "num parts").value = 2
    control(box, "method").value = "range"
    control(box, "shown").value = ("b",)
    assert draw.calls[1:] == [
        begin | {"num_parts": 2},
        begin | {"num_parts": 2, "method": "range"},
        begin | {"num_parts": 2, "method": "range", "shown": ("b",)},
    ]


def test_kinds_of_controls_and_no_redraw_while_dragging() -> None:
    mine = ipywidgets.Text("hello", description="mine")
    box = explore(Drawn(), k=[1, 2], seed=range(5), fanout={"10, 25": (10, 25)}, log=False, shown={"a"}, mine=mine)
    kinds = [type(widget).__name__ for widget in box.children[0].children]
    assert kinds == ["SelectionSlider", "IntSlider", "Dropdown", "Checkbox", "SelectMultiple", "Text"]
    assert not control(box, "k").continuous_update and not control(box, "seed").continuous_update
    assert control(box, "fanout").value == (10, 25)
    assert (control(box, "seed").min, control(box, "seed").max) == (0, 4)


@pytest.mark.parametrize(("wrong", "error", "says"), [("reg", TypeError, "a str"), ([], ValueError, "no values")])
def test_controls_that_are_none(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=f"method .*{says}"):
        explore(Drawn(), method=wrong)


def test_shows_what_is_drawn_and_says_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)

    def draw(k: int) -> str:
        if k > 2:
            raise ValueError(f"{k} is too many")
        return f"figure {k}"

    box = explore(draw, k=[1, 2, 3])
    control(box, "k").value = 3
    assert shown[0] == "figure 1"
    assert shown[1].data == "ValueError: 3 is too many"


def test_without_ipywidgets_the_figure_to_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    draw = Drawn()
    assert explore(draw, k=range(2, 5), fanout={"a": (1, 2)}, shown={"y", "x"}, log=False) == "figure"
    assert draw.calls == [{"k": 2, "fanout": (1, 2), "shown": ("x", "y"), "log": False}]


@pytest.mark.parametrize("method", ["range", "cluster"])
def test_view_shows_what_is_measured(dataset: Dataset, method: str) -> None:
    options = {"method": method, "fanout": (3, 4), "hidden_dim": 16, "num_seeds": 50}
    figure: Any = micro_batch_view(dataset, num_parts=4, budget_bytes=10**9, **options)
    batch = wb.NeighborSampler((3, 4), seed=0).sample(dataset.graph, dataset.train_idx[:50])
    node_parts = wb.partition_graph(dataset.graph, 4, seed=0) if method == "cluster" else None
    micro = batch.split(wb.partition_batch(batch, 4, method=method, node_parts=node_parts))
    model = wb.build_model("sage-mean", in_dim=8, hidden_dim=16, out_dim=3)
    optimizer = torch.optim.Adam(model.parameters())
    peaks = profile_epoch(model, [micro], dataset.x, dataset.y, cross_entropy, optimizer).part_peak_bytes
    (bars,) = figure.data
    assert [f"({peak:,} bytes)" in said for peak, said in zip(peaks, bars.customdata, strict=True)] == [True] * len(
        micro
    )
    ratio = sum(m.num_inputs for m in micro) / batch.num_inputs
    assert f"input nodes {ratio:.2f} × the batch's" in figure.layout.title.text
    assert f"K = {len(micro)}, fanouts 3, 4" in figure.layout.title.text


def test_view_has_no_more_parts_than_seeds(dataset: Dataset) -> None:
    figure: Any = micro_batch_view(dataset, method="range", num_parts=8, fanout=(2,), num_seeds=3)
    assert len(figure.data[0].x) == 3


def test_explorer_offers_what_it_was_given(dataset: Dataset) -> None:
    box = micro_batch_explorer(dataset, methods=["range"], num_parts=[2, 1], fanouts=[(2, 3)], num_seeds=20)
    assert control(box, "method").options == ("range",)
    assert control(box, "num parts").value == 2
    assert control(box, "fanout").value == (2, 3)

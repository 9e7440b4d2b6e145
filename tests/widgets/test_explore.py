"""`explore`: kinds of controls, redrawing, hidden controls, and errors shown as text."""

import sys
from typing import Any

import ipywidgets
import pytest

from tests.widgets.controls import control
from workbench.core.errors import CapacityError
from workbench.widgets import explore


class Drawn:
    """Records the values it is called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **values: Any) -> str:
        self.calls.append(values)
        return "figure"


def test_starts_with_the_first_values_and_redraws_on_every_change() -> None:
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


def test_kinds_of_controls_and_no_redrawing_while_dragging() -> None:
    mine = ipywidgets.Text("hello", description="mine")
    box = explore(Drawn(), k=[1, 2], seed=range(5), fanout={"10, 25": (10, 25)}, log=False, shown={"a"}, mine=mine)
    kinds = [type(widget).__name__ for widget in box.children[0].children]
    assert kinds == ["SelectionSlider", "IntSlider", "Dropdown", "Checkbox", "SelectMultiple", "Text"]
    assert not control(box, "k").continuous_update and not control(box, "seed").continuous_update
    assert control(box, "fanout").value == (10, 25)
    assert (control(box, "seed").min, control(box, "seed").max) == (0, 4)


@pytest.mark.parametrize(("wrong", "error", "says"), [("reg", TypeError, "a str"), ([], ValueError, "no values")])
def test_invalid_controls(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=f"method .*{says}"):
        explore(Drawn(), method=wrong)


def test_shows_figures_and_error_messages(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_returns_the_initial_figure_without_ipywidgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    draw = Drawn()
    assert explore(draw, k=range(2, 5), fanout={"a": (1, 2)}, shown={"y", "x"}, log=False) == "figure"
    assert draw.calls == [{"k": 2, "fanout": (1, 2), "shown": ("x", "y"), "log": False}]


def test_a_button_redraws_when_it_is_pressed() -> None:
    draw = Drawn()
    box = explore(draw, button="Plan", k=[1, 2, 3])
    assert draw.calls == [{"k": 1}]
    control(box, "k").value = 3
    assert len(draw.calls) == 1
    press = box.children[1]
    assert press.description == "Plan"
    press.click()
    assert draw.calls[1:] == [{"k": 3}] and not press.disabled


def test_controls_are_hidden_while_their_predicate_is_false() -> None:
    box = explore(Drawn(), shown_if={"heads": lambda values: values["model"] == "gat"}, model=["gcn", "gat"], heads=[1])
    heads = control(box, "heads")
    assert heads.layout.display == "none"
    control(box, "model").value = "gat"
    assert heads.layout.display is None


def test_named_numbers_become_a_slider() -> None:
    box = explore(Drawn(), capacity={"2 GiB": 2**31, "1 GiB": 2**30}, k=[5, 1000])
    slider = control(box, "capacity")
    assert isinstance(slider, ipywidgets.SelectionSlider) and slider.value == 2**31
    assert slider.options == (("1 GiB", 2**30), ("2 GiB", 2**31))
    assert control(box, "k").options == (("5", 5), ("1,000", 1000))


def test_a_capacity_error_is_shown_as_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)

    def draw(k: int) -> str:
        raise CapacityError(f"{k} bytes are too few")

    explore(draw, k=[7])
    assert shown[0].data == "**This does not fit:** 7 bytes are too few."

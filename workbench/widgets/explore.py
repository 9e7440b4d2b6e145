"""`explore`: a control for every argument of a function that draws."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.core.errors import CapacityError, PartitionError

Values = Mapping[str, Any]


def explore(
    draw: Callable[..., Any],
    *,
    button: str | None = None,
    shown_if: Mapping[str, Callable[[Values], bool]] | None = None,
    **controls: Any,
) -> Any:
    """A control for every argument of a function, above what it draws; drawn anew when a control is let go.

    Args:
        draw: takes the controls' values by name and returns a figure. What it refuses with a ValueError or MemoryError
            is shown as a line of text.
        button: text of a button; drawn anew only when it is pressed, for what takes its time.
        shown_if: for controls that do not always matter, whether one does, from all values by name.
        controls: by argument; the first value is the one to begin with. True or False: a checkbox; a `range`: a slider;
            a sequence of numbers, or a mapping of names to numbers: a slider over them; another sequence or mapping: a
            dropdown; a set: several to choose from, all at first; or a widget.

    Returns:
        A widget; without ipywidgets the figure to begin with.

    Raises:
        TypeError: a control of another kind.
        ValueError: a control without values.
    """
    try:
        import ipywidgets
    except ModuleNotFoundError:
        return draw(**{name: _first(control) for name, control in controls.items()})
    widgets = {name: _control(name, control) for name, control in controls.items()}
    for name, matters in (shown_if or {}).items():
        _show_if(widgets[name], matters, widgets)
    row = ipywidgets.HBox(list(widgets.values()), layout={"flex_flow": "row wrap"})
    if button is not None:
        return ipywidgets.VBox([row, *_pressed(button, draw, widgets)])
    shown = ipywidgets.interactive_output(lambda **values: _show(draw, values), widgets)
    return ipywidgets.VBox([row, shown])


def _pressed(button: str, draw: Callable[..., Any], widgets: Mapping[str, Any]) -> tuple[Any, Any]:
    """A button and what it draws."""
    import ipywidgets

    press, shown = ipywidgets.Button(description=button, button_style="primary"), ipywidgets.Output()

    def draw_anew(_: Any = None) -> None:
        press.disabled = True
        try:
            with shown:
                shown.clear_output(wait=True)
                _show(draw, _values_of(widgets))
        finally:
            press.disabled = False

    press.on_click(draw_anew)
    draw_anew()
    return press, shown


def _show_if(widget: Any, matters: Callable[[Values], bool], widgets: Mapping[str, Any]) -> None:
    def look(_: Any = None) -> None:
        widget.layout.display = None if matters(_values_of(widgets)) else "none"

    for other in widgets.values():
        other.observe(look, "value")
    look()


def _values_of(widgets: Mapping[str, Any]) -> Values:
    return {name: widget.value for name, widget in widgets.items()}


def _show(draw: Callable[..., Any], values: Mapping[str, Any]) -> None:
    from IPython.display import Markdown, display

    try:
        display(draw(**values))
    except (ValueError, MemoryError, ImportError, PartitionError) as error:
        display(Markdown(_sentence(error)))


def _sentence(error: Exception) -> str:
    if isinstance(error, CapacityError):
        return f"**This does not fit:** {error}."
    return f"{type(error).__name__}: {error}"


def _values(control: Any) -> list[Any]:
    return list(control.values()) if isinstance(control, Mapping) else list(control)


def _first(control: Any) -> Any:
    if isinstance(control, bool):
        return control
    if isinstance(control, set | frozenset):
        return tuple(sorted(control))
    return control.value if hasattr(control, "value") else _values(control)[0]


def _control(name: str, control: Any) -> Any:
    import ipywidgets

    about: Any = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
    if isinstance(control, ipywidgets.Widget):
        return control
    if isinstance(control, bool):
        return ipywidgets.Checkbox(value=control, **about)
    if not isinstance(control, range | set | frozenset | Mapping | Sequence) or isinstance(control, str):
        raise TypeError(f"{name} is a {type(control).__name__}; pass True or False, a range, sequence, mapping or set")
    if not len(control):
        raise ValueError(f"{name} has no values to choose from; pass at least one")
    if isinstance(control, range):
        ends = {"min": min(control), "max": max(control), "step": abs(control.step)}
        return ipywidgets.IntSlider(value=control[0], continuous_update=False, **ends, **about)
    if isinstance(control, set | frozenset):
        return ipywidgets.SelectMultiple(options=sorted(control), value=_first(control), **about)
    if all(isinstance(value, int | float) for value in _values(control)):
        named = control.items() if isinstance(control, Mapping) else ((f"{value:,}", value) for value in control)
        ordered = sorted(named, key=lambda pair: pair[1])
        return ipywidgets.SelectionSlider(options=ordered, value=_first(control), continuous_update=False, **about)
    return ipywidgets.Dropdown(options=control, value=_first(control), **about)

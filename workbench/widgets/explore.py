"""`explore`: one control per argument of a drawing function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.core.errors import CapacityError, PartitionError
from workbench.error_text import line_of, text_of

Values = Mapping[str, Any]


def explore(
    draw: Callable[..., Any],
    *,
    button: str | None = None,
    shown_if: Mapping[str, Callable[[Values], bool]] | None = None,
    **controls: Any,
) -> Any:
    """Show controls for a drawing function's arguments above its figure, which is redrawn when a control changes.

    Args:
        draw: receives the controls' values by name and returns a figure. Its ValueError, MemoryError, ImportError or
            PartitionError is shown as a line of text.
        button: label of a button that redraws instead of the controls, for slow functions; None for no button.
        shown_if: control → predicate on all values by name; the control is hidden while it is False.
        controls: argument → control. True or False is a checkbox; a `range` is a slider; a sequence of numbers, or a
            mapping from names to numbers, is a slider over these; any other sequence or mapping is a dropdown; a set is
            a multiple choice; a widget is used as it is. The first value is the initial one, of a set all are.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.

    Raises:
        TypeError: a control of another type.
        ValueError: a control without values.
    """
    try:
        import ipywidgets
    except ModuleNotFoundError:
        return draw(**{name: _first(control) for name, control in controls.items()})
    widgets = {name: _control(name, control) for name, control in controls.items()}
    for name, predicate in (shown_if or {}).items():
        _show_if(widgets[name], predicate, widgets)
    row = ipywidgets.HBox(list(widgets.values()), layout={"flex_flow": "row wrap"})
    if button is not None:
        return ipywidgets.VBox([row, *_button(button, draw, widgets)])
    shown = ipywidgets.interactive_output(lambda **values: _show(draw, values), widgets)
    return ipywidgets.VBox([row, shown])


def _button(button: str, draw: Callable[..., Any], widgets: Mapping[str, Any]) -> tuple[Any, Any]:
    """The button and its output."""
    import ipywidgets

    press, shown = ipywidgets.Button(description=button, button_style="primary"), ipywidgets.Output()

    def redraw(_: Any = None) -> None:
        press.disabled = True
        try:
            with shown:
                shown.clear_output(wait=True)
                _show(draw, _values_of(widgets))
        finally:
            press.disabled = False

    press.on_click(redraw)
    redraw()
    return press, shown


def _show_if(widget: Any, predicate: Callable[[Values], bool], widgets: Mapping[str, Any]) -> None:
    def update(_: Any = None) -> None:
        widget.layout.display = None if predicate(_values_of(widgets)) else "none"

    for other in widgets.values():
        other.observe(update, "value")
    update()


def _values_of(widgets: Mapping[str, Any]) -> Values:
    return {name: widget.value for name, widget in widgets.items()}


def _show(draw: Callable[..., Any], values: Mapping[str, Any]) -> None:
    from IPython.display import Markdown, display

    try:
        display(draw(**values))
    except (ValueError, MemoryError, ImportError, PartitionError) as error:
        display(Markdown(_message(error)))


def _message(error: Exception) -> str:
    if isinstance(error, CapacityError):
        return f"**This does not fit:** {text_of(error)}."
    return line_of(error)


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

    options: Any = {"description": name.replace("_", " "), "style": {"description_width": "initial"}}
    if isinstance(control, ipywidgets.Widget):
        return control
    if isinstance(control, bool):
        return ipywidgets.Checkbox(value=control, **options)
    if not isinstance(control, range | set | frozenset | Mapping | Sequence) or isinstance(control, str):
        raise TypeError(f"{name} is a {type(control).__name__}; pass a bool, range, sequence, mapping, set or widget")
    if not len(control):
        raise ValueError(f"{name} has no values; pass at least one")
    if isinstance(control, range):
        ends = {"min": min(control), "max": max(control), "step": abs(control.step)}
        return ipywidgets.IntSlider(value=control[0], continuous_update=False, **ends, **options)
    if isinstance(control, set | frozenset):
        return ipywidgets.SelectMultiple(options=sorted(control), value=_first(control), **options)
    if all(isinstance(value, int | float) for value in _values(control)):
        named = control.items() if isinstance(control, Mapping) else ((f"{value:,}", value) for value in control)
        ordered = sorted(named, key=lambda pair: pair[1])
        return ipywidgets.SelectionSlider(options=ordered, value=_first(control), continuous_update=False, **options)
    return ipywidgets.Dropdown(options=control, value=_first(control), **options)

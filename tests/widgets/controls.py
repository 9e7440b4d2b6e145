"""Controls of an explorer by name."""

from typing import Any


def control(box: Any, name: str) -> Any:
    """The control of an explorer that has this description."""
    return next(widget for widget in box.children[0].children if widget.description == name)

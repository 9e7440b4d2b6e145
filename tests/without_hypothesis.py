"""A stand-in for hypothesis, for machines that have only what the library needs: its tests are skipped."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Anything:
    """Attributes, calls and combinations of it are itself, as strategies and settings need it."""

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *_: Any, **__: Any) -> "Anything":
        return self

    def __or__(self, other: Any) -> "Anything":
        return self


def given(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Replaces a test by one that is skipped, whatever its fixtures were."""

    def skipped() -> None:
        pytest.skip("needs hypothesis")

    return lambda test: skipped


class settings:
    """Leaves tests as they are."""

    max_examples = 25

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, test: Any) -> Any:
        return test

    register_profile = load_profile = staticmethod(lambda *_, **__: None)


def _strategy(name: str) -> Anything:
    if name.startswith("__"):  # such as __file__, which libraries look up in every module
        raise AttributeError(name)
    return Anything()


def install() -> None:
    """Put the stand-in in the place of the library."""
    library, strategies = ModuleType("hypothesis"), ModuleType("hypothesis.strategies")
    contents = {"given": given, "settings": settings, "strategies": strategies}
    for name in ("HealthCheck", "assume", "example", "note", "target"):
        contents[name] = Anything()
    library.__dict__.update(contents)
    strategies.__getattr__ = _strategy  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules.update({"hypothesis": library, "hypothesis.strategies": strategies})

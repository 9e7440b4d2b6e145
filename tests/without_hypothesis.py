"""A stand-in for hypothesis, for machines that have only what the library needs: its tests are skipped."""

import inspect
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
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

    def __getitem__(self, key: Any) -> "Anything":  # of annotations
        return self


def given(*strategies: Any, **named: Any) -> Callable[[Any], Any]:
    """Replaces a test by one that is skipped, whose arguments are those that hypothesis does not give."""

    def replaced(test: Any) -> Any:
        def skipped(**_: Any) -> None:
            pytest.skip("needs hypothesis")

        kept = [each for name, each in inspect.signature(test).parameters.items() if name not in named]
        kept = kept[: len(kept) - len(strategies)]  # positional strategies give the last arguments
        skipped.__signature__ = inspect.Signature(kept)  # pyright: ignore[reportFunctionMemberAccess]
        return skipped

    return replaced


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
    library.__spec__ = ModuleSpec("hypothesis", None)  # which torch's compiler looks up
    strategies.__getattr__ = _strategy  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules.update({"hypothesis": library, "hypothesis.strategies": strategies})

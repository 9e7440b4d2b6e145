"""Classes of a library that is imported when the first of them is constructed: tests are collected without it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module: its attributes are functions that call those of the module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: getattr(import_module(self._module), name)(*args, **kwargs)

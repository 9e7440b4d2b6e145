"""Kernels under `torch.compile`: graph breaks, since the compiler can't trace them."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def runs_eagerly(function: F) -> F:
    """Decorate a function to run eagerly in a compiled model, where it causes a graph break.

    `torch.compiler.disable` does the same, but imports the compiler, which takes seconds; here only models that are
    compiled pay for that.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]

"""Kernels under `torch.compile`: opaque calls between compiled graphs, since the compiler can't look into them."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def runs_eagerly(function: F) -> F:
    """Decorator: the function is called as it stands in a compiled model; the compiler breaks its graph there.

    `torch.compiler.disable` does the same, but would import the compiler, seconds, with this package; here that is left
    to whoever compiles.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]

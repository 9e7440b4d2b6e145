"""Losses over pairs, recognised by their `EdgeBatch`: OOM recovery splits seeds, and can't split pairs with them."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from workbench.links.edge_batch import EdgeBatch

_DEPTH = 4  # of functions and containers inside each other


def refuse_pair_loss(loss_of: Callable[..., Any]) -> None:
    """Refuse a loss that uses an `EdgeBatch`: the pieces of a micro-batch that ran out of memory have no such pairs.

    An `EdgeBatch` is found in variables that the function uses (also the first of a list, or of a mapping's values), in
    bound arguments and in attributes of a callable object; one that the function reads in another way is not.

    Args:
        loss_of: the loss of a micro-batch.

    Raises:
        ValueError: It uses an `EdgeBatch`.
    """
    if _uses_pairs(loss_of, _DEPTH):
        raise ValueError(
            "recover splits a micro-batch that runs out of memory by its seeds, and a loss over the pairs of an "
            "EdgeBatch can't follow; pass recover=None and split the pairs into more parts beforehand: pairs.split(…), "
            "batch.select([part.parent for part in parts])"
        )


def _uses_pairs(value: Any, depth: int) -> bool:
    return isinstance(value, EdgeBatch) or (depth > 0 and any(_uses_pairs(used, depth - 1) for used in _used_by(value)))


def _used_by(value: Any) -> Iterator[Any]:
    """Yield what a function or container uses; of a container one element, which is like the others."""
    if isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        yield from (*variables.nonlocals.values(), *variables.globals.values(), *(value.__defaults__ or ()))
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, Mapping):
        yield from list(value.values())[:1]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from value[:1]
    elif type(value).__module__.partition(".")[0] != "torch" and callable(value) and hasattr(value, "__dict__"):
        yield from vars(value).values()

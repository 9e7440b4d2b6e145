"""Fanouts of a sampler: how many in-edges to draw per layer, for all edges or per edge type."""

import operator
from collections.abc import Iterable, Mapping
from typing import Any

Fanout = int | Mapping[int, int]

MAX_LAYERS = 1000
_MAX_FANOUT = 2**62


def checked_fanouts(fanouts: Any) -> tuple[Fanout, ...]:
    """Return the fanouts of a sampler as a tuple of integers and mappings of integers.

    Args:
        fanouts: one per layer, input layer first: an integer or a mapping from edge type to integer; -1: all.

    Raises:
        TypeError: a fanout that is neither an integer nor a mapping of integers.
        ValueError: no fanouts, or a fanout that is neither positive nor -1 (nor 0 in a mapping).
    """
    checked = _as_fanouts(fanouts)
    if not 1 <= len(checked) <= MAX_LAYERS or not all(map(_is_valid, checked)):
        raise ValueError(
            f"fanouts are {list(checked[:9])}; pass one per layer (1 to {MAX_LAYERS} layers), each at least "
            f"1 (and at most {_MAX_FANOUT}), or -1 for all; 0 only for a type in a mapping, which must not be empty"
        )
    return checked


def _limits(fanout: Fanout) -> Iterable[int]:
    return [fanout] if isinstance(fanout, int) else fanout.values()


def _is_valid(fanout: Fanout) -> bool:
    least = 1 if isinstance(fanout, int) else 0
    limits = _limits(fanout)
    return bool(limits) and all(limit == -1 or least <= limit <= _MAX_FANOUT for limit in limits)


def _type_names(fanouts: Any) -> str:
    """List the types of the fanouts, which their values don't show: 10.0 may be a float or a tensor."""
    values = fanouts if isinstance(fanouts, list | tuple) else [fanouts]
    return ", ".join(dict.fromkeys(type(value).__name__ for value in values))


def _as_fanouts(fanouts: Any) -> tuple[Fanout, ...]:
    try:
        if isinstance(fanouts, str | Mapping):
            raise TypeError
        return tuple(_as_fanout(fanout) for fanout in fanouts)
    except TypeError:
        raise TypeError(
            f"fanouts are {fanouts!r} ({_type_names(fanouts)}); pass a list of integers, input layer first: [10, 25], "
            "or -1 for all neighbours; a mapping {edge type: fanout} in place of an integer draws per type"
        ) from None


def _as_fanout(fanout: Any) -> Fanout:
    if isinstance(fanout, Mapping):
        return {_as_integer(kind): _as_integer(limit) for kind, limit in fanout.items()}
    return _as_integer(fanout)


def _as_integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)

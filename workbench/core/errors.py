"""Errors of the workbench and the checks at its boundary: each message names the value, the limit and the remedy."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

ID_DTYPES = (torch.int64, torch.int32)
INT64_MAX = torch.iinfo(torch.int64).max


class CapacityError(MemoryError):
    """Something would need more memory than it may use; the message gives both numbers and what to do."""


class CorruptFileError(ValueError):
    """A stored file does not hold what its header says."""


class PartitionError(RuntimeError):
    """A partitioner failed, crashed or overran its time; the message names it, how it ended and what to do."""


class DataError(ValueError):
    """A data file holds what it may not; the message names the file, the key and the value."""


def check_ids(name: str, ids: Tensor, limit: int, *, unique: bool = False) -> Tensor:
    """Return `ids` as a contiguous int64 vector, or say what is wrong with it.

    Args:
        name: what the ids are, for the message.
        ids: integer vector.
        limit: ids must lie in [0, limit).
        unique: refuse duplicates too.

    Raises:
        TypeError: not an integer tensor.
        ValueError: not a vector, or duplicates where none are allowed.
        IndexError: an id out of range.
    """
    if not isinstance(ids, Tensor) or ids.dtype not in ID_DTYPES:
        raise TypeError(f"{name} must be an int64 or int32 tensor, not {kind_of(ids)}; {_as_ids(name, ids)}")
    if ids.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(ids.shape)}; flatten it with .reshape(-1)")
    if (bad := first_outside(ids, 0, limit)) is not None:
        raise IndexError(f"{name} holds {bad}; ids must lie in [0, {limit})")
    ids = ids.to(torch.int64).contiguous()
    if unique:
        check_unique(name, ids)
    return ids


def check_unique(name: str, ids: Tensor) -> None:
    """Refuse an id that occurs twice.

    Raises:
        ValueError: with the id.
    """
    from workbench.kernels.checks import first_repeat  # numba, which commands that check no ids do without

    if (twice := first_repeat(ids)) is not None:
        raise ValueError(f"{name} holds {twice} more than once; pass each id once (torch.unique)")


def first_outside(values: Tensor, least: int, limit: int) -> int | None:
    """The smallest value below `least`, else the largest that is not below `limit`; None: all lie in [least, limit).

    Compared as Python's integers: a tensor of int32 would wrap a limit of 2³¹ or more.

    >>> first_outside(torch.tensor([0, 7], dtype=torch.int32), -1, 2**63 - 1) is None
    True
    """
    if not values.numel():
        return None
    low, high = (int(value) for value in torch.aminmax(values))
    return low if low < least else high if high >= limit else None


def kind_of(value: object) -> str:
    """What a value is, for messages: the dtype of a tensor, else the name of the type."""
    return str(value.dtype) if isinstance(value, Tensor) else type(value).__name__


def _as_ids(name: str, ids: object) -> str:
    """How to make ids of what is none."""
    if getattr(ids, "dtype", None) in (torch.bool, bool):
        return f"a mask becomes ids by torch.as_tensor({name}).nonzero()[:, 0]"
    return "convert with torch.as_tensor(ids).long()"


def check_vector(
    name: str, values: Tensor | None, length: int | None, dtypes: Iterable[torch.dtype], *, columns: bool = False
) -> None:
    """Check that an optional tensor is a vector of `length` (None: any) and one of `dtypes`; `columns` allows a matrix.

    Raises:
        TypeError: another dtype.
        ValueError: another length, or more dimensions than it may have.
    """
    if values is None:
        return
    dtypes = tuple(dtypes)
    if not isinstance(values, Tensor) or values.dtype not in dtypes:
        remedy = "convert it with .to(dtype)" if isinstance(values, Tensor) else f"pass torch.as_tensor({name})"
        raise TypeError(
            f"{name} must be a tensor of {' or '.join(str(d) for d in dtypes)}, not {kind_of(values)}; {remedy}"
        )
    if values.dim() != 1 and not (columns and values.dim() > 1):
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it must have one dimension")
    if length is not None and values.shape[0] != length:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; its first dimension must be {length}")


def check_finite(name: str, values: Tensor) -> None:
    """Refuse NaN and infinities.

    Raises:
        ValueError: with the first such value and where it stands.
    """
    # The extremes are NaN or infinite if anything is, and take no copy of features that fill the memory.
    if not values.numel() or bool(torch.isfinite(torch.stack(torch.aminmax(values))).all()):
        return
    position = int((~torch.isfinite(values)).flatten().nonzero()[0, 0])
    value = float(values.flatten()[position])
    raise ValueError(f"{name} holds {value} at position {position}; replace or drop what is not finite")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Check that a name is one of those known.

    Raises:
        ValueError: with the names that are known.
    """
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} {value!r} is not known; choose from {', '.join(known)}")


def check_at_least(name: str, value: int, least: int, *, most: int | None = None) -> None:
    """Check a whole number against its smallest and, if there is one, its largest allowed value.

    Raises:
        ValueError: no whole number, below `least` or above `most`.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least} to {most}")


def check_bytes(name: str, value: int, least: int = 1) -> None:
    """Check a number of bytes.

    Raises:
        ValueError: no whole number, or below `least`; a text is told how to become one.
    """
    if isinstance(value, str):
        raise ValueError(f"{name} is the text {value!r}; pass a number of bytes: workbench.parse_bytes({value!r})")
    check_at_least(name, value, least)


def check_seed(seed: int, name: str = "seed") -> int:
    """Return a seed, or the number of a step, as int: a whole number of 64 bits, all of which count.

    Raises:
        ValueError: no whole number (1.5, "7", True, a tensor), or one that 64 bits do not hold.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise ValueError(f"{name} is {seed!r}; it must be a whole number, such as {name}=0")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"{name} is {seed}; it must lie in [-2**63, 2**63), so that no two give the same numbers")
    return int(seed)


def check_type(name: str, value: object, kind: Any, remedy: str) -> None:
    """Check what an argument is.

    Raises:
        TypeError: something else, with the remedy.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {_article(type(value).__name__)}; {remedy}")


def check_tensors(**values: object) -> None:
    """Check that arguments that may not be None are tensors.

    Raises:
        TypeError: the first that is none.
    """
    for name, value in values.items():
        check_type(name, value, Tensor, f"pass a tensor: torch.as_tensor({name})")


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"

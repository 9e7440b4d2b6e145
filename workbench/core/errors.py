"""Errors of the workbench and the checks at its boundary: each message names the value, the limit and the remedy."""

from collections.abc import Iterable
from numbers import Integral

import torch
from torch import Tensor

ID_DTYPES = (torch.int64, torch.int32)


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
        kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
        raise TypeError(
            f"{name} must be an int64 or int32 tensor, not {kind}; convert with torch.as_tensor(ids).long()"
        )
    if ids.dim() != 1:
        raise ValueError(f"{name} must be a vector, not of shape {tuple(ids.shape)}")
    if ids.numel():
        low, high = (int(v) for v in torch.aminmax(ids))
        if low < 0 or high >= limit:
            raise IndexError(f"{name} holds {low if low < 0 else high}; ids must lie in [0, {limit})")
        if unique and torch.unique(ids).numel() != ids.numel():
            values, counts = torch.unique(ids, return_counts=True)
            raise ValueError(
                f"{name} holds {int(values[counts > 1][0])} more than once; pass each id once (torch.unique)"
            )
    return ids.to(torch.int64).contiguous()


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
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} must be a tensor of {' or '.join(str(d) for d in dtypes)}, not {kind}")
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
    if value not in known:
        raise ValueError(f"{name} {value!r} is not known; choose from {', '.join(known)}")


def check_at_least(name: str, value: int, least: int) -> None:
    """Check a whole number against its smallest allowed value.

    Raises:
        ValueError: below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")

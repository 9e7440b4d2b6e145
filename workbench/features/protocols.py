"""Protocols of feature stores: reading, writing and staging rows by raw-graph id."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from workbench.core.errors import check_type
from workbench.core.machine import Traffic


class FeatureStore(Protocol):
    """Rows by raw-graph id.

    `read` is local and may be called any number of times, by any thread and on every rank independently. Whatever
    crosses a process, a disk or a bus in bulk happens in `stage` (`Stageable`).
    """

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device:
        """Device of the rows that `read` returns."""
        ...

    def __len__(self) -> int:
        """Exclusive upper bound of the ids."""
        ...

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows.

        Args:
            ids: int64 or int32 [n], raw-graph ids, not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return, in the dtype and on the device of the store; None allocates it.

        Returns:
            [n, *row_shape], one row per id.
        """
        ...


class WritableStore(FeatureStore, Protocol):
    """A store whose rows can be replaced."""

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows.

        Args:
            ids: int64 or int32 [n], each id once.
            rows: [n, *row_shape] in the dtype of the store, on any device.
        """
        ...


@runtime_checkable
class InPlace(Protocol):
    """A writable store whose rows are in one tensor, so that an update of some of them needs no copies."""

    def in_place(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Find rows that the caller is about to change.

        Args:
            ids: int64 or int32 [n], each id once.

        Returns:
            The tensor, [any, *row_shape], and int64 [n], where the rows of the ids are in it.
        """
        ...


@runtime_checkable
class Stageable(Protocol):
    """A store that fetches rows in bulk."""

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Fetch rows. May be collective: then all ranks call it equally often, possibly with no ids, or none does.

        Args:
            ids: int64 [n], ascending, each id once.
            traffic: counts the rows that are read from the result.

        Returns:
            A store that serves exactly these rows; reading another one is an error.
        """
        ...


class WrappedStore:
    """Base of stores that wrap another one, `_store`: its shape, dtype and device, and the same ids."""

    _store: Any

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self._store.row_shape)

    @property
    def dtype(self) -> torch.dtype:
        return self._store.dtype

    @property
    def device(self) -> torch.device:
        return self._store.device

    def __len__(self) -> int:
        return len(self._store)


def check_store(name: str, store: Any) -> None:
    """Check that an object has all of `FeatureStore`, which wrappers rely on."""
    required = ("row_shape", "dtype", "device", "__len__", "read")
    if missing := [member for member in required if not hasattr(store, member)]:
        raise TypeError(f"{name} is a {type(store).__name__} without {', '.join(missing)}; implement FeatureStore")


def check_rows(name: str, rows: Tensor, store: FeatureStore, count: int, *, on_device: bool = False) -> None:
    """Check rows that are written to a store, or a buffer that it writes to.

    Args:
        rows: to be [count, *store.row_shape] in the dtype of the store.
        count: number of rows.
        on_device: rows are written to it: require the device of the store, no gradient, and memory of its own for
            every value.
    """
    shape = (count, *store.row_shape)
    check_type(name, rows, Tensor, f"pass a tensor of shape {shape}")
    if rows.dtype != store.dtype:
        raise TypeError(f"{name} is {rows.dtype}, but the rows are {store.dtype}; allocate it in that dtype")
    if tuple(rows.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(rows.shape)}; {count} ids give {shape}")
    if on_device and rows.device != store.device:
        raise ValueError(f"{name} is on {rows.device}, but the rows are on {store.device}; allocate it there")
    if on_device and rows.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires a gradient, but rows are copied to it without one; pass {name}.detach()")
    if on_device and any(not stride and size > 1 for stride, size in zip(rows.stride(), rows.shape, strict=True)):
        raise ValueError(f"{name} is expanded: several of its rows or values share memory; pass {name}.clone()")

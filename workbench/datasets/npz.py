"""Reading a `.npz` that anybody may have written: no pickles, no surprises, every complaint names file and key."""

import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError, DataError
from workbench.core.host_memory import available_bytes
from workbench.core.units import format_bytes

_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, SyntaxError)


class Npz:
    """Arrays of one archive, read and checked one by one.

    Args:
        path: of the archive.

    Raises:
        DataError: not a zip archive, or a truncated one.
        CapacityError: its arrays, twice, exceed the memory that is free.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
        except _BROKEN as error:
            raise DataError(f"{path} is no complete zip archive ({error}); get or write it again") from error
        self.keys = frozenset(members)
        self.nbytes = sum(members.values())
        needed, free = 2 * self.nbytes, available_bytes()
        if needed > free:
            raise CapacityError(
                f"{path} needs about {format_bytes(needed)} of memory to read, {format_bytes(free)} is free; "
                "free some or read it on a larger machine"
            )

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self.path}: {problem}")

    def require(self, keys: Iterable[str]) -> None:
        missing = [key for key in keys if key not in self.keys]
        if missing:
            self.fail(f"{', '.join(missing)} missing; it has {', '.join(sorted(self.keys)) or 'nothing'}")

    def array(self, key: str) -> np.ndarray:
        self.require([key])
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                values = archive[key]
        except _BROKEN as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        except ValueError as error:
            pickled = "allow_pickle" in str(error)
            self.fail(f"{key} holds pickled objects, which are never loaded" if pickled else f"{key}: {error}")
        if not isinstance(values, np.ndarray):
            self.fail(f"{key} is no array")
        return values

    def count(self, key: str, least: int = 0) -> int:
        """A whole number of at least `least`."""
        value = self.array(key)
        if value.shape != () or value.dtype.kind not in "iu":
            self.fail(f"{key} has dtype {value.dtype} and shape {value.shape}; it must be one whole number")
        if value < least:
            self.fail(f"{key} is {value}; it must be at least {least}")
        return int(value)

    def integers(self, key: str, shape: tuple[int | None, ...]) -> Tensor:
        """Whole numbers of a shape (None: any length) as int32 or int64."""
        values = self.array(key)
        if values.dtype.kind not in "iu":
            self.fail(f"{key} holds {values.dtype}; it must hold whole numbers")
        self._check_shape(key, values.shape, shape)
        return torch.from_numpy(np.ascontiguousarray(values, np.int32 if values.dtype == np.int32 else np.int64))

    def ids(self, key: str, shape: tuple[int | None, ...], limit: int, least: int = 0) -> Tensor:
        """Whole numbers in [least, limit)."""
        values = self.integers(key, shape)
        outside = (values < least) | (values >= limit)
        if bool(outside.any()):
            position = outside.nonzero()[0]
            value = int(values[tuple(position)])
            self.fail(f"{key}{position.tolist()} is {value}; it must lie in [{least}, {limit})")
        return values

    def floats(self, key: str, shape: tuple[int | None, ...]) -> Tensor:
        """Finite numbers as float32."""
        values = self.array(key)
        if values.dtype.kind not in "fiub":
            self.fail(f"{key} holds {values.dtype}; it must hold numbers")
        self._check_shape(key, values.shape, shape)
        bad = ~np.isfinite(values)
        if bad.any():
            position = [int(axis[0]) for axis in np.nonzero(bad)]
            self.fail(f"{key}{position} is {values[tuple(position)]}; it must be finite")
        return torch.from_numpy(np.ascontiguousarray(values, np.float32))

    def flags(self, key: str, shape: tuple[int | None, ...]) -> Tensor:
        """Booleans."""
        values = self.array(key)
        if values.dtype != np.bool_:
            self.fail(f"{key} holds {values.dtype}; it must hold bool")
        self._check_shape(key, values.shape, shape)
        return torch.from_numpy(np.ascontiguousarray(values))

    def texts(self, key: str) -> list[str] | None:
        """Names, or None where the archive has none."""
        if key not in self.keys:
            return None
        values = self.array(key)
        if values.dtype.kind not in "SU" or values.ndim != 1:
            self.fail(f"{key} has dtype {values.dtype} and shape {values.shape}; it must be a vector of strings")
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values.tolist()]

    def _check_shape(self, key: str, found: tuple[int, ...], wanted: tuple[int | None, ...]) -> None:
        if len(found) != len(wanted) or any(w is not None and f != w for f, w in zip(found, wanted, strict=True)):
            names = ", ".join("any" if w is None else str(w) for w in wanted)
            self.fail(f"{key} has shape {list(found)}; it must be [{names}]")

"""Reading a `.npz` that anybody may have written: no pickles, no surprises, every complaint names file and key."""

import io
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import CapacityError, DataError, first_outside
from workbench.core.host_memory import available_bytes
from workbench.core.units import format_bytes

_SUFFIX = ".npy"
_MOST_COMPRESSED = 1032
"""The most bytes that one byte of deflate can stand for."""
_BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
_BROKEN_HEADER = (KeyError, TypeError, SyntaxError, MemoryError)
_END = struct.Struct("<4s4H2LH")
"""The record that ends a zip archive; its fifth field is the number of entries."""
_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Npz:
    """Arrays of one archive, read and checked one by one.

    Args:
        path: of the archive.

    Raises:
        DataError: not a zip archive, a truncated one, or one whose table of contents can't be true.
        CapacityError: its arrays, twice, exceed the memory that is free.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members, counted = archive.infolist(), _count_entries(path, len(archive.comment))
        except _BROKEN_ZIP as error:
            raise DataError(f"{path} is no complete zip archive ({error}); get or write it again") from error
        if counted != len(members):
            raise DataError(
                f"{path} lists {len(members)} of its {counted} entries; it is damaged: get or write it again"
            )
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in members}
        self._check_members(members)
        self.keys = frozenset(self._members)
        self.nbytes = sum(info.file_size for info in members)
        needed, free = 2 * self.nbytes, available_bytes()
        if needed > free:
            raise CapacityError(
                f"{path} needs about {format_bytes(needed)} of memory to read, {format_bytes(free)} is free; "
                "free some or read it on a larger machine"
            )

    def _check_members(self, members: list[zipfile.ZipInfo]) -> None:
        """Refuse what NumPy does not write, before anything is allocated by it."""
        for info in members:
            name = info.filename
            if not name.endswith(_SUFFIX) or self._members[name.removesuffix(_SUFFIX)] is not info:
                self.fail(f"it has an entry {name!r}, or has it twice; each must be one array, KEY{_SUFFIX}")
            ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MOST_COMPRESSED}.get(info.compress_type)
            if ratio is None:
                self.fail(
                    f"{info.filename} is compressed by method {info.compress_type}; it must be stored or deflated"
                )
            if info.file_size > ratio * info.compress_size:
                self._fail_claim(name.removesuffix(_SUFFIX), info.file_size, info.compress_size, "compressed ")

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self.path}: {problem}")

    def _fail_claim(self, key: str, claimed: int, there: int, how: str = "") -> NoReturn:
        self.fail(
            f"{key} claims {format_bytes(claimed)}, but {format_bytes(there)} {how}are there; "
            "the file is damaged: get or write it again"
        )

    def require(self, keys: Iterable[str]) -> None:
        missing = [key for key in keys if key not in self.keys]
        if missing:
            self.fail(f"{', '.join(missing)} missing; it has {', '.join(sorted(self.keys)) or 'nothing'}")

    def allow(self, keys: Collection[str]) -> None:
        """Refuse keys that nothing reads, so that a misspelt or damaged one is not taken for one that is absent."""
        unknown = sorted(self.keys.difference(keys))
        if unknown:
            self.fail(f"unknown key {', '.join(map(repr, unknown))}; rename or drop it (known: {', '.join(keys)})")

    def array(self, key: str) -> np.ndarray:
        """One array, whose size and checksum were compared.

        Raises:
            DataError: it is missing, damaged, or holds anything but numbers and strings.
        """
        self.require([key])
        self.check_header(key)
        return np.lib.format.read_array(io.BytesIO(self._bytes(key)), allow_pickle=False)

    def check_header(self, key: str) -> None:
        """Compare the size that an array claims with that of its entry, before anything of that size is allocated."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
                shape, _, dtype = _READERS[np.lib.format.read_magic(stream)](stream)
                there = info.file_size - stream.tell()
        except (*_BROKEN_ZIP, *_BROKEN_HEADER) as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if dtype.hasobject:
            self.fail(f"{key} holds pickled objects, which are never loaded")
        if dtype.kind not in "biufSU" or not dtype.itemsize or min(shape, default=0) < 0:
            self.fail(f"{key} has dtype {dtype} and shape {list(shape)}; it must hold numbers or strings")
        if math.prod(shape) * dtype.itemsize != there:
            self._fail_claim(key, math.prod(shape) * dtype.itemsize, there)

    def _bytes(self, key: str) -> bytes:
        """The content of an entry; zipfile compares its checksum, and its name in the archive's two places."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive:
                data = archive.read(info)
        except _BROKEN_ZIP as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if len(data) != info.file_size:
            self._fail_claim(key, info.file_size, len(data))
        return data

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
        if first_outside(values, least, limit) is not None:
            wide = values.to(torch.int64)  # a limit of 2³¹ or more would wrap in the dtype of the values
            position = ((wide < least) | (wide >= limit)).nonzero()[0]
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


def _count_entries(path: Path, comment_bytes: int) -> int:
    """How many entries an archive says it has: zipfile reads what it finds, and a wrong length hides the rest."""
    with path.open("rb") as file:
        file.seek(-comment_bytes - _END.size, io.SEEK_END)
        return _END.unpack(file.read(_END.size))[4]

"""Reads untrusted `.npz` archives: no pickles, sizes validated before allocating, errors name file and key."""

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

from workbench.core.capacity import available_bytes
from workbench.core.errors import CapacityError, DataError
from workbench.core.suggestions import did_you_mean
from workbench.core.units import format_bytes
from workbench.datasets.file_array import FileArray

_SUFFIX = ".npy"
_MAX_DEFLATE_RATIO = 1032
"""Upper bound of deflate's compression ratio."""
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
"""The end-of-central-directory record of a zip archive; its fifth field is the number of entries."""
_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Npz:
    """An archive whose arrays are read and validated one at a time.

    Args:
        path: path of the archive.

    Raises:
        DataError: not a zip archive, a truncated one, or one with an inconsistent directory.
        CapacityError: twice the size of its arrays exceeds the free memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                members, counted = archive.infolist(), _count_entries(path, len(archive.comment))
        except _BROKEN_ZIP as error:
            raise DataError(f"{path} is not a complete zip archive ({error}); get or write it again") from error
        if counted != len(members):
            raise DataError(
                f"{path} lists {len(members)} of its {counted} entries; it is damaged: get or write it again"
            )
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in members}
        self._check_members(members)
        self.keys = frozenset(self._members)
        self.nbytes = sum(info.file_size for info in members)
        required, free = 2 * self.nbytes, available_bytes()
        if required > free:
            raise CapacityError(
                f"{path} requires about {format_bytes(required)} of memory to read, but {format_bytes(free)} are free; "
                "free some or read it on a larger machine"
            )

    def _check_members(self, members: list[zipfile.ZipInfo]) -> None:
        """Refuse entries that NumPy would not write, before anything is allocated."""
        for info in members:
            name = info.filename
            if not name.endswith(_SUFFIX) or self._members[name.removesuffix(_SUFFIX)] is not info:
                self.fail(
                    f"the entry {name!r} is duplicated or not an array; every entry must be one array, KEY{_SUFFIX}"
                )
            ratio = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _MAX_DEFLATE_RATIO}.get(info.compress_type)
            if ratio is None:
                self.fail(
                    f"{info.filename} is compressed by method {info.compress_type}; it must be stored or deflated"
                )
            if info.file_size > ratio * info.compress_size:
                self._fail_size(name.removesuffix(_SUFFIX), info.file_size, info.compress_size, "compressed ")

    def fail(self, problem: str) -> NoReturn:
        """Raise a `DataError` that names the file."""
        raise DataError(f"{self.path}: {problem}")

    def _fail_size(self, key: str, stated: int, actual: int, how: str = "") -> NoReturn:
        self.fail(
            f"{key} should have {format_bytes(stated)}, but has {format_bytes(actual)} {how}in the file; "
            "the file is damaged: get or write it again"
        )

    def require(self, keys: Iterable[str]) -> None:
        """Refuse an archive without some of these keys."""
        missing = [key for key in keys if key not in self.keys]
        if missing:
            found = ", ".join(sorted(self.keys)) or "nothing"
            self.fail(f"{', '.join(missing)} missing; the archive contains {found}: save it too")

    def allow(self, keys: Collection[str]) -> None:
        """Refuse unknown keys, so that a misspelt or damaged one is not mistaken for a missing optional one."""
        unknown = sorted(self.keys.difference(keys))
        if unknown:
            meant = did_you_mean(unknown[0], keys)
            self.fail(
                f"unknown key {', '.join(map(repr, unknown))}; rename or drop it (known: {', '.join(keys)})"
                + f"; {meant}" * bool(meant)
            )

    def read(self, key: str) -> FileArray:
        """Read an array after validating its size; zipfile verifies its checksum.

        Args:
            key: name of the array.

        Returns:
            The array as stored, to be checked and converted.

        Raises:
            DataError: it is missing, damaged, or contains anything but numbers and strings.
        """
        self.require([key])
        self.check_header(key)
        values = np.lib.format.read_array(io.BytesIO(self._bytes(key)), allow_pickle=False)
        return FileArray(self.path, key, values)

    def check_header(self, key: str) -> None:
        """Compare the size in an array's header with that of its entry, before allocating it."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as stream:
                shape, _, dtype = _READERS[np.lib.format.read_magic(stream)](stream)
                actual = info.file_size - stream.tell()
        except (*_BROKEN_ZIP, *_BROKEN_HEADER) as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if dtype.hasobject:
            self.fail(
                f"{key} contains pickled objects, which are never loaded; save an array of numbers or strings: "
                f"np.array({key}.tolist()), of rows of equal length"
            )
        if dtype.kind not in "biufSU" or not dtype.itemsize or min(shape, default=0) < 0:
            self.fail(f"{key} has dtype {dtype} and shape {list(shape)}; it must contain real numbers or strings")
        if math.prod(shape) * dtype.itemsize != actual:
            self._fail_size(key, math.prod(shape) * dtype.itemsize, actual)

    def _bytes(self, key: str) -> bytes:
        """Read an entry; zipfile verifies its checksum, and that its name agrees with the directory."""
        info = self._members[key]
        try:
            with zipfile.ZipFile(self.path) as archive:
                data = archive.read(info)
        except _BROKEN_ZIP as error:
            self.fail(f"{key} can't be read ({error}); the file is damaged: get or write it again")
        if len(data) != info.file_size:
            self._fail_size(key, info.file_size, len(data))
        return data


def _count_entries(path: Path, comment_bytes: int) -> int:
    """Read the number of entries from the end record: zipfile silently misses entries after a wrong length."""
    with path.open("rb") as file:
        file.seek(-comment_bytes - _END.size, io.SEEK_END)
        return _END.unpack(file.read(_END.size))[4]

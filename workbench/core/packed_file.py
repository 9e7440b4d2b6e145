"""Files that may be compressed, and the names of those that are not text."""

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from workbench.core.errors import DataError

_ZIP = b"PK\x03\x04"
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), b"\xfd7zXZ\x00"
_AS_CSV = "write it as text, such as pandas.{}(path).to_csv(new_path, index=False)"
_UNPACK = "unpack it, and pass the text file"
_BINARY = (
    (b"PAR1", "a Parquet file", _AS_CSV.format("read_parquet")),
    (b"ARROW1", "an Arrow file", _AS_CSV.format("read_feather")),
    (b"FEA1", "a Feather file", _AS_CSV.format("read_feather")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook", _AS_CSV.format("read_excel")),
    (b"\x93NUMPY", "a NumPy array", "load it with numpy.load and pass the array, or name an edge list .npy"),
    (b"\x89HDF\r\n", "an HDF5 file", _AS_CSV.format("read_hdf")),
    (b"MATLAB 5.0", "a MATLAB file", "load it with scipy.io.loadmat and pass its arrays"),
    (b"SQLite format 3", "an SQLite database", "export the table as text"),
    (b"%PDF", "a PDF document", "pass the text file"),
    (b"\x7fELF", "a program", "pass the text file"),
    (b"\x28\xb5\x2f\xfd", "compressed by Zstandard", "unpack it with `zstd -d`, and pass the text file"),
    (b"\x04\x22\x4d\x18", "compressed by LZ4", "unpack it with `lz4 -d`, and pass the text file"),
    (b"\x1f\x9d", "compressed by compress (.Z)", "unpack it with `gzip -d`, and pass the text file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"Rar!", "a RAR archive", _UNPACK),
    (b"PK\x05\x06", "a ZIP archive without files", _UNPACK),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "fetch the file with `git lfs pull`"),
)
_READABLE = (b"%PDF", b"version https://git-lfs")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")  # "PAR1" alone may be the name of an entity
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_WEB_PAGE = re.compile(rb"\s*<(!doctype\s+html|html[\s>])", re.IGNORECASE)
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, NotImplementedError)


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed; whatever its decompressor raises names the file."""
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        magic = file.read(10)
        file.seek(0)
        try:
            if magic.startswith(_GZIP):
                file = stack.enter_context(gzip.open(file))
            elif _BZIP2.match(magic):
                file = stack.enter_context(bz2.open(file))
            elif magic.startswith(_XZ):
                file = stack.enter_context(lzma.open(file))
            elif magic.startswith(_ZIP):
                archive = stack.enter_context(zipfile.ZipFile(file))
                file = stack.enter_context(archive.open(_only_member(path, archive)))
        except DataError:
            raise
        except _DAMAGED as error:
            raise _damaged(path, error) from error
        yield _Guarded(path, cast(IO[bytes], file))  # type: ignore[misc]


class _Guarded:
    """A stream whose errors are those of its file."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path, self._stream = path, stream

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except _DAMAGED as error:
            raise _damaged(self._path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} can't be decompressed ({error}); it is damaged, incomplete or encrypted: get it again")


def _only_member(path: Path, archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/") and "__MACOSX/" not in name]
    names = [name for name in names if not name.split("/")[-1].startswith(".")]
    if any(name.endswith(".npy") for name in names):
        raise DataError(
            f"{path} is a NumPy archive (.npz), not text; wb.load_dataset reads data sets, numpy.load arrays"
        )
    if "[Content_Types].xml" in names:
        raise DataError(f"{path} is an Office document, not text; {_AS_CSV.format('read_excel')}")
    if any(name.endswith("data.pkl") for name in names):
        raise DataError(f"{path} is a file of torch.save, not text; load it with torch.load and pass its tensors")
    if len(names) != 1:
        some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        raise DataError(f"{path} is a ZIP archive of {len(names)} files ({some}), not of one; {_UNPACK}")
    return names[0]


def refuse_binary(path: Path, head: bytes) -> None:
    for magic, kind, remedy in _BINARY:
        if head.startswith(magic) and (_is_binary(head) or magic in _READABLE):
            raise DataError(f"{path} is {kind}, not text; {remedy}")
    if _PICKLE.match(head):
        raise DataError(f"{path} is a pickle, not text; load it where it was made, and write it as text")
    if _WEB_PAGE.match(head):
        raise DataError(f"{path} is a web page, probably what a download gave instead of the file; get it again")
    if head[257:262] == b"ustar":
        raise DataError(f"{path} is a tar archive, not text; {_UNPACK}")
    if head.startswith((_GZIP, _XZ, _ZIP)) or _BZIP2.match(head):
        raise DataError(f"{path} is compressed twice; decompress it once")


def _is_binary(head: bytes) -> bool:
    return _CONTROL.search(head) is not None

"""Text files as people have them: compressed or not, in any encoding; whatever is not text is refused by its name."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Container, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, cast

from workbench.core.errors import DataError

_HEAD_BYTES = 1 << 16  # what is looked at before a file is believed to be text

_BLOCK_BYTES = 1 << 22

_MAX_LINE_BYTES = 1 << 26  # a file without line ends is not read into memory whole

_MAX_SHOWN = 80

_BOMS = (  # the longer first: that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class TextFile:
    """A text file, plain or compressed: gzip, bzip2, xz, or a ZIP archive of one file. Contents decide, not the name.

    A byte order mark decides the encoding; without one it is `encoding`, or UTF-8.

    Args:
        path: the file.
        encoding: a codec of Python; None: UTF-8, or that of the byte order mark.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: `encoding` is not known.
        DataError: when it is read: it is another kind of file, damaged, or not in this encoding.
    """

    path: Path
    encoding: str | None = None

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not a file; pass the path of a text file")
        if self.encoding is not None:
            _codec(self.encoding)

    @property
    def block_encoding(self) -> str:
        """The encoding of blocks, unless a byte order mark says another, which is then UTF-8."""
        encoding = _codec(self.encoding or "utf-8")
        return encoding if _extends_ascii(encoding) else "utf-8"

    def blocks(self) -> Iterator[bytes]:
        """Yield the file in blocks that end with a line, in UTF-8 or another encoding that extends ASCII.

        Bytes of such an encoding are not decoded, so that numbers are read at the speed of the disk.
        """
        with self._blocks() as (_, blocks):
            yield from blocks

    def lines(self) -> Generator[tuple[int, str]]:
        """Yield the number of every line, from 1, and its text without the line end."""
        number = 0
        with self._blocks() as (encoding, blocks):
            for block in blocks:
                try:
                    text = block.decode(encoding)
                except UnicodeDecodeError as error:
                    raise self._undecodable(error, number) from None
                for line in io.StringIO(text, newline=None):
                    number += 1
                    yield number, line.rstrip("\n")

    def error(self, number: int, line: str | bytes, problem: str) -> DataError:
        """Return the error of a line: file, number, what it is, and what is wrong."""
        return DataError(f"{self.path}, line {number}: {shown(line)} {problem}")

    @contextmanager
    def _blocks(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Open the file: the encoding of its blocks, and the blocks."""
        with unpacked(self.path) as stream:
            head = _read(stream, _HEAD_BYTES)
            refuse_binary(self.path, head)
            bom, encoding = self._encoding_of(head)
            chunks = _chunks(head[len(bom) :], stream)
            if _extends_ascii(encoding):
                _refuse_nul(self.path, head, encoding)
            else:
                chunks, encoding = self._recoded(chunks, encoding), "utf-8"
            yield encoding, self._whole_lines(chunks)

    def _encoding_of(self, head: bytes) -> tuple[bytes, str]:
        """The byte order mark, and the encoding of what follows."""
        bom, marked = next(((bom, name) for bom, name in _BOMS if head.startswith(bom)), (b"", None))
        if marked is None:
            return b"", _codec(self.encoding or "utf-8")
        orders = marked, marked.removesuffix("-le").removesuffix("-be")  # utf-16 is either order of bytes
        if self.encoding is not None and _codec(self.encoding) not in orders:
            raise DataError(
                f"{self.path} begins with the byte order mark of {marked}, but encoding is {self.encoding!r}; omit it"
            )
        return bom, marked

    def _recoded(self, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
        """Convert to UTF-8."""
        decoder, number = codecs.getincrementaldecoder(encoding)(), 0
        for chunk in chain(chunks, (None,)):
            try:
                text = decoder.decode(chunk or b"", final=chunk is None)
            except UnicodeDecodeError as error:
                raise self._undecodable(error, number) from None
            number += text.count("\n")
            yield text.encode("utf-8", "surrogatepass")

    def _undecodable(self, error: UnicodeDecodeError, before: int) -> DataError:
        """The error of bytes that are not text in this encoding, in a text that begins after `before` lines."""
        text = error.object[: error.start].decode(error.encoding, "replace")
        line = before + sum(1 for _ in io.StringIO(text + "x", newline=None))
        seen = error.object[error.start : error.start + 4]
        return DataError(
            f"{self.path}, line {line}: {seen!r} is not {error.encoding}; pass the file's encoding, such as "
            'encoding="latin-1", "cp1252" or "utf-16"'
        )

    def _whole_lines(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        rest, number = b"", 0
        for chunk in chunks:
            if b"\0" in chunk:
                line = number + 1 + (rest + chunk[: chunk.index(b"\0")]).count(b"\n")
                raise DataError(f"{self.path}, line {line}: a NUL byte; this is a binary or a damaged file, not text")
            end = _end_of_lines(chunk)
            if not end:
                rest += chunk
                if len(rest) > _MAX_LINE_BYTES:
                    raise DataError(
                        f"{self.path}, line {number + 1} is longer than {_MAX_LINE_BYTES:,} bytes; this is not text "
                        "with an entry per line"
                    )
                continue
            block = rest + chunk[:end]
            rest = chunk[end:]
            number += block.count(b"\n")
            yield block
        if rest:
            yield rest


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def columns_named(
    names: Sequence[str], kinds: Sequence[Container[str]], fillers: Container[str]
) -> tuple[int, ...] | None:
    """Positions of the columns with a name of each kind; None unless one column each has one.

    Args:
        names: of all columns; one without a letter is a number.
        kinds: lower-case names for each position to be found.
        fillers: words that say nothing: "FromNodeId" is "from".
    """
    words = [_WORDS.findall(name) if any(map(str.isalpha, name)) else () for name in names]
    plain = ["".join(word for word in map(str.lower, some) if word not in fillers) for some in words]
    found = [[i for i, name in enumerate(plain) if name in kind] for kind in kinds]
    return tuple(at[0] for at in found) if all(len(at) == 1 for at in found) else None


def shown(line: str | bytes) -> str:
    """Return a line as it appears in messages: quoted, printable and not too long."""
    text = line.decode("utf-8", "backslashreplace") if isinstance(line, bytes) else line
    text = text.strip()
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…")


def _codec(encoding: str) -> str:
    """The name by which Python knows an encoding; a byte order mark is not part of it."""
    try:
        "".encode(encoding)
        return codecs.lookup(encoding).name.removesuffix("-sig").removesuffix("_sig")
    except (LookupError, TypeError) as error:
        raise ValueError(f'encoding is {encoding!r} ({error}); pass a codec of Python, such as "latin-1"') from None


def _extends_ascii(encoding: str) -> bool:
    """Whether every byte below 128 is that ASCII character, wherever it is: UTF-8, and encodings of a byte each."""
    if encoding in ("utf-8", "ascii"):
        return True
    try:
        table = bytes(range(256)).decode(encoding, "replace")
    except UnicodeError:
        return False
    return len(table) == 256 and table[:128] == "".join(map(chr, range(128)))


def _refuse_nul(path: Path, head: bytes, encoding: str) -> None:
    """Refuse binary files, and UTF-16 without its mark, in which every other byte of ASCII is NUL."""
    if b"\0" not in head:
        return
    for order, at in (("le", 1), ("be", 0)):
        if len(head) >= 4 and head[at::2].count(0) > 0.9 * len(head[at::2]):
            raise DataError(
                f'{path} contains NUL bytes, not {encoding}; if it is UTF-16, pass encoding="utf-16-{order}"'
            )
    raise DataError(f"{path} contains NUL bytes: it is a binary file, not text; pass a text file")


def _read(stream: IO[bytes], size: int) -> bytes:
    """Read `size` bytes, or all; a decompressor may return fewer at a time."""
    parts = []
    while size and (part := stream.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _chunks(head: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    while head:
        yield head
        head = stream.read(_BLOCK_BYTES)


def _end_of_lines(chunk: bytes) -> int:
    """Where the last whole line ends; a carriage return at the very end may be half of a line end."""
    end = chunk.rfind(b"\n") + 1
    return end or chunk.rfind(b"\r", 0, len(chunk) - 1) + 1


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
        if head.startswith(magic) and (_CONTROL.search(head) or magic in _READABLE):
            raise DataError(f"{path} is {kind}, not text; {remedy}")
    if _PICKLE.match(head):
        raise DataError(f"{path} is a pickle, not text; load it where it was made, and write it as text")
    if _WEB_PAGE.match(head):
        raise DataError(f"{path} is a web page, probably what a download gave instead of the file; get it again")
    if head[257:262] == b"ustar":
        raise DataError(f"{path} is a tar archive, not text; {_UNPACK}")
    if head.startswith((_GZIP, _XZ, _ZIP)) or _BZIP2.match(head):
        raise DataError(f"{path} is compressed twice; decompress it once")

"""A folder of raw arrays with a JSON header and checksums: written atomically, opened memory-mapped."""

import errno
import hashlib
import json
import math
import mmap
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import open as open_at
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor

from workbench import files
from workbench.core.errors import CorruptFileError, check_type
from workbench.kernels.buffers import byte_view

T = TypeVar("T")

VERSION = 1
HEADER = "header.json"
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.int64,
        torch.int32,
        torch.int16,
        torch.uint8,
        torch.bool,
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
    )
}
_CHUNK_BYTES = 1 << 24
_SWAPS = 20
"""Attempts to open a folder that others replace again and again."""
_MAX_ELEMENTS = 1 << 60
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # in Python's mmap from 3.12 on


def array_path(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the file of an array, which contains its bytes in row-major order and nothing else."""
    return Path(folder).absolute() / f"{name}.bin"


def chunks(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the tensor's bytes in row-major order in pieces of 16 MiB; a contiguous CPU tensor is not copied."""
    flat = byte_view(tensor.detach().cpu()).numpy()
    for start in range(0, flat.size, _CHUNK_BYTES):
        yield flat[start : start + _CHUNK_BYTES].data


def content_digest(arrays: Mapping[str, Tensor | None]) -> str:
    """Return the sha256 over the names, dtypes, shapes and bytes of named tensors; None is skipped."""
    digest = hashlib.sha256()
    for name, tensor in arrays.items():
        if tensor is not None:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            for chunk in chunks(tensor):
                digest.update(chunk)
    return digest.hexdigest()


def _header_digest(header: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in header.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _write_array(folder: Path, name: str, values: Tensor | Iterable[Tensor]) -> dict[str, Any]:
    """Write a tensor, or tensors of consecutive rows one after the other, and describe the array."""
    dtype, shape = None, [0]

    def pieces() -> Iterator[memoryview]:
        nonlocal dtype, shape
        for tensor in [values] if isinstance(values, Tensor) else values:
            _check_piece(name, tensor, dtype, shape)
            shape = list(tensor.shape) if dtype is None else [shape[0] + len(tensor), *shape[1:]]
            dtype = tensor.dtype
            yield from chunks(tensor)

    checksum = files.write_new_file(array_path(folder, name), pieces())
    if dtype is None:
        raise ValueError(f"array {name!r} has no tensors; pass at least one, which may have no rows")
    entry = {"dtype": str(dtype).removeprefix("torch."), "shape": shape, "bytes": math.prod(shape) * dtype.itemsize}
    return entry | {"sha256": checksum}


def _check_piece(name: str, tensor: Tensor, dtype: torch.dtype | None, shape: list[int]) -> None:
    check_type(f"array {name!r}", tensor, Tensor, "pass a tensor, or tensors of consecutive rows")
    if tensor.dtype not in _DTYPES.values():
        raise TypeError(f"array {name!r} is {tensor.dtype}; convert it to one of {', '.join(_DTYPES)}")
    if dtype is not None and (tensor.dtype != dtype or not tensor.dim() or list(tensor.shape[1:]) != shape[1:]):
        raise ValueError(
            f"array {name!r} continues with rows of {list(tensor.shape[1:])} {tensor.dtype} after rows of {shape[1:]} "
            f"{dtype}; pass rows of one shape and dtype"
        )


def _check_free(folder: Path, kind: str, overwrite: bool) -> None:
    """Reject every existing target except an empty folder or, with `overwrite`, a folder of arrays of this kind."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"{folder} exists; pass overwrite=True to replace it, or another folder")
    if problem := why_not_saved(folder, kind):
        raise FileExistsError(
            f"{folder} {problem}, so it is not a saved {kind} alone and is not replaced; pass another folder"
        )


def why_not_saved(folder: Path, kind: str) -> str | None:
    """What shows that a folder is more, or other, than `save_arrays` writes; None: nothing, so it may be deleted.

    A header that can't be read counts as damaged, so that what it describes can be saved again.

    Args:
        folder: any path.
        kind: of the record that it should be.
    """
    if not (folder / HEADER).is_file():
        return f"has no {HEADER}"
    for path in sorted(folder.iterdir()):
        if not path.is_file() or (path.name != HEADER and path.suffix != ".bin"):
            return f"also has {path.name}"
    with suppress(ValueError, RecursionError):
        header = json.loads((folder / HEADER).read_bytes())
        found = header.get("kind") if isinstance(header, dict) else None
        if found != kind:
            return f"has a {HEADER} that describes no {kind}" + (f" but {found!r}" if found else "")
    return None


def other_than_saved(folder: Path, kind_of: Callable[[str], str | None]) -> str | None:
    """What a folder of such folders has besides them, for messages; None: nothing, so it may be deleted.

    Args:
        folder: any path.
        kind_of: the kind of the record in the folder of this name; None: there is none.
    """
    entries = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    for path in entries:
        kind = kind_of(path.name)
        if kind is None:
            return path.name
        if problem := why_not_saved(path, kind):
            return f"{path.name}, which {problem}"
    return None if entries else "no such folder in it"


def save_arrays(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, Tensor | Iterable[Tensor] | None],
    *,
    kind: str,
    overwrite: bool = False,
) -> None:
    """Write named tensors to a folder atomically: a reader sees either the complete folder or none.

    The files are written to a hidden sibling of `folder`, which is renamed once all of them are on disk. Hidden
    siblings left behind by killed processes are deleted.

    Args:
        folder: folder to create, with its missing parents.
        arrays: tensors by name; an array too large for memory as an iterable of tensors of consecutive rows; None is
            skipped.
        kind: type of the record, such as "graph"; `open_arrays` checks it.
        overwrite: replace an existing folder of arrays of this kind, damaged or not.

    Raises:
        FileExistsError: if `folder` exists and `overwrite` is not set, also if another process creates it meanwhile, or
            if it has anything else than arrays of this kind.
        TypeError: if an array is not made of tensors, or of a dtype that can't be stored.
        ValueError: if a name is not an identifier, or tensors of consecutive rows differ in dtype or shape of a row.
    """
    if bad := [name for name in arrays if not name.isidentifier()]:
        raise ValueError(f"array name {bad[0]!r} is not an identifier; use letters, digits and underscores")
    target = Path(folder).resolve()
    files.remove_unfinished(target.parent)
    _check_free(target, kind, overwrite)
    with files.new_folder(target, replace=overwrite) as draft:
        entries = {name: _write_array(draft, name, tensor) for name, tensor in arrays.items() if tensor is not None}
        header = {"kind": kind, "version": VERSION, "byte_order": sys.byteorder, "arrays": entries}
        files.write_new_file(draft / HEADER, json.dumps(header | {"sha256": _header_digest(header)}, indent=1))


@contextmanager
def _opened(folder: Path, kind: str) -> Iterator[int]:
    """Open a folder of arrays: all files that are opened relative to its descriptor are of one `save_arrays`."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} does not exist; save the {kind} first, or pass the folder it was saved in"
        ) from None
    except NotADirectoryError:
        raise CorruptFileError(
            f"{folder} is a file; a saved {kind} is a folder with a {HEADER}: pass that folder"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_file(path: Path, descriptor: int) -> BinaryIO:
    """Open a file of an open folder."""
    return open(path.name, "rb", opener=lambda name, _: open_at(name, os.O_RDONLY, dir_fd=descriptor))


def _is_file(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(path.name, dir_fd=descriptor).st_mode)
    return False


def _read_header(folder: Path, kind: str, descriptor: int) -> dict[str, Any]:
    """Read the header of a folder of arrays and check it against its own checksum."""
    path = folder / HEADER
    if not _is_file(path, descriptor):
        raise FileNotFoundError(f"{path} is missing: not a saved {kind}; pass the folder that it was saved in")
    try:
        with _open_file(path, descriptor) as file:
            header = json.loads(file.read())
        intact = header["sha256"] == _header_digest(header)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not a header of arrays ({error!r}); save the {kind} again") from error
    expected = {"version": VERSION, "kind": kind, "byte_order": sys.byteorder}
    for key, value in expected.items():
        if header.get(key) != value:
            raise CorruptFileError(f"{path} has {key} {header.get(key)!r}, not {value!r}; save the {kind} again")
    if not intact:
        raise CorruptFileError(f"{path} was modified: its sha256 is not {header['sha256']}; save the {kind} again")
    return header


def _check_entries(path: Path, entries: Any) -> dict[str, dict[str, Any]]:
    """Check the description of every array before any file is opened or memory allocated."""
    if not isinstance(entries, dict):
        raise CorruptFileError(f"{path} has arrays {entries!r}, not a description by name; save again")
    for name, entry in entries.items():
        if not name.isidentifier() or not _is_valid(entry):
            raise CorruptFileError(f"{path} describes array {name!r} as {entry}, which is invalid; save again")
    return entries


def _is_valid(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "bytes", "sha256"}:
        return False
    shape, dtype, checksum = entry["shape"], entry["dtype"], entry["sha256"]
    if not isinstance(dtype, str) or dtype not in _DTYPES or not isinstance(checksum, str):
        return False
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        return False
    if math.prod(max(1, size) for size in shape) > _MAX_ELEMENTS or type(entry["bytes"]) is not int:
        return False
    return math.prod(shape) * _DTYPES[dtype].itemsize == entry["bytes"]


def _open_array(folder: Path, name: str, entry: Mapping[str, Any], descriptor: int) -> Tensor:
    """Map one file copy-on-write: pages are read on first access, and writes to the tensor never reach the file.

    No memory is reserved for copies of pages, so a file may be larger than memory.
    """
    path, dtype = array_path(folder, name), _DTYPES[entry["dtype"]]
    if not _is_file(path, descriptor):
        raise FileNotFoundError(f"{path} is missing; restore it or save again")
    size = os.stat(path.name, dir_fd=descriptor).st_size
    if size != entry["bytes"]:
        raise CorruptFileError(
            f"{path} has {size} bytes, but its header says {entry['bytes']}; restore it or save again"
        )
    if not size:
        return torch.empty(entry["shape"], dtype=dtype)
    with _open_file(path, descriptor) as file:
        flags, access = mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
        pages = mmap.mmap(file.fileno(), size, flags=flags, prot=access)
    return torch.frombuffer(pages, dtype=dtype).view(entry["shape"])


def _check_digest(path: Path, tensor: Tensor, expected: str) -> None:
    digest = hashlib.sha256()
    for chunk in chunks(tensor):
        digest.update(chunk)
    if digest.hexdigest() != expected:
        raise CorruptFileError(f"{path} has sha256 {digest.hexdigest()}, but its header says {expected}; save again")


def open_arrays(folder: str | os.PathLike[str], *, kind: str, verify: bool = False) -> dict[str, Tensor]:
    """Memory-map a folder that `save_arrays` wrote; only the header and the file sizes are read.

    Args:
        folder: folder written by `save_arrays`.
        kind: type of the record that was passed to `save_arrays`.
        verify: read every file and compare checksums.

    Returns:
        Tensors by name. Writing to one never changes its file.

    Raises:
        FileNotFoundError: if the folder or one of its files is missing.
        CorruptFileError: if a file does not match the header, or the header has another kind or version.
        OSError: if the process may not open more files: each array keeps one open.
    """
    root = Path(folder).absolute()
    return _while_replaced(root, lambda: _open_all(root, kind, verify))


def saved_digest(folder: str | os.PathLike[str], *, kind: str) -> str:
    """The sha256 of the header of a folder that `save_arrays` wrote, which has those of all arrays.

    It tells the contents of a folder from those that may replace them later. Arguments and errors as for `open_arrays`.
    """
    root = Path(folder).absolute()

    def read() -> str:
        with _opened(root, kind) as descriptor:
            return str(_read_header(root, kind, descriptor)["sha256"])

    return _while_replaced(root, read)


def _open_all(root: Path, kind: str, verify: bool) -> dict[str, Tensor]:
    with naming_open_files(root), _opened(root, kind) as descriptor:
        entries = _check_entries(root / HEADER, _read_header(root, kind, descriptor).get("arrays"))
        arrays = {name: _open_array(root, name, entry, descriptor) for name, entry in entries.items()}
    if verify:
        for name, tensor in arrays.items():
            _check_digest(array_path(root, name), tensor, entries[name]["sha256"])
    return arrays


@contextmanager
def naming_open_files(root: Path) -> Iterator[None]:
    """Name the limit that is reached by opening many folders: a mapped file stays open as long as its tensor exists."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        text = f"{root} can't be opened: it would exceed the limit of {limit} open files, one per array"
        raise OSError(errno.EMFILE, f"{text}; raise it with ulimit -n, or open fewer folders") from error


def _while_replaced(root: Path, read: Callable[[], T]) -> T:
    """Read a folder again if its files vanish because another process has replaced it."""
    for _ in range(_SWAPS):
        files.restore(root)
        before = _inode(root)
        try:
            return read()
        except FileNotFoundError:
            if _inode(root) == before is not None:
                raise
            if before is None and not root.exists():
                raise
    return read()


def _inode(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_ino
    return None

"""The cache of data sets: folders of raw arrays, written after the first read and opened memory-mapped afterwards.

A folder's name is a digest of the source's contents (sha256), the options and the code that reads it. A changed
archive, option or reader therefore gets a new folder, and the outdated one is removed.
"""

import errno
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import HEADER, naming_open_files, open_arrays, save_arrays
from workbench.core.dataset import Dataset, LinkSplit
from workbench.core.errors import DataError
from workbench.core.graph import Graph
from workbench.files import FileStamp
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.paths import cache_folder

_STAMP = "stamp.json"
_FOLDER = "[0-9a-f]{16}-[0-9a-f]{16}"
"""Names of the folders of data sets: digests of the location and of the contents."""
_CHUNK = 1 << 22


def cached(
    name: str,
    location: str,
    sources: tuple[Path, ...],
    options: Mapping[str, Any],
    build: Callable[[], Any],
    *,
    code: tuple[Path, ...] = (),
) -> Dataset | KnowledgeGraph:
    """Open a data set from the cache; build and store it if it is missing or damaged.

    Processes that need the same data set wait for the first one to build it.

    Args:
        location: what is read (a path, or the parameters of a generator); part of the key, with the options.
        sources: files whose contents are part of the key.
        options: options that change the result.
        build: called without arguments to build the data set.
        code: Python files whose contents are part of the key.

    Returns:
        The data set, memory-mapped if the cache is writable, otherwise as built.

    Warns:
        UserWarning: the cache is not writable.
    """
    location_digest = files.digest(location, sorted(options.items()))
    contents = _contents(sources, code)
    folder = cache_folder() / "datasets" / name / f"{location_digest}-{contents}"
    stored = _open(folder)
    if stored is not None:
        return stored
    with _exclusively(cache_folder() / "locks" / files.digest(name, location_digest)):
        stored = _open(folder)
        if stored is not None:
            return stored
        built = build()
        if _contents(sources, code) != contents:
            raise DataError(f"files of {name} changed while they were read ({location}); load it again")
        try:
            _store(folder, location_digest, built)
        except OSError as error:
            message = (
                f"{folder} can't be written ({error}), so {name} is read again each time; set WORKBENCH_CACHE to "
                "another folder"
            )
            warnings.warn(message, stacklevel=3)
            return built
    stored = _open(folder)
    return built if stored is None else stored


def _contents(sources: tuple[Path, ...], code: tuple[Path, ...]) -> str:
    return files.digest([checksum(source) for source in sources], _code_digest(code))


def checksum(path: Path) -> str:
    """Return the sha256 of a file, from the cache unless its stamp has changed."""
    stamp = FileStamp.of(path)
    now = stamp._asdict()
    note = cache_folder() / "checksums" / f"{files.digest(str(path.absolute()))}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text())
        if {key: known[key] for key in now} == now:
            return str(known["sha256"])
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if stamp.is_settled and FileStamp.of(path) == stamp:  # otherwise other contents may have, or get, the same stamp
        _write_note(note, now | {"sha256": digest.hexdigest()})
    return digest.hexdigest()


@cache
def _code_digest(code: tuple[Path, ...]) -> str:
    return files.digest([hashlib.sha256(file.read_bytes()).hexdigest() for file in code])


def _write_note(path: Path, note: Mapping[str, Any]) -> None:
    """Write a small file if that is possible; otherwise its content is computed again."""
    with suppress(OSError):
        files.remove_unfinished(path.parent)
        files.write_file(path, json.dumps(note))


@contextmanager
def _exclusively(lock: Path) -> Iterator[None]:
    """Hold a lock, unless the cache is not writable: then nothing is written either."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(files.locked(lock))
        yield


def _stamp(folder: Path) -> dict[str, list[int]]:
    """Return the stamps of a folder's files, to detect changes since the last verification."""
    paths = (path for path in folder.iterdir() if path.name != _STAMP and path.name[0] != ".")
    return {path.name: list(FileStamp.of(path)) for path in sorted(paths)}


def _open(folder: Path) -> Dataset | KnowledgeGraph | None:
    """Open the data set in a folder; None if there is none, or it is damaged.

    Files with the stamps of the last verification are trusted; otherwise all checksums are verified.
    """
    if not (folder / HEADER).is_file():
        return None
    with naming_open_files(folder):
        try:
            stamp = _stamp(folder)
            with suppress(OSError, ValueError):
                if json.loads((folder / _STAMP).read_text()) == stamp:
                    return _unpack(open_arrays(folder, kind="dataset"))
            verified = _unpack(open_arrays(folder, kind="dataset", verify=True))
            _write_note(folder / _STAMP, stamp)
            return verified
        except (OSError, ValueError, TypeError, KeyError) as error:
            if getattr(error, "errno", None) == errno.EMFILE:  # building the data set anew would not close any
                raise
            return None  # damaged, or being replaced by another process


def _store(folder: Path, location_digest: str, built: Dataset | KnowledgeGraph) -> None:
    """Write a data set and remove damaged or outdated versions; processes that have those open are not affected."""
    for outdated in folder.parent.glob(f"{location_digest}-*"):
        if re.fullmatch(_FOLDER, outdated.name):
            files.remove(outdated, inside=folder.parent, named=_FOLDER)
    save_arrays(folder, _pack(built), kind="dataset")
    _write_note(folder / _STAMP, _stamp(folder))


def _pack(built: Dataset | KnowledgeGraph) -> dict[str, Tensor | None]:
    """Convert a data set to tensors by name; other fields are stored as JSON in one of them."""
    tensors, rest = {}, {"type": type(built).__name__}
    for field in fields(built):
        value = getattr(built, field.name)
        if isinstance(value, Graph):
            tensors |= {f"graph__{name}": t for name, t in value._tensors().items()}
        elif isinstance(value, LinkSplit):
            tensors |= {f"link_split__{name}": t for name, t in value.tensors().items()}
        elif isinstance(value, Tensor):
            tensors[field.name] = value
        else:
            rest[field.name] = value
    tensors["meta"] = torch.frombuffer(bytearray(json.dumps(rest).encode()), dtype=torch.uint8)
    return tensors


def _unpack(arrays: dict[str, Tensor]) -> Dataset | KnowledgeGraph:
    values = json.loads(arrays.pop("meta").numpy().tobytes())
    kind = {"Dataset": Dataset, "KnowledgeGraph": KnowledgeGraph}[values.pop("type")]
    for prefix, record in (("graph", Graph), ("link_split", LinkSplit)):
        parts = {
            name.removeprefix(f"{prefix}__"): arrays.pop(name)
            for name in list(arrays)
            if name.startswith(prefix + "__")
        }
        if parts:
            values[prefix] = record(**parts)
    return kind(**values, **arrays)

"""The cache: a set once read and checked, kept as a folder of raw arrays that later loads open memory-mapped.

A folder's name says what it was made from: the source's contents (sha256), the options and the code that reads it. So
a changed archive, option or rule is another folder, and what it replaces is dropped.
"""

import hashlib
import json
import re
import time
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
from workbench.core.array_store import HEADER, open_arrays, save_arrays
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.knowledge import KnowledgeGraph
from workbench.core.linksplit import LinkSplit
from workbench.datasets.folders import cache_folder

_STAMP = "stamp.json"
_FOLDER = "[0-9a-f]{16}-[0-9a-f]{16}"
"""Names of the folders of sets: where from, and what they were made of."""
_CHUNK = 1 << 22
_SETTLED_SECONDS = 2.0


def cached(
    name: str,
    location: str,
    sources: tuple[Path, ...],
    options: Mapping[str, Any],
    build: Callable[[], Any],
    *,
    code: tuple[Path, ...] = (),
) -> Dataset | KnowledgeGraph:
    """What `build` returns, from the cache where it is intact there, else built and kept.

    Processes that want the same set wait for the first to build it.

    Args:
        name: of the set.
        location: what is read (a path, a rule); with the options, the place in the cache.
        sources: files whose contents decide.
        options: that change the result.
        build: called without arguments.
        code: files of Python whose contents decide too.

    Returns:
        Memory-mapped where the cache can be written, else (with a warning) as built.
    """
    place = files.digest(location, sorted(options.items()))
    contents = files.digest([checksum(source) for source in sources], _code_digest(code))
    folder = cache_folder() / "datasets" / name / f"{place}-{contents}"
    found = _open(folder)
    if found is not None:
        return found
    with _alone(cache_folder() / "locks" / files.digest(name, place)):
        found = _open(folder)
        if found is not None:
            return found
        built = build()
        try:
            _keep(folder, place, built)
        except OSError as error:
            message = (
                f"{folder} can't be written ({error}): {name} is read anew each time; set WORKBENCH_CACHE elsewhere"
            )
            warnings.warn(message, stacklevel=3)
            return built
    found = _open(folder)
    return built if found is None else found


def checksum(path: Path) -> str:
    """sha256 of a file, computed again when its size or time of change did."""
    stat = path.stat()
    now = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    note = cache_folder() / "checksums" / f"{files.digest(str(path.absolute()))}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text())
        if {key: known[key] for key in now} == now:
            return str(known["sha256"])
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if time.time() - stat.st_mtime > _SETTLED_SECONDS:  # one that changed just now may change again and keep its time
        _write_note(note, now | {"sha256": digest.hexdigest()})
    return digest.hexdigest()


@cache
def _code_digest(code: tuple[Path, ...]) -> str:
    return files.digest([hashlib.sha256(file.read_bytes()).hexdigest() for file in code])


def _write_note(path: Path, note: Mapping[str, Any]) -> None:
    """Write a small file; what can't be noted is computed again."""
    with suppress(OSError):
        files.remove_unfinished(path.parent)
        files.write_file(path, json.dumps(note))


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock; where nothing can be written there is none to hold."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(files.locked(lock))
        yield


def _stamp(folder: Path) -> dict[str, list[int]]:
    """Sizes and times of the files as they were when they were known to be intact."""
    stats = {path.name: path.stat() for path in folder.iterdir() if path.name != _STAMP and path.name[0] != "."}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in sorted(stats.items())}


def _open(folder: Path) -> Dataset | KnowledgeGraph | None:
    """The set in a folder; None where there is none or where it was damaged.

    Files whose times and sizes are those noted after the last check are trusted, else all are read and compared.
    """
    if not (folder / HEADER).is_file():
        return None
    try:
        stamp = _stamp(folder)
        with suppress(OSError, ValueError):
            if json.loads((folder / _STAMP).read_text()) == stamp:
                return _unpack(open_arrays(folder, kind="dataset"))
        found = _unpack(open_arrays(folder, kind="dataset", verify=True))
        _write_note(folder / _STAMP, stamp)
        return found
    except (OSError, ValueError, TypeError, KeyError):  # damaged, or being replaced by another process
        return None


def _keep(folder: Path, place: str, built: Dataset | KnowledgeGraph) -> None:
    """Write a set in place of what is damaged or was made of earlier contents; who has that open keeps it."""
    for outdated in folder.parent.glob(f"{place}-*"):
        if re.fullmatch(_FOLDER, outdated.name):
            files.remove(outdated, inside=folder.parent, named=_FOLDER)
    save_arrays(folder, _pack(built), kind="dataset")
    _write_note(folder / _STAMP, _stamp(folder))


def _pack(built: Dataset | KnowledgeGraph) -> dict[str, Tensor | None]:
    """Tensors by name, and all else as JSON in one of them."""
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
        own = {
            name.removeprefix(f"{prefix}__"): arrays.pop(name)
            for name in list(arrays)
            if name.startswith(prefix + "__")
        }
        if own:
            values[prefix] = record(**own)
    return kind(**values, **arrays)

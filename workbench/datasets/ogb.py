"""Node-property data sets of the Open Graph Benchmark: download and raw form; OGB's package describes them.

Its data set classes are not used: they load pickles that torch ≥ 2.6 refuses, and may prompt, delete folders and
download.
"""

import contextlib
import csv
import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import IO, Any

from workbench import files
from workbench.core.errors import CapacityError, DataError, available_bytes
from workbench.core.suggestions import did_you_mean
from workbench.core.units import format_bytes
from workbench.datasets.archive import Npz
from workbench.datasets.catalog import OGB_SETS, check_name, how_to_get, known_sets
from workbench.datasets.file_array import FileArray
from workbench.datasets.raw import RawSet, Split, check_disjoint
from workbench.kernels.csr import index_dtype
from workbench.paths import data_folder

_PARTS = ("train", "valid", "test")

_COPIES_WHILE_READING = 3


def ogb_folder(name: str, root: Path) -> Path | None:
    """Return the folder of an OGB data set below `root`; None if there is none."""
    if name not in OGB_SETS:
        return None
    stem = name.replace("-", "_")
    folders = (root / (stem + suffix) for suffix in ("", "_pyg", "_dgl"))
    return next((folder for folder in folders if (folder / "raw").is_dir()), None)


def ogb_files(folder: Path) -> tuple[Path, ...]:
    """List the files of a folder that are read."""
    return tuple(sorted(path for part in ("raw", "split") for path in (folder / part).rglob("*") if path.is_file()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence OGB's output, and prevent the thread that queries the network for a newer version on first import."""
    absent = object()
    before = sys.modules.get("outdated", absent)
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        if before is absent:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = before  # type: ignore[assignment]


def import_ogb(module: str) -> Any:
    """Import a module of OGB's package."""
    try:
        with _quiet():
            return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}; OGB data sets require the package ogb: pip install 'gnn-workbench[ogb]'"
        ) from error


def ogb_meta(name: str) -> dict[str, str]:
    """Read the metadata of a data set from OGB's package.

    Returns:
        The data set's column of OGB's table.
    """
    if name not in OGB_SETS:
        raise ValueError(f"{name!r} is not one of the supported OGB data sets: {', '.join(OGB_SETS)}")
    import_ogb("ogb")
    table = resources.files("ogb").joinpath("nodeproppred/master.csv").read_text(encoding="utf-8")
    meta = {row[""]: row[name] for row in csv.DictReader(io.StringIO(table))}
    for key in ("download_name", "split", "version"):  # they become parts of paths
        check_name(meta[key])
    return meta


def read_ogb(name: str, folder: Path) -> RawSet:
    """Read and validate a data set; `stored_once` tells whether OGB adds inverse edges.

    The files are read as they are, without OGB's reader, which converts first: it truncates fractions, and ignores rows
    beyond the number of nodes.

    Args:
        folder: its folder, with `raw/`, `split/` and the release file.

    Returns:
        The data set as stored.

    Raises:
        DataError: a file is missing, damaged or invalid.
        CapacityError: the data set exceeds the memory.
        ModuleNotFoundError: OGB's package is not installed.
    """
    meta = ogb_meta(name)
    _check_complete(name, folder, meta)
    try:
        raw, parts = _read_raw(folder, meta)
    except DataError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, RuntimeError, KeyError) as error:
        raise DataError(f"{_damaged(folder)}: {error}; get it again: workbench data get {name}") from error
    nodes, num_edges = (_only_count(raw[key], kind) for key, kind in (("num_nodes", "nodes"), ("num_edges", "edges")))
    if nodes < 1 or num_edges < 1:
        raise DataError(f"{folder / 'raw'}: the graph is empty, with {nodes} nodes and {num_edges} edges")
    edges = raw["edges"].ids((2, num_edges) if _is_binary(meta) else (num_edges, 2), nodes)
    src, dst = (edges if _is_binary(meta) else edges.T).to(index_dtype(nodes)).contiguous()
    is_class = int(meta["num tasks"]) == 1
    classes = int(meta["num classes"] if is_class else meta["num tasks"])
    labels = raw["labels"]
    if is_class and labels.values.ndim == 2 and labels.values.shape[1] != 1:
        labels.fail(f"has shape {list(labels.values.shape)}; {name} has one class per node, [{nodes}, 1]")
    split = Split(*(_column(part).node_ids(nodes) for part in parts))
    check_disjoint(split, [str(part.file.name) for part in parts], parts[0].file.parent)
    return RawSet(
        src,
        dst,
        nodes,
        stored_once=meta["add_inverse_edge"] == "True",
        x=raw["features"].numbers((nodes, None)) if "features" in raw else None,
        y=labels.labels(nodes, classes),
        splits=(split,),
        num_classes=classes if is_class else None,
    )


def _is_binary(meta: dict[str, str]) -> bool:
    return meta["binary"] == "True"


def _only_count(counts: FileArray, kind: str) -> int:
    """The number of nodes or edges of a folder with one graph."""
    values = counts.integers((None,), minimum=0).tolist()
    if len(values) != 1:
        counts.fail(f"has {len(values)} numbers of {kind}; it must have one, because the folder contains one graph")
    return values[0]


def _column(table: FileArray) -> FileArray:
    """The only column of a table of text."""
    if table.values.ndim == 2 and table.values.shape[1] == 1:
        return FileArray(table.file, table.key, table.values[:, 0])
    return table


def _check_complete(name: str, folder: Path, meta: dict[str, str]) -> None:
    """Refuse missing files, and data that exceeds the memory, before reading."""
    raw = ["data.npz", "node-label.npz"]
    if not _is_binary(meta):
        raw = [f"{part}.csv.gz" for part in ("edge", "node-label", "num-node-list", "num-edge-list")]
    expected = [f"RELEASE_v{meta['version']}.txt", *(f"raw/{file}" for file in raw)]
    expected += [f"split/{meta['split']}/{part}.csv.gz" for part in _PARTS]
    missing = [file for file in expected if not (folder / file).is_file()]
    if missing:
        raise DataError(f"{folder} has no {', '.join(missing)}; delete it and get it again: workbench data get {name}")
    required, free = _COPIES_WHILE_READING * _raw_bytes(folder, meta), available_bytes()
    if required > free:
        raise CapacityError(
            f"{name} requires about {format_bytes(required)} of memory to read once, but {format_bytes(free)} are "
            "free; read it on a larger machine and copy the cache folder (WORKBENCH_CACHE)"
        )


def _raw_bytes(folder: Path, meta: dict[str, str]) -> int:
    """Estimate the bytes of the arrays after reading: 8 per id, and per feature in text form."""
    if _is_binary(meta):
        archive = Npz(folder / "raw" / "data.npz")
        for key in archive.keys:
            archive.check_header(key)
        return archive.nbytes
    try:
        counts = (_first_line(folder / "raw" / f"num-{kind}-list.csv.gz") for kind in ("node", "edge"))
        nodes, edges = (int(float(count)) for count in counts)  # whole numbers are required when they are read
        features = folder / "raw" / "node-feat.csv.gz"
        width = _first_line(features).count(",") + 1 if features.is_file() else 0
    except (OSError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise DataError(f"{_damaged(folder)}: {error}") from error
    return 16 * edges + 8 * nodes * width


def _first_line(path: Path) -> str:
    with gzip.open(path, "rt") as file:
        return file.readline()


def _read_raw(folder: Path, meta: dict[str, str]) -> tuple[dict[str, FileArray], list[FileArray]]:
    """Read the arrays by name ("features" if there are any), and the three parts of the split."""
    parts = [_table(folder / "split" / meta["split"] / f"{part}.csv.gz") for part in _PARTS]
    raw = folder / "raw"
    if _is_binary(meta):
        data, label = Npz(raw / "data.npz"), Npz(raw / "node-label.npz")
        keys = {"edges": "edge_index", "num_nodes": "num_nodes_list", "num_edges": "num_edges_list"}
        keys |= {"features": "node_feat"} if "node_feat" in data.keys else {}
        return {name: data.read(key) for name, key in keys.items()} | {"labels": label.read("node_label")}, parts
    stems = {"edges": "edge", "num_nodes": "num-node-list", "num_edges": "num-edge-list", "labels": "node-label"}
    stems |= {"features": "node-feat"} if (raw / "node-feat.csv.gz").is_file() else {}
    tables = {name: _table(raw / f"{stem}.csv.gz") for name, stem in stems.items()}
    return tables | {name: _column(tables[name]) for name in ("num_nodes", "num_edges")}, parts


def _table(path: Path) -> FileArray:
    """Read a table of text."""
    import pandas as pd

    return FileArray(path, path.name.partition(".")[0], pd.read_csv(path, header=None).to_numpy())


def _damaged(folder: Path) -> Path:
    """Find the first compressed file that is not readable to its end; the folder if all are."""
    for path in ogb_files(folder):
        if path.suffix == ".gz":
            try:
                with gzip.open(path) as file:
                    while file.read(1 << 22):
                        pass
            except (OSError, EOFError, zlib.error):
                return path
    return folder


_TIMEOUT_SECONDS = 30.0

_CHUNK = 1 << 20

_BROKEN = (OSError, http.client.HTTPException, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)

_DISK_FACTOR = 4  # upper bound of the disk space needed, relative to the download, including it


def download(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Download an OGB node-property data set and unpack it into the data folder, atomically.

    Args:
        root: data folder; None: WORKBENCH_DATA, or ~/.local/share/workbench if that is not set.

    Returns:
        The data set's folder; an existing one is not changed.

    Raises:
        ValueError: a data set that can't be downloaded.
        ConnectionError: the network or the server is unreachable, or the transfer failed.
        CapacityError: the disk is too small.
        FileExistsError: the target exists but is not an OGB data set.
        ModuleNotFoundError: OGB's package is not installed.
    """
    folder = data_folder(root)
    if check_name(name) not in OGB_SETS:
        raise ValueError(_not_published(name, folder))
    present = ogb_folder(name, folder)
    if present is not None:
        return present
    target = folder / name.replace("-", "_")
    if target.exists():
        raise FileExistsError(f"{target} exists but is not an OGB data set (it has no folder raw); move it away")
    meta = ogb_meta(name)
    url = meta["url"].replace("http://", "https://", 1)
    files.remove_unfinished(folder)
    with files.new_folder(target) as draft, tempfile.TemporaryFile(dir=folder) as packed:
        try:
            note = _fetch(name, url, folder, packed)
            _unpack(packed, meta["download_name"], draft)
        except _BROKEN as error:
            raise ConnectionError(
                f"{name} can't be downloaded from {url}: {getattr(error, 'reason', error)}; run this on a machine "
                f"with network access, and copy {target.name} from there into the data folder"
            ) from error
        files.write_new_file(draft / "download.json", json.dumps(note))
    return target


def _not_published(name: str, folder: Path) -> str:
    """Why a name can't be downloaded, and what to do instead."""
    if name not in known_sets() and (meant := did_you_mean(name, OGB_SETS)):
        return f"data set {name!r} is not known; {meant}"
    return (
        f"{name} can't be downloaded, only {', '.join(OGB_SETS)} can; your data folder is {folder}: {how_to_get(name)}"
    )


def _fetch(name: str, url: str, folder: Path, packed: IO[bytes]) -> dict[str, Any]:
    """Download into an open file; return URL, size and sha256 for `download.json`."""
    checksum = hashlib.sha256()
    with contextlib.closing(urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)) as reply:
        if url.startswith("https:") and not reply.geturl().startswith("https:"):
            raise ConnectionError(f"redirected to {reply.geturl()}, which is not encrypted")
        size = int(reply.headers["Content-Length"] or 0)
        _check_disk(name, size, folder)
        while chunk := reply.read(_CHUNK):
            checksum.update(chunk)
            packed.write(chunk)
    if size and packed.tell() != size:
        raise ConnectionError(f"the transfer ended after {packed.tell():,} of {size:,} bytes")
    return {"url": url, "bytes": packed.tell(), "sha256": checksum.hexdigest()}


def _unpack(packed: IO[bytes], top: str, draft: Path) -> None:
    """Unpack the archive's top folder; zipfile verifies checksums and confines all paths to `draft`."""
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(f"{top}/") and not entry.is_dir():
                entry.filename = entry.filename.removeprefix(f"{top}/")
                archive.extract(entry, draft)
    if not (draft / "raw").is_dir():
        raise ValueError(f"the archive has no folder {top}/raw")


def _check_disk(name: str, size: int, folder: Path) -> None:
    required, free = _DISK_FACTOR * size, shutil.disk_usage(folder).free
    if required > free:
        raise CapacityError(
            f"{name} may require {format_bytes(required)} of disk, but {format_bytes(free)} are free in {folder}; "
            "set WORKBENCH_DATA to a larger disk"
        )

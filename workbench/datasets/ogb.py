"""Node-property data sets of the Open Graph Benchmark in raw form, read by OGB's package.

Only its raw readers are used, not its data set classes, which load pickles that torch ≥ 2.6 refuses, and may prompt,
delete folders and download.
"""

import contextlib
import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.capacity import available_bytes
from workbench.core.errors import CapacityError, DataError
from workbench.core.units import format_bytes
from workbench.datasets.known import OGB_SETS
from workbench.datasets.names import check_name
from workbench.datasets.npz import Npz
from workbench.datasets.raw import RawSet, Split

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
    """Import a module of OGB's package.

    Args:
        module: its full name.

    Returns:
        The module.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        with _quiet():
            return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}; OGB data sets require the package ogb: pip install 'gnn-workbench[ogb]'"
        ) from error


def ogb_meta(name: str) -> dict[str, str]:
    """Read the metadata of a data set from OGB's package.

    Args:
        name: one of `OGB_SETS`.

    Returns:
        The data set's column of OGB's table.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: not one of `OGB_SETS`.
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

    Args:
        name: one of `OGB_SETS`.
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
        graph, labels, parts = _read_raw(folder, meta)
    except (OSError, EOFError, zlib.error, ValueError, RuntimeError, KeyError) as error:
        raise DataError(f"{_damaged(folder)}: {error}; get it again: workbench data get {name}") from error
    nodes = int(graph["num_nodes"])
    edges = graph["edge_index"]
    if nodes < 1 or not edges.size:
        raise DataError(f"{folder / 'raw'}: the graph is empty, with {nodes} nodes and {edges.shape[1]} edges")
    if edges.min() < 0 or edges.max() >= nodes:
        invalid = edges.min() if edges.min() < 0 else edges.max()
        raise DataError(f"{folder / 'raw'}: the edges contain {invalid}; ids must be in [0, {nodes})")
    src, dst = _tensor(edges, np.int32 if nodes < 2**31 else np.int64)
    one_label = int(meta["num tasks"]) == 1
    return RawSet(
        src,
        dst,
        nodes,
        stored_once=meta["add_inverse_edge"] == "True",
        x=None if graph["node_feat"] is None else _tensor(graph["node_feat"], np.float32),
        y=_labels(labels, one_label, folder),
        splits=(Split(*(_integers(ids, "ids of the split", folder) for ids in parts)),),
        num_classes=int(meta["num classes"]) if one_label else None,
    )


def _check_complete(name: str, folder: Path, meta: dict[str, str]) -> None:
    """Refuse missing files, and data that exceeds the memory, before reading."""
    raw = ["data.npz", "node-label.npz"]
    if meta["binary"] != "True":
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
    if meta["binary"] == "True":
        archive = Npz(folder / "raw" / "data.npz")
        for key in archive.keys:
            archive.check_header(key)
        return archive.nbytes
    try:
        nodes, edges = (int(_first_line(folder / "raw" / f"num-{kind}-list.csv.gz")) for kind in ("node", "edge"))
        features = folder / "raw" / "node-feat.csv.gz"
        width = _first_line(features).count(",") + 1 if features.is_file() else 0
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{_damaged(folder)}: {error}") from error
    return 16 * edges + 8 * nodes * width


def _first_line(path: Path) -> str:
    with gzip.open(path, "rt") as file:
        return file.readline()


def _read_raw(folder: Path, meta: dict[str, str]) -> tuple[dict[str, Any], np.ndarray, list[np.ndarray]]:
    """Read the graph, the labels and the three parts of the split."""
    import pandas as pd

    def table(path: Path) -> np.ndarray:
        return pd.read_csv(path, header=None).to_numpy()

    reader = import_ogb("ogb.io.read_graph_raw")
    raw, binary = str(folder / "raw"), meta["binary"] == "True"
    with _quiet():
        graph = (reader.read_binary_graph_raw if binary else reader.read_csv_graph_raw)(raw)[0]
    if binary:
        labels = Npz(folder / "raw" / "node-label.npz").array("node_label")
    else:
        labels = table(folder / "raw" / "node-label.csv.gz")
    return graph, labels, [table(folder / "split" / meta["split"] / f"{part}.csv.gz").reshape(-1) for part in _PARTS]


def _tensor(values: np.ndarray, dtype: Any) -> Tensor:
    """Convert without a copy if possible; pandas returns read-only arrays, which are copied."""
    return torch.from_numpy(np.require(values, dtype, ("C", "W")))


def _integers(values: np.ndarray, what: str, folder: Path) -> Tensor:
    """Convert to int64; refuse fractions instead of truncating them."""
    numbers = _tensor(values, np.int64)
    if values.dtype.kind not in "iu" and not np.array_equal(numbers.numpy(), values):
        raise DataError(f"{folder}: {what} are {values.dtype} with fractions; they must be integers")
    return numbers


def _labels(labels: np.ndarray, one_label: bool, folder: Path) -> Tensor:
    """Convert labels: class ids, with -1 for OGB's NaN, or several labels as floats."""
    if not one_label:
        return _tensor(labels, np.float32)
    flat = labels.reshape(-1)
    return _integers(np.where(np.isnan(flat), -1, flat), "labels", folder)


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

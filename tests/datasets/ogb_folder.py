"""Writes tiny data sets in OGB's raw form."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# not importorskip: the import would start a thread that queries the network for a newer version
needs_ogb = pytest.mark.skipif(find_spec("ogb") is None, reason="ogb is missing: pip install 'gnn-workbench[ogb]'")
EDGES = np.array([[0, 1, 2, 3, 3], [1, 2, 0, 4, 5]])
FEATURES = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
LABELS = [0, 1, 2, 39, 4, 5]
SPLIT = {"train": [0, 3], "valid": [1, 2], "test": [5]}


def write_csv(path: Path, values: Any) -> None:
    rows = np.asarray(values).reshape(len(values), -1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(f"{v:.9g}" for v in row) + "\n" for row in rows.tolist())


def write_set(root: Path, name: str, split: str, labels: Any, features: np.ndarray | None = FEATURES) -> Path:
    """Write a data set of 6 nodes and 5 edges as text files."""
    folder = root / name.replace("-", "_")
    tables = {"edge": EDGES.T, "node-label": labels, "num-node-list": [6], "num-edge-list": [5]}
    for file, values in (tables | ({} if features is None else {"node-feat": features})).items():
        write_csv(folder / "raw" / f"{file}.csv.gz", values)
    _write_split(folder, split)
    return folder


def write_binary_set(root: Path) -> Path:
    """Write the same graph in the binary form of OGB's largest data set."""
    folder = root / "ogbn_papers100M"
    (folder / "raw").mkdir(parents=True)
    arrays = {"edge_index": EDGES, "num_nodes_list": np.array([6]), "num_edges_list": np.array([5])}
    np.savez(folder / "raw" / "data.npz", allow_pickle=False, node_feat=FEATURES, **arrays)
    labels = np.array([[0], [np.nan], [171], [2], [np.nan], [1]], np.float32)
    np.savez(folder / "raw" / "node-label.npz", node_label=labels)
    _write_split(folder, "time")
    return folder


def _write_split(folder: Path, split: str) -> None:
    for part, ids in SPLIT.items():
        write_csv(folder / "split" / split / f"{part}.csv.gz", ids)
    (folder / "RELEASE_v1.txt").touch()
    (folder / "processed").mkdir(exist_ok=True)

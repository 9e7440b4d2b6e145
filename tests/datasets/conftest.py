"""A data folder and a cache per test, and tiny archives to write there."""

import builtins
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the data folder, and a cache next to it."""
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Write an archive of 6 nodes and 6 edges; arguments replace its arrays, None omits one."""

    def write_archive(name: str = "tiny", **change: Any) -> Path:
        arrays = {
            "edge_index": np.array([[0, 1, 2, 3, 4, 4], [1, 0, 3, 2, 4, 5]], np.int32),
            "num_nodes": np.int64(6),
            "x": np.arange(12, dtype=np.float32).reshape(6, 2),
            "y": np.array([0, 1, 0, 1, -1, 2]),
            "train_idx": np.array([0, 1]),
            "val_idx": np.array([2]),
            "test_idx": np.array([5, 3]),
        } | change
        path = folder / f"{name}.npz"
        np.savez_compressed(path, **{key: value for key, value in arrays.items() if value is not None})
        return path

    return write_archive


@pytest.fixture
def write_triples(folder: Path) -> Callable[..., Path]:
    """Write a knowledge graph of 4 entities and 2 relations; arguments replace its arrays, None omits one."""

    def write_archive(name: str = "facts", **change: Any) -> Path:
        arrays = {
            "train": np.array([[0, 0, 1], [1, 1, 2], [0, 0, 2]], np.int32),
            "valid": np.array([[0, 0, 3]], np.int32),
            "test": np.array([[3, 1, 2]], np.int32),
            "num_entities": np.int64(4),
            "num_relations": np.int64(2),
            "entity_names": np.array([b"a", b"b", b"c", b"d"]),
        } | change
        path = folder / f"{name}.npz"
        np.savez_compressed(path, **{key: value for key, value in arrays.items() if value is not None})
        return path

    return write_archive


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on any connection, and on any question at the terminal."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("opened a connection, or prompted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(builtins, "input", refuse)

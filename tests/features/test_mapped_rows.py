"""Rows on disk: written in bounded memory, atomically (kills are tested in test_array_store.py); damage is refused."""

import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from workbench.core.array_store import save_arrays
from workbench.core.errors import CorruptFileError
from workbench.core.machine import Traffic
from workbench.features.memory_rows import MappedRows

X = torch.arange(12.0).view(6, 2)


def test_at_most_two_pieces_are_in_memory(tmp_path: Path) -> None:
    alive: list[weakref.ref] = []

    def pieces() -> Iterator[Tensor]:
        for start in range(10):
            assert sum(ref() is not None for ref in alive) <= 2
            piece = torch.full((5, 3), float(start))
            alive.append(weakref.ref(piece.untyped_storage()))
            yield piece
            del piece

    store = MappedRows.create(tmp_path / "rows", pieces())
    assert torch.equal(store.read(torch.arange(50))[:, 1], torch.arange(10.0).repeat_interleave(5))


def test_an_error_in_the_rows_leaves_what_was_there(tmp_path: Path) -> None:
    def fails() -> Iterator[Tensor]:
        yield X
        raise KeyError("no more")

    for _ in range(2):
        with pytest.raises(KeyError, match="no more"):
            MappedRows.create(tmp_path / "rows", fails(), overwrite=True)
        present = [path.name for path in tmp_path.iterdir()]
        if not present:
            MappedRows.create(tmp_path / "rows", X)
    assert present == ["rows"] and len(MappedRows(tmp_path / "rows", verify=True)) == 6


def test_existing_rows_are_kept_without_overwrite(tmp_path: Path) -> None:
    MappedRows.create(tmp_path / "rows", X)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        MappedRows.create(tmp_path / "rows", X[:1])
    assert len(MappedRows(tmp_path / "rows")) == 6


def test_folders_without_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; save the rows first"):
        MappedRows(tmp_path / "rows")
    save_arrays(tmp_path / "other", {"values": X}, kind="rows")
    with pytest.raises(CorruptFileError, match=r"other does not contain an array of rows; write it with MappedRows\."):
        MappedRows(tmp_path / "other")
    with pytest.raises(ValueError, match="rows is a single number"):
        MappedRows.create(tmp_path / "rows", torch.tensor(1.0))


def test_damage_is_refused(tmp_path: Path) -> None:
    MappedRows.create(tmp_path / "rows", X)
    header = tmp_path / "rows" / "header.json"
    content = json.loads(header.read_text())
    content["arrays"]["rows"]["shape"] = [3, 4]
    header.write_text(json.dumps(content))
    with pytest.raises(CorruptFileError, match="was modified"):
        MappedRows(tmp_path / "rows")


def test_rows_count_as_read_from_disk(tmp_path: Path) -> None:
    links = Traffic()
    MappedRows.create(tmp_path / "rows", X)
    MappedRows(tmp_path / "rows", traffic=links).read(torch.tensor([1, 1, 5]))
    assert links.row() == {"disk_rows": 3, "disk_rows_bytes": 3 * 8}

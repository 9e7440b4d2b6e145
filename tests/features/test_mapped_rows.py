"""Rows on disk: written in bounded memory, atomically (kills are tested in test_array_store.py); damage is refused."""

import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from workbench.core.array_store import save_arrays
from workbench.core.errors import CorruptFileError
from workbench.core.machine import Traffic
from workbench.features.memory_rows import MappedRows, split_rows

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
    with pytest.raises(ValueError, match="rows is a single number"):
        MappedRows.create(tmp_path / "rows", iter([torch.tensor(1.0)]))
    assert os.listdir(tmp_path) == ["other"]


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


OWNER = torch.tensor([0, 1, 2, 0, 1, 2])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("overwrite", "part"), [(False, 1), (True, 7), (False, 7), (True, 1)])
def test_rows_are_split_into_all_folders_or_none(tmp_path: Path, part: int, overwrite: bool) -> None:
    """A folder that is in the way is noticed before any other is written, one of a part that there is not, too."""
    mine = tmp_path / f"part-{part}" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("keep")
    message = rf"part-{part} has no header\.json, so it is not of rows alone" if overwrite else "overwrite=True"
    with pytest.raises(FileExistsError, match=message):
        split_rows(X, OWNER, tmp_path, overwrite=overwrite)
    assert os.listdir(tmp_path) == [f"part-{part}"] and mine.read_text() == "keep"


def test_fewer_parts_leave_none_of_an_earlier_split(tmp_path: Path) -> None:
    split_rows(X, OWNER, tmp_path, num_parts=12)
    (tmp_path / "part-02").mkdir()  # no name of a part
    (tmp_path / "part-5x").touch()
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        split_rows(X, OWNER % 2, tmp_path)
    assert contents(tmp_path) == before
    folders = split_rows(X, OWNER % 2, tmp_path, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["part-0", "part-02", "part-1", "part-5x"]
    assert [len(MappedRows(folder, verify=True)) for folder in folders] == [4, 2]


@pytest.mark.parametrize("part", [1, 9])
def test_what_a_split_did_not_write_is_kept(tmp_path: Path, part: int) -> None:
    split_rows(X, OWNER, tmp_path, num_parts=10)
    (tmp_path / f"part-{part}" / "notes.txt").write_text("keep")
    for problem in (r"also has notes\.txt", r"has a header\.json that describes no rows but 'graph'"):
        before = contents(tmp_path)
        with pytest.raises(FileExistsError, match=f"part-{part} {problem}, so it is not of rows alone"):
            split_rows(X, OWNER % 2, tmp_path, overwrite=True)
        assert contents(tmp_path) == before
        (tmp_path / f"part-{part}" / "notes.txt").unlink(missing_ok=True)
        save_arrays(tmp_path / "graph", {"rows": X}, kind="graph", overwrite=True)
        for path in (tmp_path / "graph").iterdir():
            (tmp_path / f"part-{part}" / path.name).write_bytes(path.read_bytes())


def test_bad_splits(tmp_path: Path) -> None:
    class ReadOnly:
        def read(self, ids: Tensor) -> Tensor:
            return X[ids]

    with pytest.raises(TypeError, match=r"owner .* not torch.float32; convert it with .to\(torch.int64\)"):
        split_rows(X, OWNER.float(), tmp_path)
    with pytest.raises(TypeError, match="x is a ReadOnly without row_shape, dtype, device, __len__"):
        split_rows(ReadOnly(), OWNER, tmp_path)
    assert not os.listdir(tmp_path)

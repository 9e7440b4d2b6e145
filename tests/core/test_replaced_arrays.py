"""Folders of arrays that are replaced while they are opened, or opened by another path: never a mixture of two."""

import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench import files
from workbench.core import array_store
from workbench.core.array_store import open_arrays, save_arrays


def save(folder: Path, value: int, **options: bool) -> None:
    """Arrays of one size, of which each tells which call wrote it."""
    save_arrays(folder, {name: torch.full((100,), value) for name in "abc"}, kind="test", **options)


def values(folder: Path) -> set[int]:
    return {int(v) for array in open_arrays(folder, kind="test").values() for v in array.unique()}


@pytest.mark.parametrize("at", range(4))
def test_a_folder_that_is_replaced_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    save(tmp_path / "x", 1)
    real, calls = array_store._open_file, []

    def open_file(path: Path, descriptor: int) -> object:
        calls.append(path)
        if len(calls) == at + 1:
            save(tmp_path / "x", 2, overwrite=True)
        return real(path, descriptor)

    monkeypatch.setattr(array_store, "_open_file", open_file)
    assert len(values(tmp_path / "x")) == 1
    monkeypatch.undo()
    assert values(tmp_path / "x") == {2}


def test_opened_while_a_thread_replaces_it(tmp_path: Path) -> None:
    save(tmp_path / "x", 0)
    stop = threading.Event()

    def replace() -> None:
        number = 1
        while not stop.is_set():
            save(tmp_path / "x", number, overwrite=True)
            number += 1

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(100):
            assert len(values(tmp_path / "x")) == 1
    finally:
        stop.set()
        thread.join()


def test_what_is_open_keeps_its_values(tmp_path: Path) -> None:
    graph = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), num_nodes=3)
    graph.save(tmp_path / "g")
    opened = wb.Graph.open(tmp_path / "g")
    wb.Graph.from_edges(torch.tensor([2, 2, 2]), torch.tensor([0, 1, 2]), num_nodes=3).save(
        tmp_path / "g", overwrite=True
    )
    assert torch.equal(opened.indices, graph.indices) and torch.equal(opened.indptr, graph.indptr)
    opened.save(tmp_path / "g", overwrite=True)  # onto the folder that it was opened from
    assert torch.equal(wb.Graph.open(tmp_path / "g").indices, graph.indices)


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def pieces():
        yield torch.zeros(2, 2)
        wb.MappedRows.create(tmp_path / "x", torch.ones(2, 2))

    with pytest.raises(FileExistsError, match="was created by another process in the meantime"):
        wb.MappedRows.create(tmp_path / "x", pieces())
    assert torch.equal(wb.MappedRows(tmp_path / "x").read(torch.arange(2)), torch.ones(2, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_link_is_written_where_it_leads(tmp_path: Path) -> None:
    save(tmp_path / "x", 1)
    (tmp_path / "link").symlink_to(tmp_path / "x")
    save(tmp_path / "link", 2, overwrite=True)
    assert (tmp_path / "link").is_symlink() and values(tmp_path / "x") == {2}


def test_disk_rows_of_another_process_are_the_same_rows(tmp_path: Path) -> None:
    """A spawned worker opens the folder again, by its path."""
    wb.MappedRows.create(tmp_path / "x", torch.zeros(4, 3))
    pickled = pickle.dumps(wb.DiskRows(tmp_path / "x", direct=False))
    assert not pickle.loads(pickled).read(torch.arange(4)).any()
    wb.MappedRows.create(tmp_path / "x", torch.ones(4, 3), overwrite=True)
    with pytest.raises(ValueError, match="was written again since these DiskRows were opened"):
        pickle.loads(pickled)


def test_disk_rows_that_are_replaced_while_they_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same number of bytes, but another shape."""
    wb.MappedRows.create(tmp_path / "x", torch.zeros(4, 3))
    real = array_store.array_path

    def replaced(folder: Path, name: str) -> Path:
        monkeypatch.undo()
        wb.MappedRows.create(tmp_path / "x", torch.ones(3, 4), overwrite=True)
        return real(folder, name)

    monkeypatch.setattr("workbench.features.disk_rows.array_path", replaced)
    with pytest.raises(ValueError, match="was replaced while it was being opened; open it again"):
        wb.DiskRows(tmp_path / "x", direct=False)


def test_a_divided_graph_is_of_one_division(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = wb.Graph.from_edges(torch.arange(6), torch.arange(6).roll(1), num_nodes=6)
    owner = torch.tensor([0, 0, 0, 1, 1, 1])
    wb.partition.split_graph(graph, owner, tmp_path / "x")
    real = wb.Graph.open

    def opened(*arguments: Any, **options: bool) -> wb.Graph:
        wb.partition.split_graph(graph, owner.flip(0), tmp_path / "x", overwrite=True)
        return real(*arguments, **options)

    monkeypatch.setattr(wb.Graph, "open", opened)
    with pytest.raises(ValueError, match="was divided again while it was being opened"):
        wb.partition.open_part(tmp_path / "x", 0)


def test_a_restored_folder_is_one_that_nobody_replaces(tmp_path: Path) -> None:
    """A reader that comes between the two renames of a replacement waits for the second."""
    save(tmp_path / "x", 1)
    with files.new_folder(tmp_path / "x") as draft:
        shutil.copytree(tmp_path / "x", draft, dirs_exist_ok=True)
        aside = draft.with_suffix(".old")
        (tmp_path / "x").rename(aside)
        timer = threading.Timer(0.02, aside.rename, (tmp_path / "x",))
        timer.start()
        assert not files.restore(tmp_path / "x")
        assert values(tmp_path / "x") == {1}
        timer.join()

"""Deletion, with other processes at it too."""

import os

import pytest

from tests.files.racing import DRAFT, content, folder_of, names
from workbench import files
from workbench.files import removal


@pytest.mark.parametrize("path", ["..", ".", "a/b", "../outside", "owned", "other.txt", "a.nbi\n", "/"])
def test_remove_rejects_other_paths(tmp_path, path):
    owned, outside = tmp_path / "owned", tmp_path / "outside"
    for folder in (owned, outside, owned / "a"):
        folder.mkdir()
    for file in (outside / "b.nbi", owned / "other.txt", owned / "a" / "b"):
        file.touch()
    with pytest.raises(ValueError, match="is not deleted: it must be a child of"):
        files.remove(owned / path, inside=owned, named=r"[a-z]+\.nbi")
    assert names(tmp_path) == ["outside", "owned"] and names(owned) == ["a", "other.txt"]
    assert names(outside) == ["b.nbi"]


def test_remove_deletes_links_but_not_their_targets(tmp_path):
    outside = folder_of(tmp_path / "outside", "kept")
    folder_of(tmp_path / "folder", "gone")
    (tmp_path / "folder" / "link").symlink_to(outside)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(outside)
    for name in ("folder", "file", "link", "absent"):
        files.remove(tmp_path / name, inside=tmp_path, named="[a-z]+")
    assert names(tmp_path) == ["outside"] and content(outside) == ["kept", "kept"]


def test_concurrent_removal(tmp_path, monkeypatch):
    target, before = folder_of(tmp_path / "target", "x"), removal.shutil.rmtree

    def rmtree(path):
        monkeypatch.setattr(removal.shutil, "rmtree", before)
        (path / "a").unlink()
        raise FileNotFoundError(path / "a")

    monkeypatch.setattr(removal.shutil, "rmtree", rmtree)
    files.remove(target, inside=tmp_path, named="target")
    assert names(tmp_path) == []


def test_other_names_are_kept(tmp_path):
    others = [
        ".graph.new",
        "graph.old",
        f"graph.{'0' * 32}.new",
        f".graph.{'0' * 31}.new",
        ".git",
        f".graph.{'g' * 32}.new",
    ]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / DRAFT).symlink_to(folder_of(tmp_path / "elsewhere", "kept"))
    os.mkfifo(tmp_path / f".pipe.{'0' * 32}.new")
    files.remove_unfinished(tmp_path)
    assert set(others) < set(names(tmp_path)) and content(tmp_path / "elsewhere") == ["kept", "kept"]
    assert files.remove_unfinished(tmp_path / "missing") == 0

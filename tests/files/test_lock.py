"""Locks between processes, and their release by a kill."""

import fcntl

import pytest

from tests.files.racing import DRAFT, content, in_another_process, names, replace_folder
from workbench import files
from workbench.files import atomic, lock as lock_module


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_draft_deleted_before_it_was_locked_is_recreated(tmp_path, monkeypatch, kind):
    before, calls = atomic.lock_descriptor, []

    def delete_then_lock(descriptor, wait):
        if not calls:
            calls.append(files.remove_unfinished)
            monkeypatch.setattr(atomic, "lock_descriptor", before)
            assert files.remove_unfinished(tmp_path) == 1
        return before(descriptor, wait)

    monkeypatch.setattr(atomic, "lock_descriptor", delete_then_lock)
    if kind == "file":
        files.write_file(tmp_path / "target", "new")
        assert (tmp_path / "target").read_text() == "new"
    else:
        replace_folder(tmp_path / "target", "new")
        assert content(tmp_path / "target") == ["new", "new"]
    assert calls and names(tmp_path) == ["target"]


def test_file_system_without_locks(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    replace_folder(tmp_path / "graph", "new")
    files.write_file(tmp_path / "file", "new")
    (tmp_path / DRAFT).mkdir()
    assert files.remove_unfinished(tmp_path) == 0
    assert names(tmp_path) == [DRAFT, "file", "graph"]


HOLD = "from pathlib import Path; from workbench import files\nlock = files.locked(Path(sys.argv[1]))\nlock.__enter__()"


def test_lock_is_exclusive_and_released_by_a_kill(tmp_path):
    lock = tmp_path / "locks" / "key"
    with in_another_process(HOLD, lock) as process:
        with files.locked(lock, wait=False) as held:
            assert not held
        assert lock.exists()
        process.kill()
    with files.locked(lock) as held, files.locked(lock, wait=False) as again:
        assert held and not again
    assert names(tmp_path / "locks") == []


def test_lock_file_deleted_before_locking_is_recreated(tmp_path, monkeypatch):
    lock, before = tmp_path / "key", lock_module.lock_descriptor

    def delete_then_lock(descriptor, wait):
        monkeypatch.setattr(lock_module, "lock_descriptor", before)
        lock.unlink()
        return before(descriptor, wait)

    monkeypatch.setattr(lock_module, "lock_descriptor", delete_then_lock)
    with files.locked(lock) as held, files.locked(lock, wait=False) as again:
        assert held and not again and lock.exists()


def test_error_under_a_lock_releases_it(tmp_path):
    with pytest.raises(KeyError), files.locked(tmp_path / "key"):
        raise KeyError("x")
    with files.locked(tmp_path / "key", wait=False) as held:
        assert held

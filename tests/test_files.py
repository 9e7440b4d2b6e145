"""Deletion, atomic replacement and locks under kills, full disks and concurrent processes."""

import fcntl
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.killed import killed_at_each_operation
from tests.racing import DRAFT, content, folder_of, in_another_process, names, replace_folder
from workbench import files
from workbench.experiment import point_child
from workbench.files import FileStamp

REPLACED = f".graph.{'0' * 32}.old"


def test_digest_depends_on_the_values():
    assert files.digest("../x", 1) == hashlib.sha256(b'["../x", 1]').hexdigest()[:16]
    assert files.digest({"b": 1, "a": 2}) == files.digest({"a": 2, "b": 1}) != files.digest({"a": 1, "b": 2})


@pytest.mark.parametrize("text", ["", "café", b"\0\xff", [b"one", memoryview(b"two")]])
def test_write_file_writes_the_content_and_returns_its_checksum(tmp_path, text):
    expected = text.encode() if isinstance(text, str) else text if isinstance(text, bytes) else b"".join(text)
    for _ in range(2):
        checksum = files.write_file(tmp_path / "new" / "file", text)
        assert checksum == hashlib.sha256(expected).hexdigest()
        assert (tmp_path / "new" / "file").read_bytes() == expected and names(tmp_path / "new") == ["file"]


def test_write_file_uses_default_permissions(tmp_path):
    (tmp_path / "usual").touch()
    files.write_file(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_failed_write_keeps_the_old_file(tmp_path):
    def pieces():
        yield b"half"
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="No space left"):
        files.write_file(tmp_path / "file", pieces())
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def fail_while_filling_folder(target: Path, error: BaseException) -> None:
    with files.new_folder(target) as draft:
        (draft / "a").write_text("new")
        raise error


def test_failed_folder_keeps_the_old_one(tmp_path):
    folder_of(tmp_path / "graph", "old")
    for error in (OSError("No space left"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail_while_filling_folder(tmp_path / "graph", error)
        assert names(tmp_path) == ["graph"] and content(tmp_path / "graph") == ["old", "old"]


def test_failed_second_rename_restores_the_old_folder(tmp_path):
    folder_of(tmp_path / "graph", "old")
    with pytest.raises(FileNotFoundError), files.new_folder(tmp_path / "graph") as draft:
        draft.rmdir()
    assert names(tmp_path) == ["graph"] and content(tmp_path / "graph") == ["old", "old"]


@pytest.mark.slow
@pytest.mark.parametrize("existing", [False, True])
def test_killed_while_a_folder_is_replaced(tmp_path, existing):
    target, moments, restored = tmp_path / "graph", 0, 0
    if existing:
        folder_of(target, "0")
    for moment in killed_at_each_operation(lambda: replace_folder(target, "new"), tmp_path):
        restored += files.restore(target)
        found = content(target) if target.exists() else None
        assert found in ([["0", "0"], ["new", "new"]] if existing else [None, ["new", "new"]]), moment
        files.remove_unfinished(tmp_path)
        assert names(tmp_path) == (["graph"] if found else []) and (found is None or content(target) == found)
        moments += 1
        if found:
            files.remove(target, inside=tmp_path, named="graph")
        if existing:
            folder_of(target, "0")
    assert moments >= 5 and restored == existing and content(target) == ["new", "new"]


def test_killed_while_a_file_is_replaced(tmp_path):
    file, moments = tmp_path / "file", 0
    file.write_text("old")
    for _ in killed_at_each_operation(lambda: files.write_file(file, "new"), tmp_path):
        assert file.read_text() in ("old", "new")
        files.remove_unfinished(tmp_path)
        assert names(tmp_path) == ["file"]
        moments += 1
    assert moments >= 3 and file.read_text() == "new"


def test_the_only_copy_is_restored_and_an_outdated_one_deleted(tmp_path):
    folder_of(tmp_path / REPLACED, "only copy")
    assert files.remove_unfinished(tmp_path) == 0
    assert names(tmp_path) == ["graph"] and content(tmp_path / "graph") == ["only copy", "only copy"]
    folder_of(tmp_path / REPLACED, "outdated")
    assert not files.restore(tmp_path / "graph")
    assert files.remove_unfinished(tmp_path) == 1
    assert names(tmp_path) == ["graph"] and content(tmp_path / "graph") == ["only copy", "only copy"]


def test_the_only_copy_is_kept_if_it_can_not_be_restored(tmp_path, monkeypatch):
    folder_of(tmp_path / REPLACED, "only copy")

    def refuse(*args):
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "rename", refuse)
    assert files.remove_unfinished(tmp_path) == 0
    assert names(tmp_path) == [REPLACED] and content(tmp_path / REPLACED) == ["only copy", "only copy"]


def test_drafts_of_running_processes_are_kept(tmp_path):
    code = "from pathlib import Path; from workbench import files\ndraft = files.new_folder(Path(sys.argv[1]))"
    with in_another_process(f"{code}\ndraft.__enter__()", tmp_path / "graph") as process:
        (living,) = names(tmp_path)
        folder_of(tmp_path / living.replace(".new", ".old"), "moved aside a moment ago")
        before = names(tmp_path)
        assert files.remove_unfinished(tmp_path) == 0 and not files.restore(tmp_path / "graph")
        assert names(tmp_path) == before
        process.kill()
    assert files.remove_unfinished(tmp_path) == 1 and names(tmp_path) == ["graph"]


def test_concurrent_writers_and_cleanup(tmp_path):
    code = "from pathlib import Path; from workbench import files; import threading; stop = threading.Event()"
    sweep = "while not stop.is_set(): files.remove_unfinished(Path(sys.argv[1]))"
    start = f"threading.Thread(target=exec, args=({sweep!r}, globals())).start()"
    with in_another_process(f"{code}\n{start}", tmp_path, after="stop.set()"):
        for count in range(60):
            replace_folder(tmp_path / "graph", str(count))
            files.write_file(tmp_path / "file", str(count))
            assert content(tmp_path / "graph") == [str(count)] * 2
            assert (tmp_path / "file").read_text() == str(count)
    assert names(tmp_path) == ["file", "graph"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_draft_deleted_before_it_was_locked_is_recreated(tmp_path, monkeypatch, kind):
    before, calls = files.lock_descriptor, []

    def delete_then_lock(descriptor, wait):
        if not calls:
            calls.append(files.remove_unfinished)
            monkeypatch.setattr(files, "lock_descriptor", before)
            assert files.remove_unfinished(tmp_path) == 1
        return before(descriptor, wait)

    monkeypatch.setattr(files, "lock_descriptor", delete_then_lock)
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
    lock, before = tmp_path / "key", files.lock_descriptor

    def delete_then_lock(descriptor, wait):
        monkeypatch.setattr(files, "lock_descriptor", before)
        lock.unlink()
        return before(descriptor, wait)

    monkeypatch.setattr(files, "lock_descriptor", delete_then_lock)
    with files.locked(lock) as held, files.locked(lock, wait=False) as again:
        assert held and not again and lock.exists()


def test_error_under_a_lock_releases_it(tmp_path):
    with pytest.raises(KeyError), files.locked(tmp_path / "key"):
        raise KeyError("x")
    with files.locked(tmp_path / "key", wait=False) as held:
        assert held


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
    target, before = folder_of(tmp_path / "target", "x"), files.shutil.rmtree

    def rmtree(path):
        monkeypatch.setattr(files.shutil, "rmtree", before)
        (path / "a").unlink()
        raise FileNotFoundError(path / "a")

    monkeypatch.setattr(files.shutil, "rmtree", rmtree)
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


def rewrite(file: Path) -> None:
    file.write_bytes(b"two")


def copy_over(file: Path) -> None:
    """As `cp -p`: the modification time is that of the copied file."""
    rewrite(other := file.with_name("other"))
    os.utime(other, ns=(10**18, 10**18))
    shutil.copy2(other, file)


def rename_over(file: Path) -> None:
    rewrite(other := file.with_name("other"))
    os.utime(other, ns=(10**18, 10**18))
    other.replace(file)


@pytest.mark.parametrize("replace", [rewrite, copy_over, rename_over])
def test_a_replaced_file_has_another_stamp(tmp_path: Path, replace) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    os.utime(file, ns=(10**18, 10**18))
    before = FileStamp.of(file)
    assert FileStamp.of(file) == before
    time.sleep(0.02)  # the clock of a file system has steps of some milliseconds
    replace(file)
    after = FileStamp.of(file)
    assert after != before and after.size == before.size
    assert not after.is_settled and after.changed_seconds > 1.7e9


def test_code_that_is_copied_with_its_time_counts_as_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.paths.experiments_folder", lambda: tmp_path)
    now = time.time() + 3600  # later than any change of the library's own files
    assert not point_child._edited_since(now)
    (tmp_path / "fig.py").write_text("x = 1")
    os.utime(tmp_path / "fig.py", ns=(10**18, 10**18))
    changed = FileStamp.of(tmp_path / "fig.py").changed_seconds
    assert changed > 1.7e9 > (tmp_path / "fig.py").stat().st_mtime
    assert point_child._edited_since(changed)

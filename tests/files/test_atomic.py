"""Deletion, atomic replacement and locks under kills, full disks and concurrent processes."""

import hashlib
from pathlib import Path

import pytest

from tests.files.racing import content, folder_of, in_another_process, names, replace_folder
from tests.killed import killed_at_each_operation
from workbench import files

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

"""Stamps differ whenever the contents may, whatever times a program sets."""

import os
import shutil
import time
from pathlib import Path

import pytest

from workbench.experiment import point_child
from workbench.files import FileStamp


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

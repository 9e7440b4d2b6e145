"""Runs in a file: lines truncated by a kill, damage, and concurrent writers."""

import json
from pathlib import Path

import pytest

from tests.tracking.points import ended, start_python
from workbench.core.errors import CorruptFileError
from workbench.tracking.file_store import FileStore


def keys(file: Path) -> list[str]:
    return [run.point.key for run in FileStore(file).runs()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of two runs."""
    store = FileStore(tmp_path / "runs.jsonl")
    store.add(ended("a", {"name": "ä"}, started_at=1.0))
    store.add(ended("b", {"x": 2}, started_at=2.0))
    return tmp_path / "runs.jsonl"


def test_a_line_is_a_run(file: Path) -> None:
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["schema"], first["point"]["key"], first["rows"]) == (1, "a", [{"name": "ä"}])
    assert second["point"]["config"]["fanouts"] == [10, 25]


def test_a_truncated_last_line_loses_and_duplicates_no_other_run(file: Path) -> None:
    whole = file.read_bytes()
    start = whole.index(b"\n") + 1
    for end in range(start, len(whole) + 1):
        file.write_bytes(whole[:end])
        complete = end >= len(whole) - 1  # only the end of the line may be missing
        assert keys(file) == (["a", "b"] if complete else ["a"])
        assert FileStore(file).add(ended("b", {"x": 2}, started_at=2.0)) is not complete
        assert keys(file) == ["a", "b"]
        assert all(json.loads(line) for line in file.read_text().splitlines())


def test_a_complete_line_without_newline_is_kept_by_the_next_writer(file: Path) -> None:
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    FileStore(file).add(ended("c", started_at=3.0))
    assert keys(file) == ["a", "b", "c"]


@pytest.mark.parametrize("bad", ['{"schema": 1', "[]", '{"schema": 2}', '{"schema": 1, "run_id": "x"}', "null"])
def test_other_damage_is_reported(file: Path, bad: str) -> None:
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{bad}\n{second}\n")
    with pytest.raises(CorruptFileError, match=r"runs\.jsonl, line 2 is not a valid run"):
        FileStore(file).runs()
    with pytest.raises(CorruptFileError):
        FileStore(file).check()


def test_only_started_runs_can_end(file: Path) -> None:
    with pytest.raises(ValueError, match="was not started by this store"):
        FileStore(file).finish("x", [])


WRITE = """
import sys
from tests.tracking.points import ended
from workbench.tracking.file_store import FileStore
for number in range(40):
    FileStore(sys.argv[1]).add(ended(f"{sys.argv[2]}{number}", {"text": "x" * 5000}))
"""


@pytest.mark.slow
def test_concurrent_writers(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    writers = [start_python(WRITE, str(file), name) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(keys(file)) == sorted(f"{name}{number}" for name in "ab" for number in range(40))
    for writer in writers:
        writer.communicate()

"""The command `workbench` where output, arguments, files or stores are not what it expects."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest

from workbench.cli import main
from workbench.tracking.file_store import FileStore


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "runs.jsonl")


@pytest.fixture
def stdout_of(monkeypatch):
    """Replaces stdout by that of a terminal with an encoding."""

    def install(encoding, errors="strict"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors=errors))
        return raw

    return install


def test_any_number_of_failed_points_is_a_failure(toys, uri, monkeypatch):
    """A status is a number modulo 256."""
    monkeypatch.setattr("workbench.cli.run._run_one", lambda *_: ([], 256))
    assert main(["run", "toys/fig1", "--store", uri]) == 1


def test_an_axis_without_values_is_refused(toys, uri, calls, capsys):
    assert main(["run", "toys/fig1", "--store", uri, "--set", "number=[]"]) == 1
    assert (
        "number: is [], which leaves no points; give at least one value, such as number=[1]" in capsys.readouterr().err
    )
    assert calls() == []


def test_an_empty_list_for_what_is_no_axis_reaches_validation(toys, uri, capsys):
    assert main(["run", "toys/fig1", "--store", uri, "--set", "offset=[]"]) == 1
    assert "offset: is []" in capsys.readouterr().err


def test_output_that_stdout_cannot_encode_is_escaped(toys, uri, stdout_of):
    raw = stdout_of("ascii")
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    assert b"\\u2713 it grows" in raw.getvalue()


def test_errors_of_encoding_that_the_user_chose_are_kept(toys, uri, stdout_of):
    raw = stdout_of("ascii", "replace")
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    assert b"? it grows" in raw.getvalue()


def test_a_reader_that_went_away_is_no_traceback(toys):
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "list"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (found.returncode, found.stderr) == (141, b"")


def test_reading_creates_no_store(toys, tmp_path, capsys):
    for uri in (f"sqlite:///{tmp_path}/new/mlflow.db", str(tmp_path / "new" / "runs.jsonl")):
        assert main(["compare", "--store", uri]) == 0
        assert main(["compare", "--columns", "x", "--store", uri]) == 0
        assert capsys.readouterr().out.count("no finished runs yet") == 2
        assert main(["report", "--output", str(tmp_path / "page.html"), "--store", uri]) == 0
        assert capsys.readouterr().out.count("○ not run") == 6
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("toys")
def test_reading_writes_nothing_beside_a_store(tmp_path, empty_database):
    folder = tmp_path / "kept"
    folder.mkdir()
    shutil.copyfile(empty_database, folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    assert main(["compare", "--store", uri]) == 0
    assert main(["report", "--output", str(tmp_path / "page.html"), "--store", uri]) == 0
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


@pytest.mark.parametrize(("field", "value"), [("key", "{victim}"), ("key", "../../victim"), ("sweep", "../victim/x")])
def test_import_touches_nothing_outside_the_store(toys, uri, tmp_path, capsys, field, value):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    assert main(["run", "toys/fig1", "--store", str(tmp_path / "box.jsonl")]) == 0
    capsys.readouterr()
    lines = [json.loads(line) for line in (tmp_path / "box.jsonl").read_text().splitlines()]
    lines[1]["point"][field] = value.format(victim=victim)
    (tmp_path / "box.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["import", str(tmp_path / "box.jsonl"), "--store", uri]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and f"box.jsonl, line 2 holds no run: point.{field} is '" in err
    assert victim.read_text() == "precious" and FileStore(uri).runs() == []


def test_an_emptied_run_is_run_again_and_stops_nothing(toys, calls, tmp_path, empty_database, capsys):
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    next(iter(sorted((tmp_path / "mlruns" / "toys").rglob("rows.json")))).write_text("")
    for command in (["compare"], ["report", "--output", str(tmp_path / "page.html")], ["run", "toys/fig1"]):
        with pytest.warns(UserWarning, match=r"rows\.json is damaged in file:"):
            assert main([*command, "--store", uri]) == 0
    assert len(calls()) == 4

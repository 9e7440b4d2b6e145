"""The command `workbench`: help, exit statuses, encodings, broken pipes, damaged stores."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest

import workbench as wb
from workbench.cli import command, main
from workbench.cli.data_command import data
from workbench.cli.reproduction import Described
from workbench.paths import project_root
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


def test_any_number_of_failed_points_has_status_1(toys, uri, monkeypatch):
    """The shell sees a status modulo 256."""
    monkeypatch.setattr("workbench.cli.reproduction.run_and_describe", lambda *_, **__: Described([], [], 256))
    assert main(["run", "toys/fig1", "--store", uri]) == 1


def test_an_axis_without_values_is_refused(toys, uri, calls, capsys):
    assert main(["run", "toys/fig1", "--store", uri, "--set", "number=[]"]) == 1
    assert (
        "number: is [], which leaves no points; give at least one value, such as number=[1]" in capsys.readouterr().err
    )
    assert calls() == []


def test_an_empty_list_for_a_setting_reaches_validation(toys, uri, capsys):
    assert main(["run", "toys/fig1", "--store", uri, "--set", "offset=[]"]) == 1
    assert "offset: is []" in capsys.readouterr().err


def test_output_that_stdout_cannot_encode_is_escaped(toys, uri, stdout_of):
    raw = stdout_of("ascii")
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    assert b"\\u2713 it grows" in raw.getvalue()


def test_errors_that_stderr_cannot_encode_are_escaped(toys, uri, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"))
    assert main(["run", "toys/é", "--store", uri]) == 1
    sys.stderr.flush()
    assert b"figure 'toys/\\xe9' is not known" in raw.getvalue()


def test_the_error_handler_of_stdout_is_kept(toys, uri, stdout_of):
    raw = stdout_of("ascii", "replace")
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    assert b"? it grows" in raw.getvalue()


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_without_a_traceback(toys):
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
        assert capsys.readouterr().out.count("○ 2 not run") == 3
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
    assert out == "" and err.count("\n") == 1 and f"box.jsonl, line 2 is not a valid run: point.{field} is '" in err
    assert victim.read_text() == "precious" and FileStore(uri).runs() == []


def test_a_damaged_run_is_run_again_and_stops_nothing(toys, calls, tmp_path, empty_database, capsys):
    shutil.copyfile(empty_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["run", "toys/fig1", "--store", uri]) == 0
    next(iter(sorted((tmp_path / "mlruns" / "toys").rglob("rows.json")))).write_text("")
    for words in (["compare"], ["report", "--output", str(tmp_path / "page.html")], ["run", "toys/fig1"]):
        with pytest.warns(UserWarning, match=r"rows\.json is damaged in file:"):
            assert main([*words, "--store", uri]) == 0
    assert len(calls()) == 4


def test_an_interrupt_is_one_line_that_says_how_to_resume(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.experiment.experiment.run_sweep", interrupted)
    status, out, err = run("run", "toys/fig1")
    assert (status, out) == (130, "") and "run the same command to resume" in err


COMMANDS = [[], *([name] for name in command.commands), *(["data", name] for name in data.commands)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_that_any_terminal_can_show(capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: workbench") and len(out.splitlines()) > 3 and out.isascii()
    assert max(map(len, out.splitlines())) <= 80


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"gnn-workbench {wb.__version__}\n"


def test_the_overview_shows_every_summary_in_full(capsys):
    main(["--help"])
    about, _, listed = capsys.readouterr().out.partition("Commands:\n")
    assert [line.split()[0] for line in listed.splitlines()] == list(command.commands)
    assert "..." not in listed and "_WORKBENCH_COMPLETE=bash_source" in about


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Usage: workbench"),
        (["data"], "Usage: workbench data"),
        (["rum"], "No such command 'rum'"),
        (["run"], "Missing argument 'PAPER/FIGURE'"),
        (["run", "toys/fig1", "--sizes", "smoke"], "No such option"),
        (["run", "toys/fig1", "--size", "huge"], "'huge' is not one of 'smoke', 'real', 'paper'"),
        (["data", "info", "tiny", "--scale", "much"], "'much' is not a valid float"),
    ],
)
def test_usage_errors_have_status_2(capsys, words, message):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


@pytest.mark.parametrize(
    ("words", "position", "offered"),
    [
        ("workbench re", 1, {"reproduce", "report"}),
        ("workbench run toys/fig1 --size r", 4, {"real"}),
        ("workbench plan --method h", 3, {"hypergraph", "hypergraph_deep", "hypergraph_refined"}),
        ("workbench run t", 2, {"toys/fig1", "toys/fig2"}),
        ("workbench reproduce t", 2, {"toys", "toys/fig1", "toys/fig2"}),
        ("workbench compare toys/fig2", 2, {"toys/fig2"}),
    ],
)
def test_help_and_completion_do_not_import_torch(toys, words, position, offered):
    """A shell asks at every press of Tab; `-X importtime` lists the modules."""
    environment = {**os.environ, "_WORKBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words}
    call = [sys.executable, "-X", "importtime", "-m", "workbench.cli"]
    completed = subprocess.run(
        call, env={**environment, "COMP_CWORD": str(position)}, capture_output=True, text=True, check=True
    )
    assert {line.removeprefix("plain,") for line in completed.stdout.split()} == offered
    helped = subprocess.run([*call, "--help"], capture_output=True, text=True, check=True)
    for errors in (completed.stderr, helped.stderr):
        modules = {line.rpartition("|")[2].strip() for line in errors.splitlines()}
        assert "click" in modules and not modules & {"torch", "numpy", "pandas"}


def test_an_error_without_a_message_is_named(toys, uri, monkeypatch, capsys):
    def runs_out_of_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr("workbench.experiment.experiment.run_sweep", runs_out_of_memory)
    assert main(["run", "toys/fig1", "--store", uri]) == 1
    assert capsys.readouterr().err == "workbench: MemoryError\n"


def test_bugs_are_not_hidden(toys, uri, monkeypatch):
    monkeypatch.setattr("workbench.cli.reproduction.run_and_describe", lambda: None)
    with pytest.raises(TypeError):
        main(["run", "toys/fig1", "--store", uri])


def test_completion_offers_nothing_if_the_index_is_invalid(toys):
    (toys / "index.yaml").write_text("figures: 3")
    environment = {"_WORKBENCH_COMPLETE": "bash_complete", "COMP_WORDS": "workbench run t", "COMP_CWORD": "2"}
    call = [sys.executable, "-m", "workbench.cli"]
    done = subprocess.run(call, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_without_the_documents_an_error_names_the_command_that_shows_the_same(monkeypatch, tmp_path, capsys):
    asked = ["data", "info", "cora", "--root", str(tmp_path)]
    assert main(asked) == 1 and "(its arrays are listed in docs/data.md)" in capsys.readouterr().err
    monkeypatch.setattr("workbench.paths.project_root", lambda: tmp_path)  # as of an installed wheel
    assert main(asked) == 1 and "(its arrays are listed by `workbench data format`)" in capsys.readouterr().err


def test_the_format_of_a_data_set_is_that_of_the_document(capsys):
    assert main(["data", "format"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    text = (project_root() / "docs" / "data.md").read_text(encoding="utf-8")
    section = text.partition("## Your own data set")[2].partition("\n## ")[0].replace("`", "")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5 and all(f"{names}: {contents}" in shown for names, contents in rows)
    assert " ".join(section.partition("A knowledge graph")[2].split()) in shown

"""`workbench list | run | reproduce | compare | report | import` on toy experiments."""

from dataclasses import replace

import pandas as pd
import pytest

from workbench.cli import main
from workbench.experiment.load import load_experiment
from workbench.tracking.file_store import FileStore


@pytest.fixture
def run(toys, tmp_path, capsys):
    """Status, output and errors of a command, with the store of the test where it takes one."""

    def call(*arguments, store=True):
        where = ["--store", str(tmp_path / "runs.jsonl")] if store else []
        status = main([*map(str, arguments), *where])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_list(run):
    status, out, _ = run("list", store=False)
    rows = [line.split() for line in out.splitlines()]
    assert status == 0 and rows[2][0] == "toys/fig1" and rows[3][0] == "toys/fig2" and rows[3][-1] == "toys/fig1"
    assert "smoke real paper" in out


def test_run_shows_rows_findings_and_the_slowest(run, calls):
    status, out, _ = run("run", "toys/fig1")
    assert status == 0
    assert [line.split() for line in out.splitlines()[:4]] == [
        ["number", "square", "nodes"],
        ["1", "1", "4"],
        ["2", "4", "4"],
        ["3", "9", "4"],
    ]
    assert "toys/fig1: The square grows" in out and "toys/fig2: The same." in out, "findings of the views too"
    assert "✓ it grows — [1, 4, 9]" in out
    assert out.count(" s  number ") == 3
    run("run", "toys/fig2")
    assert len(calls()) == 3


def test_run_with_other_values(run, calls):
    status, out, _ = run("run", "toys/fig1", "--set", "number=[4, 2]", "--set", "seed=7")
    assert status == 0 and calls() == ["4 7", "2 7"]
    assert "✗ it grows — [16, 4]" in out and "toys/fig2" not in out


def test_a_failed_point_is_named_and_makes_the_status_1(run):
    status, out, _ = run("run", "toys/fig1", "--set", "offset=2")
    assert status == 1 and "FAILED number 2: MemoryError: no room for 2" in out
    assert "✓ it grows — [3, 11]" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "toys/fig7"), "no experiment 'toys/fig7'; choose from toys/fig1, toys/fig2"),
        (("run", "toys/fig1", "--set", "nummer=3"), "nummer: unknown key; allowed: dataset, device"),
        (("run", "toys/fig1", "--size", "paper"), "device 'cuda' is not here"),
        (("run", "toys/fig1", "--size", "paper", "--device", "cpu"), "dataset.name: there is neither absent.npz"),
        (("reproduce", "tois"), "paper 'tois' is not known; choose from toys"),
        (("reproduce", "--size", "paper"), "device 'cuda' is not here"),
        (("import", "nothing.jsonl"), "there is no file nothing.jsonl"),
    ],
)
def test_what_is_wrong_stands_in_one_line(run, calls, arguments, words):
    status, out, err = run(*arguments)
    assert status == 1 and out == "" and words in err and err.count("\n") == 1
    assert calls() == []


def test_reproduce_runs_every_sweep_once_and_writes_the_report(run, calls, tmp_path):
    page = tmp_path / "out" / "page.html"
    status, out, err = run("reproduce", "--output", page)
    assert status == 0 and len(calls()) == 3 and "[1/1] toys/fig1: toys/fig1, toys/fig2" in err
    assert page.read_text().count("The square grows with the number.") >= 1
    overview = [line.split() for line in out.splitlines() if line.startswith("toys/fig") and "not run" not in line]
    assert [row[:2] for row in overview[-2:]] == [["toys/fig1", "smoke"], ["toys/fig2", "smoke"]]
    assert str(page) in out and "✓ held" in out


def test_report_shows_what_ran_what_is_recorded_and_what_did_not_run(run, toys, tmp_path):
    page = tmp_path / "page.html"
    status, out, _ = run("report", "--output", page)
    assert status == 0 and out.count("○ not run") == 6
    run("run", "toys/fig1", "--record")
    status, out, _ = run("report", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 4
    with (toys / "fig1.py").open("a") as code:
        code.write("\nrun = lambda config: [{'square': 1}]\n")
    status, out, _ = run("report", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 2, "runs of other code are not shown"


@pytest.mark.parametrize("command", [("run", "toys/fig1"), ("reproduce",), ("report",)])
def test_without_a_checkout_the_message_says_what_to_do(run, monkeypatch, tmp_path, command):
    monkeypatch.setenv("WORKBENCH_EXPERIMENTS", str(tmp_path / "elsewhere"))
    status, out, err = run(*command)
    assert (status, out) == (1, "") and "they come with a checkout of the repository" in err
    assert "set WORKBENCH_EXPERIMENTS" in err and not list(tmp_path.glob("*.db"))
    assert main(["list"]) == 1


def test_a_part_of_the_grid_is_no_verdict(run, tmp_path):
    _, out, _ = run("run", "toys/fig1", "--set", "number=[1,3]")
    assert "no verdict on the figure" in out
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1 smoke")]
    assert status == 0 and "◌ incomplete" in line and "2 of 3 points" in line and "held" not in line
    assert "2 of 3 points have ended" in (tmp_path / "page.html").read_text()
    run("run", "toys/fig1")
    _, out, _ = run("report", "--output", tmp_path / "page.html")
    assert out.count("✓ held") == 2 and "incomplete" not in out


@pytest.mark.parametrize("part", ["draw", "check", "compare"])
def test_nothing_stops_the_report(run, toys, tmp_path, part):
    run("run", "toys/fig1")
    with (toys / "fig1.py").open("a") as code:
        code.write(f"\n\ndef {part}(table, reported):\n    raise RuntimeError('no such column')\n")
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1 smoke")]
    assert status == 0 and "1 problem" in line
    assert "ing failed: RuntimeError: no such column" in (tmp_path / "page.html").read_text()
    assert [line for line in out.splitlines() if line.startswith("toys/fig2 smoke") and "✓ held" in line]


def test_report_shows_failed_points(run, toys, tmp_path):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    run("run", "toys/fig1")
    _, out, _ = run("report", "--output", tmp_path / "page.html")
    assert "1 problem" in out
    assert "number 3: MemoryError: no room for 3" in (tmp_path / "page.html").read_text()


def test_compare(run, tmp_path):
    assert "no finished runs yet" in run("compare")[1]
    run("run", "toys/fig1")
    _, out, _ = run("compare", "toys/fig2", "--columns", "number,square")
    assert [line.split() for line in out.splitlines()[:2]] == [["number", "square"], ["1", "1"]]
    assert "offset 0" in out.splitlines()[-1]
    _, out, _ = run("compare", "toys/fig1", "--where", "number=2", "--columns", "number,offset,square")
    assert [line.split() for line in out.splitlines()[:2]] == [["number", "offset", "square"], ["2", "0", "4"]]
    _, out, _ = run("compare", "toys/fig1", "--where", "number=2", "--csv", tmp_path / "rows.csv")
    assert pd.read_csv(tmp_path / "rows.csv").square.tolist() == [4] and out.startswith("1 rows in")
    assert run("compare", "--where", "number=17")[1] == "no finished runs like that\n"
    assert "write KEY=VALUE" in run("compare", "--where", "number")[2]
    status, _, err = run("compare", "--columns", "numbr")
    assert status == 1 and "no column 'numbr'; choose from number, square" in err


def test_import_logs_runs_once(run, tmp_path):
    load_experiment("toys/fig1").run(store=FileStore(tmp_path / "box.jsonl"))
    assert run("import", tmp_path / "box.jsonl")[1].startswith("3 of 3 runs were new to")
    assert run("import", tmp_path / "box.jsonl")[1].startswith("0 of 3 runs were new to")
    assert len(FileStore(tmp_path / "runs.jsonl").runs("toys/fig1")) == 3


def test_a_machine_that_cannot_draw_runs_all_the_same(run, monkeypatch, tmp_path):
    monkeypatch.setattr("workbench.experiment.summary.can_draw", lambda: False)
    status, out, _ = run("reproduce", "--output", tmp_path / "page.html")
    assert status == 0 and "no report: plotly is not installed here" in out and "✓ it grows" in out
    assert not (tmp_path / "page.html").exists() and not list(tmp_path.rglob("figure.html"))
    assert list(tmp_path.rglob("findings.csv"))


def test_interruption_is_no_traceback(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.experiment.experiment.run_sweep", interrupted)
    status, out, err = run("run", "toys/fig1")
    assert (status, out) == (130, "") and "the same command goes on from there" in err


@pytest.mark.parametrize("command", ["list", "run", "reproduce", "compare", "report", "import", "data"])
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_a_figure_that_needs_what_failed_is_reported_as_failed(run, toys, tmp_path):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    code = (
        (toys / "fig1.py")
        .read_text()
        .replace("def check(table, reported):", "def check(table, reported):\n    table.loc[2]")
    )
    (toys / "fig1.py").write_text(code)
    status, out, _ = run("run", "toys/fig1", "--record")
    assert status == 1 and "not checked on this grid: 2" in out and "not recorded: some points failed" in out
    _, out, _ = run("report", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1 smoke")]
    assert "failed" in line and "1 problem" in line


def test_report_shows_runs_of_devices_and_data_that_are_not_here(run, toys, tmp_path):
    experiment = load_experiment("toys/fig1")
    box = FileStore(tmp_path / "runs.jsonl")
    for made in experiment.runs(store=FileStore(tmp_path / "other.jsonl")):
        config = {**made.point.config, "device": "cuda"}
        point = replace(
            made.point,
            key=f"{made.point.key[:-1]}0" if made.point.key[-1] != "0" else f"{made.point.key[:-1]}1",
            config=config,
            tags={**made.point.tags, "device": "H200"},
        )
        assert box.add(replace(made, point=point))
    (tmp_path / "data" / "tiny.npz").unlink()
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    rows = [line for line in out.splitlines() if line.startswith("toys/fig1 smoke")]
    assert status == 0 and len(rows) == 1 and "H200" in rows[0] and "held" in rows[0]


def test_record_is_of_whole_grids(run, calls):
    status, _, err = run("run", "toys/fig1", "--record", "--set", "number=2")
    assert status == 1 and "leave out --set" in err and calls() == []

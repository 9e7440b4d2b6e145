"""`workbench compare | import` on toy experiments."""

import pandas as pd

import workbench as wb
from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore


def test_compare(run, tmp_path):
    assert "no finished runs yet" in run("compare")[1]
    run("run", "toys/fig1")
    _, out, _ = run("compare", "toys/fig2", "--columns", "number,square")
    assert [line.split() for line in out.splitlines()[:2]] == [["number", "square"], ["1", "1"]]
    assert "offset 0" in out.splitlines()[-1]
    _, out, _ = run("compare", "toys/fig1", "--where", "number=2", "--columns", "number,offset,square")
    assert [line.split() for line in out.splitlines()[:2]] == [["number", "offset", "square"], ["2", "0", "4"]]
    _, out, _ = run("compare", "toys/fig1", "--where", "number=2", "--csv", tmp_path / "new" / "rows.csv")
    assert pd.read_csv(tmp_path / "new" / "rows.csv").square.tolist() == [4] and out.startswith("1 rows in")
    status, _, err = run("compare", "--where", "number=17")
    assert status == 1 and "number of a finished run '17' is not known; choose from 1, 2, 3" in err
    assert "did you mean 'number'?" in run("compare", "--where", "numbr=2")[2]
    assert "write KEY=VALUE" in run("compare", "--where", "number")[2]
    status, _, err = run("compare", "--columns", "numbr")
    assert status == 1 and "column 'numbr' is not known; choose from number, square" in err
    assert err.rstrip().endswith("did you mean 'number'?")


def test_compare_shows_what_differs_and_the_figures_columns(run, toys):
    run("run", "toys/fig1")
    assert run("compare", "toys/fig1")[1].splitlines()[0].split() == ["number", "square", "nodes", "seconds", "run"]
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text() + "columns: [square]\n")
    _, out, _ = run("compare", "toys/fig1")
    assert out.splitlines()[0].split() == ["number", "square", "seconds", "run"] and "offset 0" in out
    assert len(out.splitlines()[1].split()[-1]) == 8, "the start of an id"
    assert {"status", "started", "run_id"} <= set(run("compare", "toys/fig1", "--all")[1].splitlines()[0].split())


def test_compare_shows_runs_of_ones_own(run, tmp_path):
    with wb.track("mine/pooling", {"pool": "mean"}, store=wb.open_store(str(tmp_path / "runs.jsonl"))) as one:
        one.log(rows=3)
    _, out, _ = run("compare", "mine/pooling")
    assert out.splitlines()[0].split()[:1] == ["rows"] and "pool mean" in out
    status, _, err = run("compare", "mine/poling")
    assert status == 1 and "'mine/poling' is not known" in err


def test_compare_without_a_figure_lists_the_sweeps(run):
    run("run", "toys/fig1")
    head, row, _, hint = run("compare")[1].splitlines()
    assert head.split() == ["sweep", "size", "runs", "seconds", "last"] and row.split()[:3] == [
        "toys/fig1",
        "smoke",
        "3",
    ]
    assert "compare PAPER/FIGURE" in hint


def test_compare_fits_the_terminal(run, monkeypatch):
    run("run", "toys/fig1")
    monkeypatch.setenv("COLUMNS", "44")
    assert max(map(len, run("compare", "toys/fig1")[1].splitlines())) <= 44


def test_import_logs_runs_once(run, tmp_path):
    load_experiment("toys/fig1").run(store=FileStore(tmp_path / "box.jsonl"))
    assert run("import", tmp_path / "box.jsonl")[1].startswith("3 of 3 runs were new to")
    assert run("import", tmp_path / "box.jsonl")[1].startswith("0 of 3 runs were new to")
    assert len(FileStore(tmp_path / "runs.jsonl").runs("toys/fig1")) == 3

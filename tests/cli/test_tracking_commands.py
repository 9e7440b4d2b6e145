"""`workbench compare | import` on toy experiments."""

import pandas as pd

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
    _, out, _ = run("compare", "toys/fig1", "--where", "number=2", "--csv", tmp_path / "rows.csv")
    assert pd.read_csv(tmp_path / "rows.csv").square.tolist() == [4] and out.startswith("1 rows in")
    assert run("compare", "--where", "number=17")[1] == "no finished run matches\n"
    assert "write KEY=VALUE" in run("compare", "--where", "number")[2]
    status, _, err = run("compare", "--columns", "numbr")
    assert status == 1 and "no column 'numbr'; choose from number, square" in err


def test_import_logs_runs_once(run, tmp_path):
    load_experiment("toys/fig1").run(store=FileStore(tmp_path / "box.jsonl"))
    assert run("import", tmp_path / "box.jsonl")[1].startswith("3 of 3 runs were new to")
    assert run("import", tmp_path / "box.jsonl")[1].startswith("0 of 3 runs were new to")
    assert len(FileStore(tmp_path / "runs.jsonl").runs("toys/fig1")) == 3

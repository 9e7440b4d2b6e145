"""`workbench report` on toy experiments."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore


def test_report_shows_runs_recorded_tables_and_what_was_not_run(run, toys, tmp_path):
    page = tmp_path / "page.html"
    status, out, _ = run("report", "--all", "--output", page)
    assert status == 0 and out.count("○ not run") == 6
    run("run", "toys/fig1", "--record")
    status, out, _ = run("report", "--all", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 4 and "has changed since" not in out
    with (toys / "fig1.py").open("a") as code:
        code.write("\nrun = lambda config: [{'square': 1}]\n")
    status, out, _ = run("report", "--all", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 2, "runs of other code are not shown"
    assert (
        "recorded table of toys/fig1 smoke, toys/fig2 smoke: its code has changed since it was recorded: "
        "fig1.run\n" in out
    )


def test_without_all_the_verdicts_are_counted_per_paper(run, toys, tmp_path):
    run("run", "toys/fig1", "--record")
    with (toys / "fig1.py").open("a") as code:
        code.write("\nrun = lambda config: [{'square': 1}]\n")
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    assert status == 0 and "toys/fig1" not in out
    assert "2 figures\n  smoke: ✓ 2 held\n  real: ○ 2 not run\n" in out
    assert "1 recorded table of older code" in out, "which two figures show"


@pytest.mark.parametrize("part", ["draw", "check", "compare"])
def test_errors_of_a_figure_do_not_stop_the_report(run, toys, tmp_path, part):
    run("run", "toys/fig1")
    with (toys / "fig1.py").open("a") as code:
        code.write(f"\n\ndef {part}(table, reported):\n    raise RuntimeError('no such column')\n")
    status, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert status == 0 and "1 problem" in line
    assert "ing failed: RuntimeError: no such column" in (tmp_path / "page.html").read_text()
    assert [line for line in out.splitlines() if line.startswith("toys/fig2  smoke") and "✓ held" in line]


def test_report_shows_failed_points(run, toys, tmp_path):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    run("run", "toys/fig1")
    _, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    assert "1 problem" in out
    assert "number 3: MemoryError: no room for 3" in (tmp_path / "page.html").read_text()


def test_a_figure_whose_check_needs_a_failed_point_is_reported_as_failed(run, toys, tmp_path):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    code = (
        (toys / "fig1.py")
        .read_text()
        .replace("def check(table, reported):", "def check(table, reported):\n    table.loc[2]")
    )
    (toys / "fig1.py").write_text(code)
    status, out, _ = run("run", "toys/fig1", "--record")
    assert (
        status == 1 and "not checked on this part of the grid: 2" in out and "not recorded: some points failed" in out
    )
    _, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert "failed" in line and "1 problem" in line


def test_report_shows_runs_whose_device_and_data_are_absent(run, toys, tmp_path):
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
    status, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    rows = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert status == 0 and len(rows) == 1 and "H200" in rows[0] and "held" in rows[0]


def test_rows_and_table_of_runs(run, tmp_path):
    run("run", "toys/fig1")
    status, out, _ = run("figure", "fig1", "--format", "csv", "--output", tmp_path / "rows.csv")
    assert status == 0 and out.startswith("toys/fig1 at smoke (run here): ")
    head, first, *_ = (tmp_path / "rows.csv").read_text().splitlines()
    assert "number" in head.split(",") and "square" in head.split(",") and "status" not in head and "1" in first
    assert run("figure", "toys/fig2", "--format", "tex", "--output", tmp_path / "t.tex")[0] == 0
    assert (tmp_path / "t.tex").read_text().splitlines()[:3] == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"paper & here \\",
    ]


def test_a_picture_is_drawn_by_kaleido(run, tmp_path, monkeypatch):
    run("run", "toys/fig1")
    monkeypatch.setattr(go.Figure, "to_image", lambda self, format, width, height: f"{format} {width}".encode())
    assert run("figure", "toys/fig1", "--format", "pdf", "--width", 500, "--output", tmp_path / "f.pdf")[0] == 0
    assert (tmp_path / "f.pdf").read_bytes() == b"pdf 500"
    assert "0 is not in the range x>=1" in run("figure", "toys/fig1", "--width", 0)[2]


def test_without_a_browser_the_error_says_what_to_do(run, tmp_path, monkeypatch):
    run("run", "toys/fig1")
    monkeypatch.setattr(go.Figure, "to_image", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no chrome")))
    status, _, err = run("figure", "toys/fig1", "--output", tmp_path / "f.svg")
    assert status == 1 and "no picture (no chrome)" in err and "apt install chromium" in err
    assert not (tmp_path / "f.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("toys/fig1",), "toys/fig1 has no rows; run it first: `workbench run toys/fig1`"),
        (("toys/fig1", "--size", "real"), "no rows at real; run it first: `workbench run toys/fig1 --size real`"),
        (("toys/fog1",), "did you mean 'toys/fig1'?"),
    ],
)
def test_what_is_missing_is_named(run, arguments, words):
    status, out, err = run("figure", *arguments)
    assert (status, out) == (1, "") and words in err and err.count("\n") == 1


def test_a_part_of_the_grid_is_not_exported(run):
    run("run", "toys/fig1", "--set", "number=1")
    assert "has no rows" in run("figure", "toys/fig1")[2]


def test_a_recorded_table_is_used_if_nothing_was_run(run, tmp_path):
    run("run", "toys/fig1", "--record")
    (tmp_path / "runs.jsonl").unlink()
    _, out, _ = run("figure", "toys/fig1", "--format", "csv", "--output", tmp_path / "rows.csv")
    assert out.startswith("toys/fig1 at smoke (recorded ")

"""`workbench figure` on toy experiments."""

import plotly.graph_objects as go
import pytest


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

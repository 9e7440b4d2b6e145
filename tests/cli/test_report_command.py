"""`workbench report` on toy experiments."""

from dataclasses import replace

import pytest

from workbench.experiment.figure_loader import load_experiment
from workbench.tracking.file_store import FileStore


def test_report_shows_runs_recorded_tables_and_what_was_not_run(run, toys, tmp_path):
    page = tmp_path / "page.html"
    status, out, _ = run("report", "--output", page)
    assert status == 0 and out.count("○ not run") == 6
    run("run", "toys/fig1", "--record")
    status, out, _ = run("report", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 4 and "has changed since" not in out
    with (toys / "fig1.py").open("a") as code:
        code.write("\nrun = lambda config: [{'square': 1}]\n")
    status, out, _ = run("report", "--output", page)
    assert out.count("smoke (recorded)") == 2 and out.count("✓ held") == 2, "runs of other code are not shown"
    assert (
        "recorded table of toys/fig1 smoke, toys/fig2 smoke: its code has changed since it was recorded: "
        "fig1.run\n" in out
    )


@pytest.mark.parametrize("part", ["draw", "check", "compare"])
def test_errors_of_a_figure_do_not_stop_the_report(run, toys, tmp_path, part):
    run("run", "toys/fig1")
    with (toys / "fig1.py").open("a") as code:
        code.write(f"\n\ndef {part}(table, reported):\n    raise RuntimeError('no such column')\n")
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert status == 0 and "1 problem" in line
    assert "ing failed: RuntimeError: no such column" in (tmp_path / "page.html").read_text()
    assert [line for line in out.splitlines() if line.startswith("toys/fig2  smoke") and "✓ held" in line]


def test_report_shows_failed_points(run, toys, tmp_path):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    run("run", "toys/fig1")
    _, out, _ = run("report", "--output", tmp_path / "page.html")
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
    _, out, _ = run("report", "--output", tmp_path / "page.html")
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
    status, out, _ = run("report", "--output", tmp_path / "page.html")
    rows = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert status == 0 and len(rows) == 1 and "H200" in rows[0] and "held" in rows[0]

"""`workbench list | run | reproduce` on toy experiments."""

import re
import shutil
import sys

import pytest

from workbench.cli import main
from workbench.experiment.experiment import Experiment
from workbench.report.expected_time import write_smoke_seconds
from workbench.tracking.opening import finished_points


def test_list(run, monkeypatch):
    status, out, _ = run("list", "--all")
    rows = [line.split() for line in out.splitlines()]
    assert status == 0 and rows[1][0] == "toys/fig1" and rows[2][0] == "toys/fig2" and rows[2][-1] == "toys/fig1"
    assert "smoke real paper" in out
    assert run("list", "fig2")[1].splitlines()[1].startswith("toys/fig2")
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, run("list")[1].splitlines())) <= 50


def test_list_shows_what_was_run(run, tmp_path, empty_database):
    run("run", "toys/fig1", "--set", "number=[1, 2]")
    head, first, second = run("list")[1].splitlines()
    assert head.split() == ["figure", "run", "title"]
    assert "  smoke 2  " in first and "  smoke 2  " in second, "a view's points are those of its sweep"
    database = f"sqlite:///{shutil.copyfile(empty_database, tmp_path / 'mlflow.db')}"
    assert main(["run", "toys/fig1", "--store", database]) == 0
    assert finished_points(database) == {("toys/fig1", "smoke"): 3}
    assert finished_points(f"sqlite:///{tmp_path}/none.db") == {} and not (tmp_path / "none.db").exists()


def test_run_shows_rows_findings_and_the_slowest_points(run, calls):
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
    assert out.count(" s: number ") == 3
    run("run", "toys/fig2")
    assert len(calls()) == 3


def test_run_with_overrides(run, calls):
    status, out, _ = run("run", "toys/fig1", "--set", "number=[4, 2]", "--set", "seed=7")
    assert status == 0 and calls() == ["4 7", "2 7"]
    assert "✗ it grows — [16, 4]" in out and "toys/fig2" not in out


def test_a_failed_point_is_named_and_has_status_1(run):
    status, out, _ = run("run", "toys/fig1", "--set", "offset=2")
    assert status == 1 and "FAILED number 2: MemoryError: no room for 2" in out
    assert "✓ it grows — [3, 11]" in out


def test_reproduce_says_its_time_before_it_loads_data_or_reads_code(run, toys, tmp_path, monkeypatch):
    """That takes as long as a figure, or longer where nothing is compiled yet; sweeps with runs need both."""
    write_smoke_seconds("toys", {"toys/fig1": 18.2})
    told = []

    def tasks(self, **how):
        raise ZeroDivisionError("data sets and code are read")

    monkeypatch.setattr("workbench.cli.reproduction.write_error", told.append)
    monkeypatch.setattr("workbench.experiment.experiment.Experiment.tasks", tasks)
    with pytest.raises(ZeroDivisionError):
        run("reproduce", "--output", tmp_path / "page.html")
    assert told == ["toys/fig1 at smoke: 3 points to run, about 20 s on two cores"]


def test_a_figure_with_a_failed_point_has_no_verdict(run, toys, tmp_path):
    spec = next(toys.rglob("fig1.yaml"))
    spec.write_text(spec.read_text().replace("{offset: 0}", "{offset: 2}"))
    _, out, _ = run("run", "toys/fig1")
    assert "toys/fig1: The square grows with the number. (1 of 3 points failed: no verdict on the figure)" in out
    _, out, _ = run("reproduce", "--output", str(tmp_path / "page.html"))
    assert "! 2 × failed" in out and "✓" not in out
    _, out, _ = run("report", "--output", str(tmp_path / "page.html"))
    assert "! 1 failed" in out or "! 2 failed" in out
    assert "✓" not in out


def test_the_expected_time_is_said_before_a_run(run, toys):
    write_smoke_seconds("toys", {"toys/fig1": 18.2})
    assert "about" not in run("run", "toys/fig2", "--set", "number=[2]")[2]
    assert run("run", "toys/fig2")[2].startswith("toys/fig1 at smoke: 2 points to run, about 20 s on two cores\n")
    assert "about" not in run("run", "toys/fig2")[2], "all points are finished"


def test_the_expected_time_of_a_table_whose_grid_grew_is_that_of_the_points_it_lacks(run, toys, tmp_path):
    run("run", "toys/fig1", "--record")
    spec = next(toys.rglob("fig1.yaml"))
    spec.write_text(spec.read_text().replace("number: [1, 2, 3]", "number: [1, 2, 3, 4]"))
    _, _, told = run("run", "toys/fig1", "--record", "--store", tmp_path / "other.jsonl", store=False)
    assert told.startswith("toys/fig1 at smoke: 1 point to run, ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "toys/fig7"), "figure 'toys/fig7' is not known; choose from toys/fig1, toys/fig2; did you mean"),
        (("run", "toys/fig1", "--set", "nummer=3"), "nummer: unknown key; allowed: device, seed"),
        (("run", "toys/fig1", "--size", "paper"), "device 'cuda' is not here"),
        (("run", "toys/fig1", "--size", "paper", "--device", "cpu"), "dataset.name: there is neither absent.npz"),
        (("reproduce", "tois"), "paper 'tois' is not known; choose from toys"),
        (("reproduce", "--size", "paper"), "device 'cuda' is not here"),
        (("import", "nothing.jsonl"), "there is no file nothing.jsonl"),
    ],
)
def test_errors_are_one_line(run, calls, arguments, words):
    status, out, err = run(*arguments)
    assert status == 1 and out == "" and words in err and err.count("\n") == 1
    assert calls() == []


def test_reproduce_runs_every_sweep_once_and_writes_the_report(run, calls, tmp_path):
    page = tmp_path / "out" / "page.html"
    status, out, _ = run("reproduce", "--output", page)
    assert status == 0 and len(calls()) == 3
    assert re.match(r"1/1 toys/fig1, fig2  \d+\.\d s  ✓ 2 × held$", out.splitlines()[0])
    assert (
        "2 figures at smoke: 2 held" in out
        and "not run by this: real (minutes to hours per figure), paper (needs" in out
    )
    assert page.read_text().count("The square grows with the number.") >= 1 and str(page) in out
    assert out.splitlines()[1].startswith(f"first picture: {page.as_uri()}"), "to look at while the rest runs"
    assert "`make lab` for the notebooks" in out
    assert len(out.splitlines()) < 12, "the table is in a file"
    table = (page.parent / "tables" / "toys" / "fig1-smoke.txt").read_text()
    assert "number  square" in table and "✓ it grows — [1, 4, 9]" in table


@pytest.fixture
def reproduce(run, monkeypatch, tmp_path):
    """`workbench reproduce` with a page that names its figures, since a real one takes seconds; returns the output."""
    page = tmp_path / "page.html"

    def name_figures(figures, store, output):
        page.write_text(f"report of {', '.join(figure.name for figure in figures)}")

    def call(*arguments, status=0):
        found, out, _ = run("reproduce", "--output", page, *arguments)
        assert found == status
        return out

    monkeypatch.setattr("workbench.cli.experiment_commands.write_report", name_figures)
    return call


def test_reproduce_again_prints_the_box_alone(reproduce, calls):
    first, second = reproduce(), reproduce()
    assert first.splitlines()[0].startswith("1/1 toys/fig1, fig2")
    said = " ".join(second.translate(str.maketrans("╭─╮│╰╯", " " * 6)).split())  # long paths wrap
    assert second.startswith("╭") and "2 figures at smoke: 2 held" in said and "page.html, unchanged" in said
    assert "took" not in second and len(second.splitlines()) < len(first.splitlines()) and len(calls()) == 3


def test_reproduce_fits_the_terminal(reproduce, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = reproduce().splitlines()
    box = [line for line in lines if line[0] in "╭│╰"]
    paths = [line for line in lines if "runs.jsonl" in line or "page.html" in line]
    assert len(box) > 4 and all(len(line) <= 60 for line in lines if not paths) and lines[0].startswith("1/1 toys/fig1")


def test_reproduce_draws_a_changed_figure_without_running_its_points_again(reproduce, calls, toys):
    reproduce()
    (toys / "fig2.py").write_text((toys / "fig2.py").read_text().replace("it grows", "it increases"))
    out = reproduce()
    assert out.startswith("1/1 toys/fig2  ") and "2 figures at smoke: 2 held" in out and len(calls()) == 3


def test_reproduce_runs_changed_points_again(reproduce, calls, toys):
    reproduce()
    (toys / "fig1.yaml").write_text(
        (toys / "fig1.yaml").read_text().replace("number: [1, 2, 3]", "number: [1, 2, 3, 4]")
    )
    out = reproduce()
    assert out.startswith("1/1 toys/fig1, fig2  ") and calls()[3:] == ["4 0"]


def test_reproduce_skips_figures_that_cannot_run_here(reproduce, run, calls, toys):
    index = toys / "index.yaml"
    index.write_text(index.read_text() + "requires: {fig1: no_such_module}\n")
    status, _, err = run("reproduce")
    assert status == 1 and "toys/fig1 requires no_such_module, which is not installed" in err and not calls()


def test_reproduce_says_in_words_what_did_not_hold(reproduce, toys):
    (toys / "fig2.py").write_text((toys / "fig2.py").read_text().replace("is_monotonic_increasing", "empty"))
    out = reproduce()
    assert "2 figures at smoke: 1 held, 1 did not hold" in out and "✗ toys/fig2: not: it grows" in out


def test_reproduce_of_some_figures(reproduce, calls, tmp_path):
    out = reproduce("fig2")
    assert out.startswith("1/1 toys/fig2  ") and len(calls()) == 3, "the points are those of fig1"
    assert (tmp_path / "page.html").read_text() == "report of toys/fig2"
    assert reproduce("toys/fig1").startswith("1/1 toys/fig1  ") and len(calls()) == 3
    assert reproduce("toys").startswith("╭")


@pytest.mark.parametrize("option", ["--all", "--record"])
def test_reproduce_can_include_unchanged_figures(reproduce, calls, toys, option):
    reproduce()
    assert reproduce(option).startswith("1/1 toys/fig1, fig2  ") and len(calls()) == 3
    assert (toys.parent / "results" / "toys" / "fig1").exists() == (option == "--record")


def test_reproduce_tries_failed_points_again(reproduce, toys, calls):
    (toys / "fig1.yaml").write_text((toys / "fig1.yaml").read_text().replace("offset: 0", "offset: 3"))
    for number_of_calls in (3, 4):
        assert "FAILED number 3" in reproduce(status=1) and len(calls()) == number_of_calls


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_jobs_and_time_limit_reach_the_sweep(run, monkeypatch, command):
    asked = {}
    monkeypatch.setattr(Experiment, "runs", lambda _, **options: asked.update(options) or sys.exit(7))
    figure = ["toys/fig1"] if command == "run" else []
    assert run(command, *figure, "--jobs", 3, "--time-limit", 1.5)[0] == 7
    assert (asked["jobs"], asked["time_limit_seconds"]) == (3, 1.5)
    assert run(command, *figure)[0] == 7 and (asked["jobs"], asked["time_limit_seconds"]) == (1, None)


@pytest.mark.parametrize(("option", "value"), [("--jobs", "0"), ("--jobs", "2.5"), ("--time-limit", "0")])
def test_invalid_numbers_of_jobs_and_seconds_are_usage_errors(run, calls, option, value):
    status, out, err = run("run", "toys/fig1", option, value)
    assert (status, out) == (2, "") and f"Invalid value for '{option}': {value}" in err.replace("'2.5'", "2.5")
    assert calls() == []


def test_points_over_the_time_limit_fail(run):
    """A process needs longer than that for its imports."""
    status, out, _ = run("run", "toys/fig1", "--time-limit", 0.05)
    assert status == 1 and out.count("over its limit of 0.05 s") == 6, "in the table and below"


@pytest.mark.parametrize("command", [("run", "toys/fig1"), ("reproduce",), ("report",)])
def test_without_a_checkout_the_error_names_the_remedy(run, monkeypatch, tmp_path, command):
    monkeypatch.setenv("WORKBENCH_EXPERIMENTS", str(tmp_path / "elsewhere"))
    status, out, err = run(*command)
    assert (status, out) == (1, "") and "they come with a checkout of the repository" in err
    assert "set WORKBENCH_EXPERIMENTS" in err and not list(tmp_path.glob("*.db"))
    assert main(["list"]) == 1


def test_part_of_a_grid_gives_no_verdict(run, tmp_path):
    _, out, _ = run("run", "toys/fig1", "--set", "number=[1,3]")
    assert "no verdict on the figure" in out
    status, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    (line,) = [line for line in out.splitlines() if line.startswith("toys/fig1  smoke")]
    assert status == 0 and "◌ incomplete" in line and "2 of 3 points" in line and "held" not in line
    assert "2 of 3 points have ended" in (tmp_path / "page.html").read_text()
    run("run", "toys/fig1")
    _, out, _ = run("report", "--all", "--output", tmp_path / "page.html")
    assert out.count("✓ held") == 2 and "incomplete" not in out


def test_without_plotly_the_figures_run_and_no_report_is_written(run, monkeypatch, tmp_path):
    monkeypatch.setattr("workbench.experiment.summary.can_draw", lambda: False)
    status, out, _ = run("reproduce", "--output", tmp_path / "page.html")
    assert status == 0 and "no report: plotly is not installed" in out and "2 held" in out
    assert not (tmp_path / "page.html").exists() and not list(tmp_path.rglob("figure.html"))
    assert list(tmp_path.rglob("findings.csv"))


def test_record_refuses_a_part_of_the_grid(run, calls):
    status, _, err = run("run", "toys/fig1", "--record", "--set", "number=2")
    assert status == 1 and "omit --set" in err and calls() == []


@pytest.mark.parametrize("command", [("run", "toys/fig1"), ("reproduce",)])
def test_record_refuses_threads_that_wait_in_another_way(run, calls, monkeypatch, command):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    status, _, err = run(*command, "--record")
    assert status == 1 and "--record with OMP_WAIT_POLICY=passive" in err and not calls()


def test_confirm_notes_in_the_recorded_table_that_points_gave_their_rows(run, toys, calls):
    run("run", "toys/fig1", "--record")
    _, out, _ = run("run", "toys/fig1", "--confirm", "60")
    assert "smoke-cpu.csv: its code is unchanged since it was recorded" in out and len(calls()) == 3
    code = (toys / "fig1.py").read_text()
    (toys / "fig1.py").write_text(code.replace("number**2", "number * config.number"))
    _, out, _ = run("run", "toys/fig1", "--confirm", "60", "--jobs", "2")
    assert "when 3 of 3 points, run again, gave the recorded rows (seconds aside)" in out and len(calls()) == 6
    (toys / "fig1.py").write_text(code.replace("number**2", "number**3"))
    status, _, err = run("run", "toys/fig1", "--confirm", "60")
    assert status == 1 and "is not confirmed; use --record" in err and "square is 8, 4 recorded" in err


def test_confirm_needs_a_whole_table(run, calls):
    status, _, err = run("run", "toys/fig1", "--confirm", "60")
    assert status == 1 and "smoke-cpu.csv does not exist: use --record" in err
    status, _, err = run("run", "toys/fig1", "--confirm", "60", "--set", "number=2")
    assert status == 1 and "omit --record and --set" in err and calls() == []

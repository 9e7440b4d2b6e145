"""Recorded tables: written whole, read back, refused when they are something else."""

from dataclasses import replace

import pytest

from workbench.core.errors import CorruptFileError
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.recorded import (
    GONE,
    UNKNOWN,
    confirm,
    kept_runs,
    read_recorded,
    record,
    recorded,
    table_of_points,
    to_confirm,
)
from workbench.tracking.file_store import FileStore


@pytest.fixture
def runs(toys, store):
    return load_experiment("toys/fig1").runs(store=store)


def test_round_trip(runs, toys):
    file = record(runs)
    assert file == toys.parent / "results" / "toys" / "fig1" / "smoke-cpu.csv"
    (back,) = recorded("toys/fig1")
    assert back.size == "smoke" and back.about["sweep"] == "toys/fig1"
    assert back.table.square.tolist() == [1, 4, 9] and set(back.table.status) == {"FINISHED"}
    assert back.about["code"] == load_experiment("toys/fig1").code().digest
    assert "4 nodes, 3 edges, archive, sha256" in back.about["datasets"]["tiny"]  # pyright: ignore[reportIndexIssue]
    assert {"date", "commit", "device", "version.torch"} <= set(back.about)
    assert [f.name for f in file.parent.iterdir()] == ["smoke-cpu.csv"]


def on(runs, device):
    return [replace(run, point=replace(run.point, tags={**run.point.tags, "device": device})) for run in runs]


def test_timings_are_kept_by_maker_of_the_processor(runs, monkeypatch):
    monkeypatch.setattr("workbench.experiment.recorded.TIMINGS", "toys/")
    epyc, xeon = on(runs, "AMD EPYC, 2 cores"), on(runs, "Intel(R) Xeon(R) Processor, 2 cores")
    assert [record(epyc).name, record(xeon).name] == ["smoke-amd.csv", "smoke-intel.csv"]
    assert [table.about["device"] for table in recorded("toys/fig1")] == [
        "AMD EPYC, 2 cores",
        "Intel(R) Xeon(R) Processor, 2 cores",
    ]
    with pytest.raises(ValueError, match="the points ran on 2 devices, not on one"):
        record([epyc[0], *xeon[1:]])


def test_timings_of_another_processor_are_not_kept_points(runs, monkeypatch):
    monkeypatch.setattr("workbench.experiment.recorded.TIMINGS", "toys/")
    tasks = load_experiment("toys/fig1").tasks()
    record(on(runs, "Other maker's, 2 cores"))
    assert kept_runs(tasks) == []
    record(runs)
    assert len(kept_runs(tasks)) == 3


def test_losses_are_kept_to_the_last_digit(runs):
    rows = [replace(run, rows=tuple({**row, "loss": 1 / 3, "other": 1 / 3} for row in run.rows)) for run in runs]
    record(rows)
    (back,) = recorded("toys/fig1")
    assert back.table.loss.tolist() == [1 / 3] * 3
    assert back.table.other.tolist() == [0.333333] * 3


def test_a_table_with_failed_points_is_not_recorded(toys, store):
    experiment = load_experiment("toys/fig1")
    runs = experiment.runs(store=store, overrides={"offset": 2})
    with pytest.raises(ValueError, match=r"1 of 3 points are not finished \(MemoryError: no room for 2\)"):
        record(runs)
    assert not (toys.parent / "results").exists()


@pytest.mark.parametrize("head", ["", "# schema: 99\n", "# a: [\n"])
def test_another_schema_is_refused(runs, head):
    file = record(runs)
    file.write_text(head + "number,square\n1,1\n")
    with pytest.raises(CorruptFileError, match="schema: 1"):
        read_recorded(file)


def edit(toys, name, old, new):
    text = (toys / name).read_text()
    assert old in text
    (toys / name).write_text(text.replace(old, new))


def test_a_table_says_that_its_code_is_unchanged(runs):
    back = read_recorded(record(runs))
    assert back.changed_since() == [] and back.provenance() == "its code is unchanged since it was recorded"


def test_a_table_names_the_definitions_that_changed(runs, toys):
    table = read_recorded(record(runs))
    edit(toys, "fig1.py", "it grows", "it rises")
    assert table.changed_since() == [], "presentation does not count"
    edit(toys, "fig1.py", "**2 +", "**3 +")
    assert table.changed_since() == ["experiments.toys.fig1.run"]
    assert table.provenance() == "its code has changed since it was recorded: fig1.run"
    edit(toys, "fig1.py", "**3 +", "**2 +")
    assert table.changed_since() == []


def test_a_sentence_names_a_few_of_many_changes(runs):
    table = read_recorded(record(runs))
    other = replace(table, about={**table.about, "definitions": "", "code": "0"})
    assert len(other.changed_since()) > 20
    names = other.provenance().split(": ")[1].split(", ")
    assert len(names) == 5 and names[-1] == f"{len(other.changed_since()) - 4} more"


def test_removed_definitions_are_a_change(runs):
    table = read_recorded(record(runs))
    longer = replace(table, about={**table.about, "definitions": f"{table.about['definitions']}abcdef", "code": "0"})
    assert longer.changed_since() == [GONE]


def test_a_table_without_digests_of_definitions_is_unknown_unless_its_one_digest_matches(runs):
    table = read_recorded(record(runs))
    about = {name: value for name, value in table.about.items() if name != "definitions"}
    assert replace(table, about=about).changed_since() == []
    for code in ("0", ["0", table.about["code"]], None):
        old = replace(table, about={**about, "code": code})
        assert old.changed_since() == [UNKNOWN]
        assert old.provenance() == f"changes of its code since are {UNKNOWN}"


def test_runs_of_different_code_record_no_definitions(runs, toys, store):
    edit(toys, "fig1.py", "**2 +", "**3 +")
    mixed = [runs[0], *load_experiment("toys/fig1").runs(store=store)[1:]]
    assert read_recorded(record(mixed)).changed_since() == [UNKNOWN]


def test_a_table_of_a_grid_that_grew_says_how_many_points_it_has_and_the_rest_alone_is_run(runs, toys, store):
    file = record(runs)
    assert read_recorded(file).points == (3, 3)
    edit(toys, "fig1.yaml", "number: [1, 2, 3]", "number: [3, 4, 1, 2, 5]")
    assert read_recorded(file).points == (3, 5)
    experiment = load_experiment("toys/fig1")
    kept = kept_runs(experiment.tasks())
    assert [run.rows[0]["square"] for run in kept] == [9, 1, 4]
    (toys / "calls.txt").unlink(missing_ok=True)
    every = experiment.runs(store=FileStore(toys / "other.jsonl"), kept=kept)
    assert (toys / "calls.txt").read_text().splitlines() == ["4 0", "5 0"]
    again = read_recorded(record(every))
    assert again.points == (5, 5) and again.table.square.tolist() == [9, 16, 1, 4, 25]
    assert again.about["code"] == read_recorded(file).about["code"] and again.changed_since() == []


def test_points_of_other_code_or_data_are_not_kept(runs, toys):
    record(runs)
    tasks = load_experiment("toys/fig1").tasks()
    assert len(kept_runs(tasks)) == 3
    other = [
        replace(task, point=replace(task.point, dataset=replace(task.point.dataset, fingerprint="0")))
        for task in tasks
        if task.point.dataset
    ]
    assert kept_runs(other) == []
    edit(toys, "fig1.py", "**2 +", "**3 +")
    assert kept_runs(load_experiment("toys/fig1").tasks()) == []


def test_a_key_that_was_added_since_tells_points_apart_only_where_it_varies(runs, toys):
    file = record(runs)
    text = file.read_text()
    file.write_text(text.replace(",word,", ",word_before,"))
    table = read_recorded(file)
    assert "word" not in table.table and table.points == (3, 3)
    edit(toys, "fig1.yaml", "sweep: {number: [1, 2, 3]}", "sweep: {number: [1, 2, 3], word: [a, b]}")
    assert read_recorded(file).points == (0, 6)


def confirmed(toys):
    """Runs the quickest points by the code as it is now; the table, and what differs."""
    experiment = load_experiment("toys/fig1")
    tasks = experiment.tasks()
    table = table_of_points(tasks)
    chosen = to_confirm(table, tasks, 3600.0)
    runs = experiment.runs(store=FileStore(toys / "again.jsonl"), only={task.point.key for task in chosen})
    found = confirm(table, chosen, runs)
    return table_of_points(tasks), found


def timed(runs, seconds):
    return [replace(run, seconds=second) for run, second in zip(runs, seconds, strict=True)]


def test_a_table_is_confirmed_by_points_that_have_the_same_rows(runs, toys):
    file = record(timed(runs, [3.0, 1.0, 2.0]))
    body = file.read_text().partition("\nnumber,")[2]
    edit(toys, "fig1.py", "config.number**2", "config.number * config.number")
    table, found = confirmed(toys)
    assert found == [] and table.changed_since() == [] and file.read_text().partition("\nnumber,")[2] == body
    date = table.confirmed["date"]
    assert table.provenance() == (
        f"its code is unchanged since {date}, when 3 of 3 points, run again, gave the recorded rows (seconds aside)"
    )
    edit(toys, "fig1.py", "number * config.number +", "number * config.number * 1 +")
    assert table.changed_since() == ["experiments.toys.fig1.run"]
    assert table.provenance().startswith(f"its code has changed since {date}, when 3 of 3 points")
    edit(toys, "fig1.py", "config.number * config.number * 1", "config.number**2")
    assert table.changed_since() == [], "the code that recorded it"


def test_a_table_whose_points_have_other_rows_is_not_confirmed(runs, toys):
    file = record(timed(runs, [3.0, 1.0, 2.0]))
    before = file.read_text()
    edit(toys, "fig1.py", "config.number**2", "config.number**3")
    table, found = confirmed(toys)
    assert found == ["number=2: square is 8, 4 recorded", "number=3: square is 27, 9 recorded"]
    assert file.read_text() == before and table.changed_since() == ["experiments.toys.fig1.run"]


def test_a_table_that_was_recorded_anew_meanwhile_is_not_confirmed(runs, toys):
    file = record(timed(runs, [3.0, 1.0, 2.0]))
    tasks = load_experiment("toys/fig1").tasks()
    table = table_of_points(tasks)
    chosen = to_confirm(table, tasks, 3600.0)
    file.write_text(file.read_text().replace("# date: '", "# date: '1"))
    before = file.read_text()
    again = load_experiment("toys/fig1").runs(store=FileStore(toys / "again.jsonl"))
    (found,) = confirm(table, chosen, again)
    assert found.endswith("was recorded anew meanwhile: confirm it again") and file.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ('{"square": config.number**2', '{"other": 1, "square": config.number**2', "other is 1, None recorded"),
        ('"nodes": ', '"node_count": ', "nodes is None, 4 recorded"),
        ("    yield {", '    yield {"square": 0}\n    yield {', "2 rows, 1 recorded"),
    ],
)
def test_rows_with_other_columns_confirm_nothing(runs, toys, old, new, difference):
    record(timed(runs, [3.0, 1.0, 2.0]))
    edit(toys, "fig1.py", old, new)
    _, found = confirmed(toys)
    assert any(line.endswith(difference) for line in found), found


def test_seconds_and_the_sixth_digit_are_not_compared(runs, toys):
    edit(toys, "fig1.py", '{"square": config', '{"seconds_low": time.time(), "third": 1 / 3, "square": config')
    edit(toys, "fig1.py", "import pandas", "import time\n\nimport pandas")
    record(timed(load_experiment("toys/fig1").runs(store=FileStore(toys / "timed.jsonl")), [3.0, 1.0, 2.0]))
    edit(toys, "fig1.py", '"third": 1 / 3', '"third": 0.33333333')
    assert confirmed(toys)[1] == []


def test_the_quickest_points_with_all_values_of_the_axes_are_run_again(runs, toys):
    edit(toys, "fig1.yaml", "sweep: {number: [1, 2, 3]}", "sweep: {number: [1, 2, 3], word: [a, b]}")
    experiment = load_experiment("toys/fig1")
    every = experiment.runs(store=FileStore(toys / "every.jsonl"))
    table = read_recorded(record(timed(every, [6.0, 1.0, 4.0, 2.0, 3.0, 5.0])))
    tasks = experiment.tasks()

    def chosen(seconds):
        configs = [task.point.config for task in to_confirm(table, tasks, seconds)]
        return [(config["number"], config["word"]) for config in configs]

    assert chosen(100.0) == [(1, "b"), (2, "b"), (3, "a")]
    assert chosen(3.0) == [(1, "b"), (2, "b")] and chosen(0.0) == [(1, "b")]


def test_timings_and_tables_of_other_data_are_not_confirmed(runs, monkeypatch):
    table, tasks = read_recorded(record(timed(runs, [3.0, 1.0, 2.0]))), load_experiment("toys/fig1").tasks()
    other = [
        replace(task, point=replace(task.point, dataset=replace(task.point.dataset, fingerprint="0")))
        for task in tasks
        if task.point.dataset
    ]
    with pytest.raises(ValueError, match="no point of the present grid on this device and these data sets"):
        to_confirm(table, other, 1.0)
    with pytest.raises(ValueError, match="times are never the same"):
        to_confirm(replace(table, table=table.table.drop(columns="point_seconds")), tasks, 1.0)
    monkeypatch.setattr("workbench.experiment.recorded.TIMINGS", "toys/")
    with pytest.raises(ValueError, match="times are never the same"):
        to_confirm(table, tasks, 1.0)


def test_of_a_confirmed_table_whose_grid_grew_the_rest_alone_is_run_and_the_table_tells(runs, toys):
    record(timed(runs, [3.0, 1.0, 2.0]))
    edit(toys, "fig1.py", "config.number**2", "config.number * config.number")
    confirmed(toys)
    edit(toys, "fig1.yaml", "number: [1, 2, 3]", "number: [1, 2, 3, 4]")
    experiment = load_experiment("toys/fig1")
    kept = kept_runs(experiment.tasks())
    assert [run.rows[0]["square"] for run in kept] == [1, 4, 9]
    again = read_recorded(record(experiment.runs(store=FileStore(toys / "rest.jsonl"), kept=kept)))
    assert again.points == (4, 4) and again.changed_since() == [] and not again.confirmed
    assert "(some points on 20" in again.provenance() and "by 3 of 3 points" in again.provenance()
    edit(toys, "fig1.yaml", "number: [1, 2, 3, 4]", "number: [1, 2, 3, 4, 5]")
    kept = kept_runs(load_experiment("toys/fig1").tasks())
    once_more = record(load_experiment("toys/fig1").runs(store=FileStore(toys / "more.jsonl"), kept=kept))
    assert read_recorded(once_more).provenance() == again.provenance(), "of the first points it is still told"


def test_data_sets_of_one_name_are_told_apart(runs, store):
    """Such as one stand-in at two scales."""
    tasks = load_experiment("toys/fig1").tasks()
    info = runs[0].point.dataset
    other = replace(info, num_nodes=info.num_nodes + 1, fingerprint="0123456789abcdef")
    both = [*runs[:-1], replace(runs[-1], point=replace(runs[-1].point, dataset=other))]
    tasks = [*tasks[:-1], replace(tasks[-1], point=replace(tasks[-1].point, dataset=other))]
    record(both)
    (table,) = recorded("toys/fig1")
    told = str(table.about["datasets"]["tiny"])  # pyright: ignore[reportIndexIssue]
    assert told.startswith("4 nodes, 3 edges, ") and "; 5 nodes, 3 edges, " in told
    assert len(kept_runs(tasks)) == len(tasks)

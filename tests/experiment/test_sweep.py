"""Sweeps: every point once, resumed, failures kept, interruptions lose one point at most."""

import sys

import pytest

from tests.experiment.elsewhere import running_elsewhere
from workbench.core.yaml_file import ConfigError
from workbench.experiment.figure_loader import load_experiment
from workbench.experiment.sweep import WorkBar, new_bar, slowest
from workbench.experiment.table import labels, table_of, to_read
from workbench.tracking.record import FAILED, FINISHED, KILLED
from workbench.tracking.store import StoreError


def test_the_table_has_configuration_and_rows_in_the_grids_order(toys, store):
    table = load_experiment("toys/fig1").run(store=store)
    assert table.number.tolist() == [1, 2, 3] and table.square.tolist() == [1, 4, 9]
    assert set(table.dataset) == {"tiny"} and set(table.nodes) == {4} and set(table.status) == {FINISHED}


def test_what_a_person_reads(toys, store):
    runs = load_experiment("toys/fig1").runs(store=store)
    assert to_read(runs).columns.tolist() == ["number", "square", "nodes"]
    assert to_read(runs, ["nodes", "absent"]).columns.tolist() == ["number", "nodes"]
    assert labels(runs) == ["number 1", "number 2", "number 3"]


def test_finished_points_are_not_run_again_not_even_for_a_view(toys, store, calls):
    first = load_experiment("toys/fig1").run(store=store)
    again = load_experiment("toys/fig2").run(store=store)
    assert len(calls()) == 3
    assert again.drop(columns="point_seconds").equals(first.drop(columns="point_seconds"))


def test_only_new_points_of_a_larger_grid_are_run(toys, store, calls):
    experiment = load_experiment("toys/fig1")
    experiment.run(store=store)
    table = experiment.run(store=store, overrides={"number": [5, 2, 4]})
    assert table.number.tolist() == [5, 2, 4]
    assert calls() == ["1 0", "2 0", "3 0", "5 0", "4 0"]


def test_a_failed_point_is_kept_and_tried_again(toys, store, calls):
    experiment = load_experiment("toys/fig1")
    for _ in range(2):
        runs = experiment.runs(store=store, overrides={"offset": 2})
        assert [run.status for run in runs] == [FINISHED, FAILED, FINISHED]
        assert runs[1].error == "MemoryError: no room for 2"
    assert calls() == ["1 0", "2 0", "3 0", "2 0"]
    table = table_of(runs)
    assert table.square.isna().tolist() == [False, True, False]
    assert sum(isinstance(error, str) for error in to_read(runs)["error"]) == 1


def test_an_interruption_keeps_what_was_finished(toys, store, calls, monkeypatch):
    experiment = load_experiment("toys/fig1")
    own = experiment.module.run

    def interrupted(config):
        if config.number == 2:
            raise KeyboardInterrupt
        return own(config)

    monkeypatch.setattr(experiment.module, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(store=store)
    assert [run.status for run in store.runs(statuses=(FINISHED, KILLED, FAILED))] == [FINISHED, KILLED]
    monkeypatch.setattr(experiment.module, "run", own)
    assert experiment.run(store=store).square.tolist() == [1, 4, 9]
    assert sorted(calls()) == ["1 0", "2 0", "3 0"]


def test_what_was_killed_comes_last(toys, store, calls):
    experiment = load_experiment("toys/fig1")
    store.fail(store.start(experiment.tasks()[0].point), "killed", status=KILLED)
    assert experiment.run(store=store).number.tolist() == [1, 2, 3]
    assert calls() == ["2 0", "3 0", "1 0"]


def test_a_failed_points_memory_is_released_before_the_next(toys, store, monkeypatch):
    import gc
    import weakref

    class Big:
        pass

    experiment, kept, alive = load_experiment("toys/fig1"), [], []

    def fails(config):
        alive.extend(ref() is not None for ref in kept)
        big = Big()
        kept.append(weakref.ref(big))
        raise MemoryError(f"no room for {config.number}")

    monkeypatch.setattr(experiment.module, "run", fails)
    gc.disable()  # what is left to chance is not released
    try:
        experiment.run(store=store)
    finally:
        gc.enable()
    assert len(kept) == 3 and not any(alive)


def test_a_point_that_another_process_runs_is_waited_for(toys, store, calls):
    experiment = load_experiment("toys/fig1")
    with running_elsewhere(store, experiment.tasks()[0].point):
        table = experiment.run(store=store)
    assert table.square.tolist() == [-1, 4, 9] and calls() == ["2 0", "3 0"]


def test_slowest_points_come_first(toys, store):
    runs = load_experiment("toys/fig1").runs(store=store, overrides={"number": list(range(1, 14))})
    slow = slowest(runs)
    seconds = [run.seconds or 0.0 for run in runs]
    assert [run.seconds for run in slow] == sorted(seconds, reverse=True)[:10]


def test_what_stops_a_sweep_before_work(toys, store, calls, tmp_path):
    experiment = load_experiment("toys/fig1")
    with pytest.raises(RuntimeError, match=r"device 'cuda' is not here .*--device cpu"):
        experiment.run(size="paper", store=store)
    with pytest.raises(ConfigError, match=r"fig1.yaml: dataset.name: .*absent.*or --set dataset=NAME"):
        experiment.run(size="paper", device="cpu", store=store)
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(StoreError):
        experiment.run(store=type(store)(tmp_path / "folder.jsonl"))
    assert calls() == [] and store.runs(statuses=(FINISHED, FAILED, KILLED)) == []


def test_a_data_set_stands_in_for_an_absent_one(toys, store):
    table = load_experiment("toys/fig1").run(size="real", store=store, overrides={"number": 1, "seed": 5})
    assert set(table.dataset) == {"tiny"} and set(table["dataset.undirected"]) == {True}
    assert table.repetition.tolist() == [0, 1]


def test_a_module_without_what_it_needs(toys):
    (toys / "fig2.py").write_text("def draw(table, reported): ...")
    with pytest.raises(ConfigError, match=r"fig2.py does not define check, compare; add it"):
        load_experiment("toys/fig2")


def test_what_a_notebook_shows(toys, store):
    experiment, view = load_experiment("toys/fig1"), load_experiment("toys/fig2")
    table = experiment.run(store=store, overrides={"number": [3, 2]})
    shown = experiment.findings(table, size="smoke")
    assert shown.values.tolist() == [["it grows", "✗ did not hold", "[9, 4]", ""]]
    assert [finding.name for finding in experiment.unexplained(table, size="smoke")] == ["grows"]
    assert view.unexplained(table.sort_values("number"), size="smoke") == []
    assert repr(view) == "Experiment(toys/fig2: Squares again)" and "Claim: The same." in view._repr_markdown_()
    assert experiment.shown(table) is table


def test_notes_of_a_sweep_and_of_its_view(toys):
    for name, note in (("fig1", "one"), ("fig2", "two")):
        text = (toys / f"{name}.yaml").read_text()
        changed = text.replace("smoke:\n", f"smoke:\n    note: {note}\n").replace(
            "smoke: {}", f"smoke: {{note: {note}}}"
        )
        (toys / f"{name}.yaml").write_text(changed)
    assert load_experiment("toys/fig1").note("smoke") == "one"
    assert load_experiment("toys/fig2").note("smoke") == "one; two"
    assert "*smoke*: one; two" in load_experiment("toys/fig2")._repr_markdown_()


def test_a_bar_is_shown_on_terminals_and_in_notebooks(monkeypatch):
    ipykernel = pytest.importorskip("ipykernel")
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert new_bar(3).disable  # pytest's stderr is no terminal
    assert not new_bar(3, disable=False).disable
    monkeypatch.setitem(sys.modules, "ipykernel", ipykernel)
    bar = new_bar(3)
    assert type(bar).__name__ == "tqdm_notebook", "a widget, not red text of stderr"
    assert not bar.disable and bar.delay == 5 and new_bar(3, disable=True).disable


def test_a_bar_of_several_sweeps_advances_by_expected_seconds(toys, store, monkeypatch):
    """The time left follows from the work done: a sweep of many short points does not make it hours."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with WorkBar(40.0, "smoke") as bar:
        bar.seconds_per_point = 2.0
        fig1 = load_experiment("toys/fig1")
        fig1.runs(size="smoke", store=store, progress=bar)
        assert (bar.n, bar.total) == (6.0, 40.0)
        fig1.runs(size="smoke", store=store, progress=bar)
        assert (bar.n, bar.total) == (6.0, 34.0), "points that were done before are no work"

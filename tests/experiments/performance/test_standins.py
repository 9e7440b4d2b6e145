"""The benchmark of stand-ins, and points without a data set from the configuration to the table."""

from pathlib import Path

from experiments.performance import standins
from workbench.experiment.figure_loader import load_experiment
from workbench.standin import build_standin
from workbench.standin.graph_statistics import compare
from workbench.tracking.file_store import FileStore


def test_rows_are_the_targets_of_the_stand_in() -> None:
    rows = list(standins.run(standins.Config(standin="synthetic-fb15k-237", scale=0.02)))
    targets = compare(build_standin("synthetic-fb15k-237", scale=0.02), scale=0.02)
    assert [(row["property"], row["achieved"]) for row in rows] == [(t.name, t.achieved) for t in targets]
    assert len({(row["seconds"], row["peak_bytes"]) for row in rows}) == 1


def test_points_without_a_data_set_are_run_once(tmp_path: Path) -> None:
    experiment, store = load_experiment("performance/standins"), FileStore(tmp_path / "runs.jsonl")
    chosen = {"standin": "synthetic-fb15k-237", "scale": [0.02]}
    (run,) = experiment.runs(store=store, overrides=chosen)
    assert run.point.dataset is None and run.status == "FINISHED"
    (again,) = experiment.runs(store=store, overrides=chosen)
    assert again.run_id == run.run_id

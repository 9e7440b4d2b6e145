"""Recorded tables: written whole, read back, refused when they are something else."""

from dataclasses import replace

import pytest

from workbench.core.errors import CorruptFileError
from workbench.experiment.load import load_experiment
from workbench.experiment.recorded import read_recorded, record, recorded


@pytest.fixture
def runs(toys, store):
    return load_experiment("toys/fig1").runs(store=store)


def test_round_trip(runs, toys):
    file = record(runs)
    assert file == toys.parent / "results" / "toys" / "fig1" / "smoke-cpu.csv"
    (back,) = recorded("toys/fig1")
    assert back.size == "smoke" and back.about["sweep"] == "toys/fig1"
    assert back.table.square.tolist() == [1, 4, 9] and set(back.table.status) == {"FINISHED"}
    assert back.about["code"] == load_experiment("toys/fig1").code_digest()
    assert "4 nodes, 3 edges, archive, sha256" in back.about["datasets"]["tiny"]  # pyright: ignore[reportIndexIssue]
    assert {"date", "commit", "device", "version.torch"} <= set(back.about)
    assert [f.name for f in file.parent.iterdir()] == ["smoke-cpu.csv"]


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

"""Training under a limit of memory: claims that can be lost, the rows of a small run, and the limit itself."""

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.beyond.limited_training import (
    AHEAD,
    GRAPH,
    MAPPED,
    MEMORY,
    PACKED,
    UNLIMITED,
    LimitedConfig,
    save,
    touched_bytes,
)
from experiments.beyond.memory_group import MemoryGroup
from tests.experiments.directions import directions
from workbench.experiment.figure_loader import load_experiment

NAN = float("nan")
SECONDS = {UNLIMITED: 10, MEMORY: NAN, MAPPED: 40, AHEAD: 20, PACKED: 25, GRAPH: 3}


def table() -> pd.DataFrame:
    """A table in which every claim holds."""
    rows = []
    for system, seconds in SECONDS.items():
        graph = system == GRAPH
        rows.append(
            {
                "graph": "a",
                "rows_mib": 256,
                "limit_mib": 1024,
                "data_bytes": 2**31,
                "system": system,
                "finished": int(system != MEMORY),
                "same_losses": NAN if graph or system == MEMORY else 1.0,
                "anonymous_bytes": 2**28,
                "read_bytes": 105 if graph else 400,
                "row_bytes": 350 if system == AHEAD else NAN,
                "touched_bytes": 100 if graph else NAN,
                "epoch_seconds": seconds,
            }
        )
    found = pd.DataFrame(rows)
    return pd.concat([found, found.assign(graph="b")], ignore_index=True)


def lost(rows: pd.DataFrame) -> set[str]:
    return {finding.name for finding in directions("beyond/under_limit", rows) if not finding.held}


def test_every_claim_holds_on_a_table_made_for_it() -> None:
    assert lost(table()) == set() and len(directions("beyond/under_limit", table())) == 5


@pytest.mark.parametrize(
    ("system", "column", "value", "names"),
    [
        (MEMORY, "finished", 1, {"killed"}),
        (PACKED, "finished", 0, {"finishes"}),  # what it has not trained is not compared
        (MAPPED, "same_losses", 0.99, {"same-losses"}),
        (AHEAD, "same_losses", NAN, {"same-losses"}),
        (GRAPH, "read_bytes", 111, {"pages"}),
        (GRAPH, "read_bytes", 0, {"pages"}),  # they were in memory before
        (AHEAD, "epoch_seconds", 41, {"ahead-is-faster"}),
        (MAPPED, "epoch_seconds", 19, {"ahead-is-faster"}),
    ],
)
def test_a_claim_is_lost(system: str, column: str, value: float, names: set[str]) -> None:
    rows = table()
    rows.loc[(rows.system == system) & (rows.graph == "a"), column] = value
    assert lost(rows) == names


def test_the_figure_says_what_was_killed_and_the_slowest_times() -> None:
    experiment, rows = load_experiment("beyond/under_limit"), table()
    rows.loc[(rows.system == AHEAD) & (rows.graph == "b"), "epoch_seconds"] = 25
    figure: Any = experiment.draw(rows)
    told = figure.layout.title.text.replace("<br>", " ")
    assert (
        "In 50% of the data's memory" in told and "2.0 to 2.5 times one in memory" in told and "4.0 if mapped" in told
    )
    assert "under the limit: in memory in 2 of 2; in memory is shown" in told
    compared: Any = experiment.compare(rows)
    assert set(compared.graph) == {"a", "b"} and compared.touched.max() == pytest.approx(100 / 2**20)
    assert compared["graph read"].max() == pytest.approx(50 / 2**20)


def test_without_a_limit_only_losses_are_compared() -> None:
    experiment = load_experiment("beyond/under_limit")
    rows = table().drop(columns="limit_mib").query("system != @MEMORY").assign(finished=1)
    assert [finding.name for finding in directions("beyond/under_limit", rows)] == ["same-losses"]
    told: Any = experiment.draw(rows).layout.title.text.replace("<br>", " ")
    assert "From disk, an epoch takes 2.0 times one in memory" in told and "killed" not in told
    compared: Any = experiment.compare(rows)
    assert compared.limit.isna().all()


def small(**changes: Any) -> Any:
    return load_experiment("beyond/under_limit").module.Config(
        **{
            "dataset": {"name": "synthetic-products", "scale": 0.001},
            "model": "sage-mean",
            "fanouts": (3, 3),
            "hidden_dim": 4,
            "batch_size": 20,
            "steps": 3,
            "learning_rate": 0.01,
            "epochs": 3,
            "limit_mib": None,
            "rows_mib": 1,
            **changes,
        }
    )


@pytest.mark.slow
def test_rows_of_a_small_run() -> None:
    rows = pd.DataFrame(load_experiment("beyond/under_limit").module.run(small())).set_index("system")
    trained = [UNLIMITED, MAPPED, AHEAD, PACKED]
    assert list(rows.index) == [*trained, GRAPH] and (rows.finished == 1).all()
    assert (rows.same_losses[trained] == 1).all() and np.isnan(rows.same_losses[GRAPH])
    assert rows.row_bytes[AHEAD] > 0 and rows.touched_bytes[GRAPH] > 0


def test_touched_pages_are_those_of_the_drawn_edges_and_of_the_offsets(tmp_path: Path) -> None:
    """With all neighbours and one layer, the pages of the seeds' rows."""
    config, data = LimitedConfig(**dict(small(fanouts=(-1,)))), small().dataset.load()
    save(config, data, tmp_path)
    graph, seeds = data.graph, _seeds(tmp_path)
    starts, ends = graph.indptr[seeds], graph.indptr[seeds + 1]
    edges = {e * 4 // 4096 for s, t in zip(starts.tolist(), ends.tolist(), strict=True) for e in range(s, t)}
    offsets = {node * 8 // 4096 for s in seeds.tolist() for node in (s, s + 1)}
    assert graph.indices.itemsize == 4
    assert touched_bytes(config, tmp_path) * config.epochs == 4096 * (len(edges) + len(offsets))  # the same in each


def _seeds(folder: Path) -> Any:
    from experiments.beyond.limited_training import opened

    return opened(folder).train_idx


@pytest.mark.parametrize("old", [True, False])
def test_a_group_writes_its_limit_and_removes_itself(tmp_path: Path, monkeypatch: Any, old: bool) -> None:
    monkeypatch.setattr(Path, "rmdir", lambda path: shutil.rmtree(path))  # the system's files don't count as contents
    if old:
        (tmp_path / "memory").mkdir()
    limit, peak = ("limit_in_bytes", "max_usage_in_bytes") if old else ("max", "peak")
    with MemoryGroup(123 << 20, tmp_path) as group:
        folder = next((tmp_path / "memory" if old else tmp_path).iterdir())
        assert (folder / f"memory.{limit}").read_text() == str(123 << 20)
        (folder / f"memory.{peak}").write_text("7")
        assert group.peak_bytes == 7
        group.join()
        assert (folder / "cgroup.procs").read_text() == str(os.getpid())
    assert not folder.exists()


def test_without_control_groups_the_error_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(PermissionError, match=r"can't limit memory to 1024 B.*set limit_mib to null"),
        MemoryGroup(1024, tmp_path / "absent"),
    ):
        pass


def _allowed() -> bool:
    try:
        with MemoryGroup(1 << 30):
            return True
    except PermissionError:
        return False


def allocate(nbytes: int) -> int:
    return int(np.ones(nbytes, np.uint8).sum())


@pytest.mark.skipif(not _allowed(), reason="needs the right to create control groups of memory")
@pytest.mark.parametrize(("nbytes", "killed"), [(16 << 20, False), (512 << 20, True)])
def test_the_system_kills_a_process_that_needs_more(nbytes: int, killed: bool) -> None:
    group_class = import_module(MemoryGroup.__module__).MemoryGroup  # other tests import experiments anew
    with group_class(256 << 20) as group, ProcessPoolExecutor(1, get_context("spawn"), group.join) as pool:
        work = pool.submit(allocate, nbytes)
        if killed:
            with pytest.raises(BrokenProcessPool):
                work.result()
        else:
            assert work.result() == nbytes and group.peak_bytes > nbytes

"""The benchmark of rows from disk: its rows are about the reads they say, and wrong rows end it."""

from typing import Any

import pytest
import torch

import workbench as wb
from experiments.performance import disk_rows
from tests.experiments.performance import tables

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 1000, "num_edges": 8000}, "repeats": 2, "fanouts": (3, 3)}
GIVEN |= {"batch_size": 20, "threads": (1, 3)}


@pytest.mark.parametrize(("ids", "width"), [("batch", 1024), ("uniform", 3)])
def test_both_kinds_of_reads_are_timed_with_each_number_of_threads(ids: Any, width: int) -> None:
    rows = list(disk_rows.run(disk_rows.Config(**GIVEN, ids=ids, width=width)))
    direct = rows[0]["direct_reads"]
    assert [(row["direct_reads"], row["num_threads"]) for row in rows] == [
        (direct, 1),
        (direct, 3),
        (False, 1),
        (False, 3),
    ]
    for row in rows:
        assert row["file_bytes"] == 1000 * 4 * width and 20 < row["num_rows"] < 500
        assert row["ratio_low"] <= row["ratio_median"] <= row["ratio_high"]
        assert row["disk_rows_per_second"] == pytest.approx(row["num_rows"] / row["disk_seconds"])
        assert row["disk_amplification"] == pytest.approx(row["disk_read_bytes"] / (4 * width * row["num_rows"]))
        if direct and row["direct_reads"]:
            assert row["disk_amplification"] >= 1, "direct reads never come from the page cache"


def test_ids_are_those_of_a_batch_or_as_many_drawn_uniformly() -> None:
    batch, uniform = (disk_rows.Config(**GIVEN, ids=ids, width=3) for ids in ("batch", "uniform"))
    graph, _ = batch.load()
    found, others = disk_rows._ids(batch, graph), disk_rows._ids(uniform, graph)
    assert len(found) == len(others) == len(others.unique()) and not torch.equal(found, others)
    assert found.tolist() == wb.NeighborSampler((3, 3)).sample(graph, found[:20]).node_ids.tolist()


def test_wrong_rows_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wb.DiskRows, "_fill", lambda self, ids, out: 0)
    with pytest.raises(RuntimeError, match=r"DiskRows\(.*\) returned other rows; this benchmark compares nothing"):
        list(disk_rows.run(disk_rows.Config(**GIVEN, ids="batch", width=3)))


def test_without_direct_reads_nothing_is_compared() -> None:
    table = tables.disk_rows().assign(direct_reads=False)
    with pytest.raises(ValueError, match=r"no row is about direct reads: .* set TMPDIR to a folder of one that does"):
        disk_rows.check(table, table.head(0))

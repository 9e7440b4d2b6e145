"""The benchmark of partitioning: both sides of a row cut the same batch, and its excess is that of the partitions."""

from typing import Any

import pytest
import torch

import workbench as wb
from experiments.performance import partitioning

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 400, "num_edges": 4000}, "repeats": 2, "num_seeds": 60}
GIVEN |= {"fanouts": (3, 3), "method": "auto", "num_parts": (2, 3)}


def test_beside_reg_each_number_of_parts_is_a_row() -> None:
    pytest.importorskip("pymetis")
    rows = list(partitioning.run(partitioning.Config(**GIVEN, beside="reg")))
    assert [row["parts"] for row in rows] == [2, 3] and {row["outputs"] for row in rows} == {60}
    for row in rows:
        assert row["excess_ratio"] == row["excess"] / row["reg_excess"] > 0
        assert row["ratio_best"] == row["rival_seconds"] / row["ours_seconds"]


def test_cuts_that_differ_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    (row,) = partitioning.run(partitioning.Config(**GIVEN, beside="separate calls"))
    assert row["cuts"] == 2 and row["ratio_low"] <= row["ratio_median"] <= row["ratio_high"]
    monkeypatch.setattr(wb, "partition_batch", lambda mb, *_, **__: torch.full((mb.num_seeds,), 7))
    with pytest.raises(RuntimeError, match="a prepared batch was cut unlike one of its own"):
        list(partitioning.run(partitioning.Config(**GIVEN, beside="separate calls")))

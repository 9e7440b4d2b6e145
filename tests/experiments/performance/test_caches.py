"""The benchmark of caches: its rows are about the trace they say, and both sides' hits are compared."""

from typing import Any

import pytest

from experiments.performance import caches

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 1000, "num_edges": 8000}, "repeats": 2, "fanouts": (3, 3)}
GIVEN |= {"batch_size": 50, "num_batches": 4, "capacity_share": 0.1}


def test_every_policy_is_timed() -> None:
    pytest.importorskip("libcachesim")
    for policy in ("s3-fifo", "belady", "static"):
        (row,) = caches.run(caches.Config(**GIVEN, policy=policy))
        assert row["capacity_rows"] == 100 and row["num_accesses"] > 4 * 50
        assert 0 < row["miss_rate"] < 1 and row["speed_low"] <= row["speed"] <= row["speed_high"]
        assert row.get("peer_miss_rate", row["miss_rate"]) == pytest.approx(row["miss_rate"], abs=1e-12)
        assert ("peer_speed" in row) == (policy != "static")


def test_sides_that_differ_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "_peer_miss_rate", lambda *_: 0.0)
    with pytest.raises(RuntimeError, match=r"libcachesim misses 0\.0000, this library 0\.\d+"):
        list(caches.run(caches.Config(**GIVEN, policy="lru")))

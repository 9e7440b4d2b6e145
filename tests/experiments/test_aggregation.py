"""The aggregation benchmark runs, and both of its sides compute the same."""

import pytest

from experiments.performance import aggregation

pytest.importorskip("dgl")


def test_rows_hold_axes_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "SIZES", {"small": (300, 100, 900)})
    rows = aggregation.run(quick=True)
    assert {(r["level"], r["kind"], r["formats"]) for r in rows} == {
        (level, kind, formats)
        for level in ("operator", "layer")
        for kind in aggregation.KINDS
        for formats in ("cached", "fresh")
    }
    for row in rows:
        assert row["ratio_low"] <= row["ratio_median"] <= row["ratio_high"]
        assert min(row["ours_seconds"], row["dgl_seconds"]) > 0


def test_a_block_like_a_samplers() -> None:
    block = aggregation.sampled_like_block(300, 100, 900).validate()
    assert block.in_degrees().min() >= 1
    assert abs(block.num_edges - 900) < 150

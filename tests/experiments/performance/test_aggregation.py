"""The aggregation benchmark: both sides compute the same on a block like a sampler's."""

import pytest

from experiments.performance import aggregation


@pytest.mark.parametrize("level", ["operator", "layer"])
@pytest.mark.parametrize("kind", ["mean", "pool", "gat"])
def test_a_row_contains_times_and_their_spread(level: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dgl")
    monkeypatch.setitem(aggregation.BLOCKS, "tiny", (300, 100, 900))
    given = {"block": "tiny", "level": level, "kind": kind, "width": 16, "formats": "fresh", "repeats": 2}
    (row,) = aggregation.run(aggregation.Config(**given))  # pyright: ignore[reportArgumentType]
    assert row["ratio_low"] <= row["ratio_median"] <= row["ratio_high"]
    assert min(row["ours_seconds"], row["dgl_seconds"]) > 0


def test_a_block_like_a_samplers() -> None:
    block = aggregation.sampled_like_block(300, 100, 900).validate()
    assert block.in_degrees().min() >= 1
    assert abs(block.num_edges - 900) < 150

"""Rows of the data-placement figures against recounts, on graphs of some hundred nodes."""

from typing import Any

import pytest
import torch

import workbench as wb
from experiments.data_placement import access_probability, brute_force, loading_share, speedup

TINY: dict[str, Any] = {"dataset": {"name": "synthetic-arxiv", "scale": 0.003, "undirected": True}}
TINY |= {"fanouts": (3, 3), "batch_size": 8, "buffer_share": 0.1}
METHODS = ("random", "METIS", "METIS, own seeds", "PaGraph, own seeds", "algorithm-1")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    pytest.importorskip("pymetis")
    config = speedup.Config(**TINY, topology="2+2 GPUs", methods=METHODS)
    return {row["method"]: row for row in speedup.run(config)}


def batches_of(data: Any) -> list[torch.Tensor]:
    sampler = wb.NeighborSampler([3, 3])
    drawn = wb.batches(data.graph, data.train_idx, sampler=sampler, batch_size=8, drop_last=True)
    found = [mb.node_ids for _, mb in drawn]
    return found[: len(found) // 4 * 4]


def test_rows_are_those_that_stores_of_the_placement_read(rows: dict[str, dict[str, Any]]) -> None:
    data = wb.load_dataset("synthetic-arxiv", scale=0.003, undirected=True)
    reads = batches_of(data)
    p = wb.placement.inclusion_probability(data.graph, data.train_idx, fanouts=[3, 3], batch_size=8)
    given: dict[str, Any] = {"num_devices": 4, "groups": [[0, 1], [2, 3]], "peer_cost": 32 / 300}
    given["rows_per_device"] = int(0.1 * data.graph.num_nodes)
    for method in ("random", "algorithm-1"):
        row, links = rows[method], wb.Traffic()
        stores = wb.placement.PlacedRows.of_all(
            wb.placement.place_rows(p, **given, method=method), host=data.x, traffics=[links] * 4
        )
        for number, ids in enumerate(reads):
            stores[number % 4].read(ids)
        counts = links.snapshot()
        assert [row[f"{link}_rows"] for link in ("device", "peer", "host")] == [
            counts.count(link) for link in ("device", "peer", "host")
        ]
        assert row["batches"] == len(reads) // 4 and row["row_bytes"] == 4 * data.num_features
        counted = [(int(s.counts[d]), int(s.counts.sum()), int(s.counts[-1])) for d, s in enumerate(stores)]
        by_link = [(own, every - own - host, host) for own, every, host in counted]
        seconds = [row["row_bytes"] * (own / 0.9e12 + peer / 300e9 + host / 32e9) for own, peer, host in by_link]
        assert row["loading_seconds"] == pytest.approx(max(seconds), rel=1e-12)
        alone = [row["row_bytes"] * (own / 0.9e12 + (peer + host) / 32e9) for own, peer, host in by_link]
        assert row["alone_seconds"] == pytest.approx(max(alone), rel=1e-12)


def test_own_seeds_are_all_training_nodes_once_and_read_other_rows(rows: dict[str, dict[str, Any]]) -> None:
    shared, own = rows["METIS"], rows["METIS, own seeds"]
    assert shared["expected_cost"] == own["expected_cost"] and shared["host_rows"] != own["host_rows"]


def test_a_share_is_loading_over_both() -> None:
    pytest.importorskip("pymetis")
    found = list(loading_share.run(loading_share.Config(**TINY, topology="2 GPUs", hidden_dim=8, flops=1e13)))
    assert [row["method"] for row in found[::2]] == [row["method"] for row in found[1::2]] == [*loading_share.METHODS]
    for row in found:
        loading = row["loading_seconds" if row["reads"] == "peers too" else "alone_seconds"]
        assert row["loading_share"] == pytest.approx(loading / (loading + row["compute_seconds"])) and loading > 0
        assert row["loading_seconds"] <= row["alone_seconds"]


def test_too_few_training_nodes_are_refused() -> None:
    config = speedup.Config(**{**TINY, "batch_size": 10_000}, topology="2 GPUs", methods=("random",))
    with pytest.raises(ValueError, match=r"training nodes are fewer than 2 batches of 10000 seeds; set a smaller"):
        list(speedup.run(config))


def test_quantiles_of_the_excess_are_of_all_cases() -> None:
    found = list(brute_force.run(brute_force.Config(kind="matrix", objective="largest", cases=4)))
    assert {row["method"] for row in found} == {"search", "hottest", "random"}
    for name in ("search", "random"):
        excess = [row["excess"] for row in found if row["method"] == name]
        assert len(excess) == 21 and excess == sorted(excess) and min(excess) >= 0


def test_correlations_and_hits() -> None:
    p, q = torch.tensor([1.0, 2, 2, 4]), torch.tensor([10.0, 30, 20, 40])
    assert access_probability.rank_correlation(p, q) == pytest.approx(0.9486832980505138)  # SciPy's spearmanr
    assert access_probability.hit_rate(p, q, 2) == pytest.approx(0.7)
    config = access_probability.Config(**TINY, reference_batches=50, counted=(5,))
    found = {row["estimate"]: row for row in access_probability.run(config)}
    assert found[access_probability.REFERENCE]["rank_correlation"] == pytest.approx(1)
    assert found[access_probability.REFERENCE]["points_below"] == 0
    few = found["presampled, 5 batches"]["rank_correlation"]
    assert (
        found["inclusion"]["rank_correlation"] > few > 0
        and found[access_probability.SKETCHED]["rank_correlation"] > few
    )

"""Methods that "auto" and "fast" resolve to."""

import pytest
import torch

from tests.partition.oracles import batch_of
from tests.strategies import random_graph, random_minibatch
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import PARTITION_METHODS, partition_choices, partitioner as auto
from workbench.partition.batch.partitioner import expected_seconds, resolve_method

MB = batch_of([[0]] * 1000)  # 1000 edges in all blocks and in the output block


def test_without_a_budget() -> None:
    for objective in ("largest", "total"):
        assert resolve_method(MB, objective=objective) == "star_refined"
        assert resolve_method(MB, method="fast", objective=objective) == "star"


@pytest.mark.parametrize("method", PARTITION_METHODS)
def test_other_methods_are_unchanged(method: str) -> None:
    assert resolve_method(MB, method=method, time_budget_seconds=1e-9) == method


def test_a_partition_of_the_graph_is_used() -> None:
    for method in ("auto", "fast"):
        found = resolve_method(MB, method=method, node_parts=torch.zeros(1), time_budget_seconds=1e-9)
        assert found == "cluster"


def test_the_best_method_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("STAR", 1e-3), ("REFINE", 2e-3), ("HYPERGRAPH", 10e-3)):
        monkeypatch.setattr(auto, f"{name}_SECONDS_PER_EDGE", seconds)
    assert expected_seconds(MB) == pytest.approx({"hypergraph_refined": 12.0, "star_refined": 3.0, "star": 1.0})

    def found(seconds: float, objective: str) -> str:
        return resolve_method(MB, objective=objective, time_budget_seconds=seconds)

    budgets = (12.1, 11.9, 3.1, 2.9, 1.1, 0.9)
    refined, fewer = ["star_refined"] * 2, ["star", "star", "range"]
    assert [found(s, "total") for s in budgets] == ["hypergraph_refined", *refined, *fewer]
    assert [found(s, "largest") for s in budgets] == ["star_refined", *refined, *fewer]
    assert resolve_method(MB, method="fast", time_budget_seconds=0.9) == "star"


def test_only_the_refinement_reads_all_layers() -> None:
    mb = random_minibatch(random_graph(100, 600), fanouts=(3, 4), num_seeds=30)
    last = MiniBatch(mb.node_ids[: mb.blocks[-1].num_src], mb.blocks[-1:])
    both, one = expected_seconds(mb), expected_seconds(last)
    assert both["star"] == one["star"] and both["star_refined"] > one["star_refined"]
    assert list(both) == sorted(both, key=both.__getitem__, reverse=True) == list(one)


def test_batches_without_edges_are_within_any_budget() -> None:
    for mb in (MiniBatch(torch.arange(3), ()), MiniBatch(torch.empty(0, dtype=torch.int64), ())):
        assert resolve_method(mb, time_budget_seconds=1e-9) == "star_refined"
        assert resolve_method(mb, objective="total", time_budget_seconds=1e-9) == "hypergraph_refined"


def test_choices_are_the_policies_and_all_methods() -> None:
    assert ("auto", "fast", *PARTITION_METHODS) == partition_choices()

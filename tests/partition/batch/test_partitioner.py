"""Prepared partitions: equal to separate calls, built once, and named by the method that ran."""

import pytest
import torch

from tests.partition.oracles import part_bytes
from tests.partitioners import skip_without_library
from tests.strategies import random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.exchange import Exchange
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import ByteCosts
from workbench.partition.batch import PARTITION_METHODS, baselines as star, partition_batch, prepared_batch
from workbench.partition.batch.partitioner import Partitioner

MB = random_minibatch(random_graph(300, 1500, seed=2), fanouts=(3, 5), num_seeds=120, seed=4)


@pytest.mark.parametrize("method", PARTITION_METHODS)
def test_cuts_equal_separate_calls(method: str) -> None:
    skip_without_library(method)
    options = {"seed": 3, "node_parts": torch.arange(300) % 9 if method == "cluster" else None}
    prepared = Partitioner(method, **options).prepare(MB)
    for num_parts in (5, 2, 1):
        parts = prepared.cut(num_parts)
        assert parts.method == method
        assert torch.equal(parts.assignment, partition_batch(MB, num_parts, method=method, **options))


def test_structures_are_built_once_and_not_before_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    calls = []
    for module, name in ((star, "star_graph"), (prepared_batch, "computation_graph"), (prepared_batch, "contract")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name: calls.append(name) or real(*a))
    prepared = Partitioner().prepare(MB)
    assert prepared.cut(1).assignment.tolist() == [0] * 120 and not calls
    for num_parts in (2, 4, 8):
        prepared.cut(num_parts)
    assert sorted(calls) == ["computation_graph", "contract", "star_graph"]


def test_parts_name_the_method_that_ran() -> None:
    pytest.importorskip("pymetis")
    assert Partitioner("fast").prepare(MB).cut(3).method == "star"
    assert Partitioner().prepare(MB).cut(3).method == "star_refined"
    short = Partitioner(max_bytes=1000).prepare(MB).cut(3)
    assert short.method == "star" and torch.equal(short.assignment, partition_batch(MB, 3, method="star"))
    with pytest.raises(CapacityError, match="the refinement requires"):
        Partitioner("star_refined", max_bytes=1000).prepare(MB).cut(3)


def test_part_bytes_equal_those_of_a_split() -> None:
    prepared = Partitioner("random").prepare(MB)
    parts = prepared.cut(6)
    assert prepared.part_bytes(parts.assignment).tolist() == part_bytes(MB, parts.assignment, 6)


def test_costs_shift_the_balance() -> None:
    """With costly edges, parts are balanced by edges rather than by inputs."""
    pytest.importorskip("pymetis")
    costs = ByteCosts((1, 0, 0), (1000, 1000))
    spread = []
    for given in (None, costs):
        micro = MB.split(partition_batch(MB, 6, costs=given))
        edges = [m.num_edges for m in micro]
        spread.append(max(edges) / min(edges))
    assert spread[1] < 1.1 < spread[0]


def test_cooperative_batches_are_refused() -> None:
    none = torch.empty(0, dtype=torch.int64)
    halo = MiniBatch(MB.node_ids, MB.blocks, exchanges=(Exchange(none, (0,), (0,), none),) * 2)
    with pytest.raises(ValueError, match=r"it can't be partitioned in one process"):
        Partitioner().prepare(halo)

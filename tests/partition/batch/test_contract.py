"""What every rule that partitions a batch must do."""

import sys

import pytest
import torch
from torch import Tensor

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.partition import batch as batch_partitions
from workbench.partition.batch import PARTITION_METHODS, partition_batch, reg, resolve_method
from workbench.partition.batch.reg import BYTES_PER_NONZERO, shared_neighbours
from workbench.partition.graph import partition_graph

GRAPH = random_graph(300, 1500, seed=2)
METHODS = [*PARTITION_METHODS, "auto"]
USES_METIS = ("metis", "reg", "reg_unweighted", "auto")


def batch(num_seeds: int = 120, step: int = 0) -> MiniBatch:
    return random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=num_seeds, seed=4, step=step)


def partition(mb: MiniBatch, num_parts: int, method: str, *, seed: int = 0, weights: Tensor | None = None) -> Tensor:
    if method in USES_METIS:
        pytest.importorskip("pymetis")
    node_parts = partition_graph(GRAPH, num_parts, method="random", seed=1) if method == "cluster" else None
    return partition_batch(mb, num_parts, method=method, seed=seed, node_parts=node_parts, weights=weights)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 40])
def test_one_label_a_seed_in_range(method: str, num_parts: int) -> None:
    mb = batch()
    part = partition(mb, num_parts, method)
    assert part.dtype == torch.int64 and part.shape == (mb.num_seeds,)
    assert int(part.min()) >= 0 and int(part.max()) < num_parts
    micro = mb.split(part)
    assert sorted(torch.cat([m.seeds for m in micro]).tolist()) == sorted(mb.seeds.tolist())
    if method != "cluster":
        assert len(micro) == num_parts


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats(method: str) -> None:
    first, second = (partition(batch(), 6, method, seed=5) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("method", ["random", "metis", "reg", "reg_unweighted", "auto"])
def test_seeds_differ(method: str) -> None:
    # METIS decides nothing at random before it coarsens, which it does from about 30 nodes a part on.
    assert len({tuple(partition(batch(), 2, method, seed=seed).tolist()) for seed in range(4)}) > 1


def test_random_differs_between_steps_and_follows_the_node() -> None:
    first, second = partition(batch(), 6, "random"), partition(batch(step=1), 6, "random")
    assert not torch.equal(first, second)
    mb = batch()
    turned = MiniBatch(mb.seeds.flip(0), ())
    assert torch.equal(partition_batch(turned, 6, method="random").flip(0), first)


@pytest.mark.parametrize("method", ["range", "random", "metis", "reg", "reg_unweighted", "auto"])
def test_numbers_of_seeds_are_balanced(method: str) -> None:
    sizes = torch.bincount(partition(batch(), 4, method), minlength=4)
    assert int(sizes.max()) <= (30 if method in ("range", "random") else 33)


@pytest.mark.parametrize("method", ["range", "random", "metis", "reg", "reg_unweighted", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_weights_are_balanced(method: str, dtype: torch.dtype) -> None:
    weights = (torch.arange(120) % 7 + 1).to(dtype)
    part = partition(batch(), 4, method, weights=weights)
    loads = torch.zeros(4).index_add_(0, part, weights.float())
    assert float(loads.max()) <= 1.12 * float(loads.mean())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_degenerate_batches(method: str, num_parts: int) -> None:
    no_edges = Block(torch.zeros(6, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5, 5)
    hub = Block(torch.arange(6), torch.full((5,), 5, dtype=torch.int32), 6, 5)
    own_hub = Block(torch.arange(6), torch.zeros(5, dtype=torch.int32), 5, 5)
    for mb in (
        MiniBatch(torch.arange(5), (no_edges,)),
        MiniBatch(torch.arange(6), (hub,)),
        MiniBatch(torch.arange(5), (own_hub,)),
        MiniBatch(torch.arange(5), ()),
    ):
        part = partition(mb, num_parts, method)
        assert part.shape == (5,) and int(part.max()) < num_parts


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_and_none(method: str) -> None:
    assert partition(MiniBatch(torch.tensor([7]), ()), 1, method).tolist() == [0]
    assert partition(MiniBatch(torch.empty(0, dtype=torch.int64), ()), 1, method).tolist() == []


@pytest.mark.parametrize("method", ["range", "random", "metis", "reg", "reg_unweighted", "auto"])
def test_as_many_parts_as_seeds(method: str) -> None:
    part = partition(batch(30), 30, method)
    assert sorted(part.tolist()) == list(range(30))


def test_auto_reads_a_partition_of_the_graph() -> None:
    node_parts = partition_graph(GRAPH, 4, method="range")
    mb = batch()
    assert torch.equal(partition_batch(mb, 4, node_parts=node_parts), node_parts[mb.seeds])


def test_auto_prefers_metis_among_neighbours_and_reg_otherwise() -> None:
    pytest.importorskip("pymetis")
    everyone, few = random_minibatch(GRAPH, range(300), (5,)), random_minibatch(GRAPH, range(200, 260), (5,))
    for mb, method in ((everyone, "metis"), (few, "reg")):
        assert torch.equal(partition_batch(mb, 4), partition_batch(mb, 4, method=method))
        assert resolve_method(mb) == method
    assert torch.equal(partition_batch(few, 4, max_bytes=0), partition_batch(few, 4, method="metis"))


def test_auto_takes_reg_exactly_where_reg_may_be_built() -> None:
    pytest.importorskip("pymetis")
    few = random_minibatch(GRAPH, range(200, 260), (5,))
    needed = len(shared_neighbours(few).indices) * BYTES_PER_NONZERO
    assert resolve_method(few, max_bytes=needed) == "reg" and resolve_method(few, max_bytes=needed - 1) == "metis"
    partition_batch(few, 4, method="reg", max_bytes=needed)
    with pytest.raises(CapacityError):
        partition_batch(few, 4, method="reg", max_bytes=needed - 1)
    assert resolve_method(few, node_parts=torch.zeros(300, dtype=torch.int64)) == "cluster"


def test_auto_with_too_little_memory_for_shared_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine has left counts once, although it changes meanwhile."""
    pytest.importorskip("pymetis")
    few = random_minibatch(GRAPH, range(200, 260), (5,))
    left = iter([10**9])
    monkeypatch.setattr(batch_partitions, "available_bytes", lambda: next(left))
    monkeypatch.setattr(reg, "available_bytes", lambda: 0)
    assert torch.equal(partition_batch(few, 4), partition_batch(few, 4, method="reg", max_bytes=10**9))


@pytest.mark.parametrize("method", ["range", "random", "cluster"])
def test_rules_without_metis_need_no_pymetis(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert partition(batch(), 3, method).shape == (120,)
    with pytest.raises(ImportError, match=r"pip install pymetis"):
        partition_batch(batch(), 3, method="reg")


def test_bad_arguments_are_refused() -> None:
    mb = batch()
    with pytest.raises(ValueError, match=r"method 'best' is not known; choose from auto, cluster, metis"):
        partition_batch(mb, 2, method="best")
    with pytest.raises(ValueError, match=r"num_parts is 121, but the batch has 120 seeds"):
        partition_batch(mb, 121)
    with pytest.raises(ValueError, match=r"num_parts is 0"):
        partition_batch(mb, 0)
    with pytest.raises(ValueError, match=r"method 'range' would not use it"):
        partition_batch(mb, 2, method="range", node_parts=torch.zeros(300, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"weights"):
        partition_batch(mb, 2, method="range", weights=torch.ones(7))
    with pytest.raises(TypeError, match=r"weights"):
        partition_batch(mb, 2, method="range", weights=torch.ones(120, dtype=torch.bool))


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(bad: float) -> None:
    weights = torch.ones(120)
    weights[3] = bad
    with pytest.raises(ValueError, match=r"must be finite, not negative"):
        partition_batch(batch(), 2, method="range", weights=weights)
    with pytest.raises(ValueError, match=r"not all zero"):
        partition_batch(batch(), 2, method="range", weights=torch.zeros(120))

"""METIS on the output block."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.partition.refine.oracles import batch_of, bytes_of, part_bytes
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch, star
from workbench.partition.redundancy import redundancy


@pytest.fixture(autouse=True)
def needs_metis() -> None:
    pytest.importorskip("pymetis")


def star_parts(mb: MiniBatch, num_parts: int, **options: Any) -> Tensor:
    return partition_batch(mb, num_parts, method="star", **options)


def communities(count: int, seeds: int, sources: int, seed: int = 0) -> tuple[MiniBatch, Tensor]:
    """Build a batch whose seeds read only sources of their community; return the seeds' communities, shuffled, too."""
    rng = torch.Generator().manual_seed(seed)
    community = torch.arange(count * seeds) % count
    community = community[torch.randperm(len(community), generator=rng)]
    base = len(community) + community * sources
    return batch_of([(b + torch.randperm(sources, generator=rng)[: sources // 2]).tolist() for b in base]), community


@pytest.mark.parametrize("objective", ["largest", "total"])
@pytest.mark.parametrize(("count", "num_parts"), [(2, 2), (4, 4), (8, 4), (16, 16)])
def test_communities_are_not_cut(count: int, num_parts: int, objective: str) -> None:
    mb, community = communities(count, 24, 16)
    part = star_parts(mb, num_parts, objective=objective)
    assert redundancy(mb.split(part), mb).ratio == 1.0
    assert torch.bincount(part).tolist() == [24 * count // num_parts] * num_parts
    assert len({(int(a), int(b)) for a, b in zip(community, part, strict=True)}) == count


@pytest.mark.parametrize("fanouts", [(4,), (3, 4)])
def test_fewer_inputs_than_at_random(fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(400, 2000, seed=1), fanouts=fanouts, num_seeds=150)
    found, at_random = (
        redundancy(mb.split(partition_batch(mb, 5, method=method)), mb) for method in ("star", "random")
    )
    assert found.total_inputs < at_random.total_inputs


@pytest.mark.parametrize("num_parts", [2, 20, 59, 60])
def test_every_part_has_a_seed(num_parts: int) -> None:
    """Even if METIS assigns only sources to a part."""
    mb = random_minibatch(random_graph(600, 3000, seed=1), fanouts=(20,), num_seeds=60)
    assert mb.num_inputs > 150
    assert len(star_parts(mb, num_parts).unique()) == num_parts


def test_a_source_shared_by_all_leaves_no_part_empty() -> None:
    mb = batch_of([[20] * 3] * 20)
    assert torch.bincount(star_parts(mb, 4), minlength=4).min() >= 1


def test_vertex_weights_are_fair_shares_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of all inputs and edges, each shared among the vertices that need it; a seed has its edges' too."""
    given = {}
    real = star.metis
    monkeypatch.setattr(star, "metis", lambda *a, **options: given.update(options) or real(*a, **options))
    for fanouts in ((3,), (2, 3)):
        mb = random_minibatch(random_graph(100, 500, seed=1), fanouts=fanouts, num_seeds=40)
        star_parts(mb, 3)
        assert given["weights"].shape == (mb.blocks[-1].num_src,)
        assert float(given["weights"].sum()) == pytest.approx(bytes_of(mb))
    mb = batch_of([[2, 2, 3], []])
    star_parts(mb, 2)
    assert given["weights"].tolist() == [512 + 48, 512, 512, 512]
    star_parts(mb, 2, weights=torch.tensor([3, 1]))
    assert given["weights"].tolist() == [3, 1, 0, 0]


def test_parts_are_balanced_by_bytes() -> None:
    """A quarter of the seeds has nearly all inputs; they share four of these, which attracts them to one part."""
    shared = [80, 81, 82, 83]
    mb = batch_of([[*shared, *range(84 + 36 * v, 120 + 36 * v)] if v < 20 else [804 + v] for v in range(80)])
    sizes = part_bytes(mb, star_parts(mb, 4), 4)
    assert max(sizes) <= 1.1 * sum(sizes) / 4
    even = part_bytes(mb, star_parts(mb, 4, weights=torch.ones(80)), 4)
    assert max(even) > 2 * sum(even) / 4


def test_without_layers_seeds_are_cut_in_order() -> None:
    mb = MiniBatch(torch.arange(6), ())
    assert star_parts(mb, 3).tolist() == [0, 0, 1, 1, 2, 2]
    heavy = torch.tensor([5, 1, 1, 1, 1, 1])
    assert star_parts(mb, 2, weights=heavy).tolist() == [0, 1, 1, 1, 1, 1]


def test_without_edges_parts_are_equal() -> None:
    block = Block(torch.zeros(7, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 6, 6)
    mb = MiniBatch(torch.arange(6), (block,))
    assert torch.bincount(star_parts(mb, 3)).tolist() == [2, 2, 2]

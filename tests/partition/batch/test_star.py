"""Cuts of the output block's own graph."""

import pytest
import torch
from torch import Tensor

from tests.partition.refine.oracles import batch_of, bytes_of, part_bytes
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import star
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.batch.random import random_parts
from workbench.partition.batch.star import star_parts
from workbench.partition.redundancy import redundancy


@pytest.fixture(autouse=True)
def needs_metis() -> None:
    pytest.importorskip("pymetis")


def communities(count: int, outputs: int, sources: int, seed: int = 0) -> tuple[MiniBatch, Tensor]:
    """Outputs that read sources of their own community, and which community that is; those come in no order."""
    rng = torch.Generator().manual_seed(seed)
    own = torch.arange(count * outputs) % count
    own = own[torch.randperm(len(own), generator=rng)]
    base = len(own) + own * sources
    return batch_of([(b + torch.randperm(sources, generator=rng)[: sources // 2]).tolist() for b in base]), own


@pytest.mark.parametrize("objective", ["largest", "total"])
@pytest.mark.parametrize(("count", "num_parts"), [(2, 2), (4, 4), (8, 4), (16, 16)])
def test_communities_stay_whole(count: int, num_parts: int, objective: str) -> None:
    mb, own = communities(count, 24, 16)
    part = star_parts(mb, num_parts, PartitionOptions(objective=objective))
    assert redundancy(mb.split(part), mb).ratio == 1.0
    assert torch.bincount(part).tolist() == [24 * count // num_parts] * num_parts
    assert len({(int(a), int(b)) for a, b in zip(own, part, strict=True)}) == count


@pytest.mark.parametrize("fanouts", [(4,), (3, 4)])
def test_fewer_inputs_than_at_random(fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(400, 2000, seed=1), fanouts=fanouts, num_seeds=150)
    found, at_random = (
        redundancy(mb.split(rule(mb, 5, PartitionOptions())), mb) for rule in (star_parts, random_parts)
    )
    assert found.total_inputs < at_random.total_inputs


@pytest.mark.parametrize("num_parts", [2, 20, 59, 60])
def test_no_part_lacks_an_output(num_parts: int) -> None:
    """Though METIS may put nothing but sources into a part."""
    mb = random_minibatch(random_graph(600, 3000, seed=1), fanouts=(20,), num_seeds=60)
    assert mb.num_inputs > 150
    assert len(star_parts(mb, num_parts, PartitionOptions()).unique()) == num_parts


def test_a_source_shared_by_all_leaves_none_empty() -> None:
    mb = batch_of([[20] * 3] * 20)
    assert torch.bincount(star_parts(mb, 4, PartitionOptions()), minlength=4).min() >= 1


def test_vertices_weigh_the_bytes_that_they_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    """All inputs and edges of the batch, each shared among those that need it; an output has its edges' as well."""
    given = {}
    real = star.metis
    monkeypatch.setattr(star, "metis", lambda *a, **options: given.update(options) or real(*a, **options))
    for fanouts in ((3,), (2, 3)):
        mb = random_minibatch(random_graph(100, 500, seed=1), fanouts=fanouts, num_seeds=40)
        star_parts(mb, 3, PartitionOptions())
        assert given["weights"].shape == (mb.blocks[-1].num_src,)
        assert float(given["weights"].sum()) == pytest.approx(bytes_of(mb))
    mb = batch_of([[2, 2, 3], []])
    star_parts(mb, 2, PartitionOptions())
    assert given["weights"].tolist() == [512 + 48, 512, 512, 512]
    star_parts(mb, 2, PartitionOptions(weights=torch.tensor([3, 1])))
    assert given["weights"].tolist() == [3, 1, 0, 0]


def test_parts_are_equal_in_bytes_rather_than_in_number() -> None:
    """A quarter of the outputs has nearly all inputs; they share four of them, so in number they'd go together."""
    shared = [80, 81, 82, 83]
    mb = batch_of([[*shared, *range(84 + 36 * v, 120 + 36 * v)] if v < 20 else [804 + v] for v in range(80)])
    sizes = part_bytes(mb, star_parts(mb, 4, PartitionOptions()), 4)
    assert max(sizes) <= 1.1 * sum(sizes) / 4
    even = part_bytes(mb, star_parts(mb, 4, PartitionOptions(weights=torch.ones(80))), 4)
    assert max(even) > 2 * sum(even) / 4


def test_without_layers_the_order_is_cut() -> None:
    mb = MiniBatch(torch.arange(6), ())
    assert star_parts(mb, 3, PartitionOptions()).tolist() == [0, 0, 1, 1, 2, 2]
    heavy = PartitionOptions(weights=torch.tensor([5, 1, 1, 1, 1, 1]))
    assert star_parts(mb, 2, heavy).tolist() == [0, 1, 1, 1, 1, 1]


def test_without_edges_bytes_are_equal() -> None:
    block = Block(torch.zeros(7, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 6, 6)
    mb = MiniBatch(torch.arange(6), (block,))
    assert torch.bincount(star_parts(mb, 3, PartitionOptions())).tolist() == [2, 2, 2]

"""Counts of what cooperating ranks draw and exchange, against sets counted by hand."""

from typing import Any

import numpy as np
import pytest
import torch

import workbench as wb
from tests.strategies import random_graph
from workbench.core.graph import Graph

GRAPH = random_graph(60, 400, seed=5)
OWNER = torch.arange(60) * 7 % 5 % 3
SEEDS = torch.arange(0, 60, 3)
SAMPLER = wb.LaborSampler([3, 2])
OPTIONS: dict[str, Any] = {"sampler": SAMPLER, "owner": OWNER, "num_ranks": 3, "step": 1}


def edges_of(whole: wb.MiniBatch, number: int) -> list[tuple[int, int]]:
    block = whole.blocks[number]
    sources, rows = block.indices.long(), block.destinations.long()
    return list(zip(whole.node_ids[sources].tolist(), whole.node_ids[rows].tolist(), strict=True))


def test_counts_are_those_of_the_batch() -> None:
    work = wb.cooperative.cooperative_work(wb.cooperative.batches(GRAPH, SEEDS, **OPTIONS), row_bytes=[100, 10])
    whole, owner = SAMPLER.sample(GRAPH, SEEDS, step=1), OWNER.tolist()
    assert [(layer.rank, layer.hop) for layer in work.layers] == [(p, hop) for p in range(3) for hop in (1, 2)]
    for layer in work.layers:
        block, edges = whole.blocks[2 - layer.hop], edges_of(whole, 2 - layer.hop)
        mine = [(s, d) for s, d in edges if owner[d] == layer.rank]
        destinations = {v for v in whole.node_ids[: block.num_dst].tolist() if owner[v] == layer.rank}
        needed = destinations | {s for s, _ in mine}
        foreign = {v for v in needed if owner[v] != layer.rank}
        asked = [
            (q, s) for q in range(3) for s in {s for s, d in edges if owner[d] == q} if owner[s] == layer.rank != q
        ]
        assert layer.destinations == len(destinations)
        assert layer.owned == sum(owner[v] == layer.rank for v in whole.node_ids[: block.num_src].tolist())
        assert (layer.needed, layer.halo, layer.edges) == (len(needed), len(foreign), len(mine))
        assert layer.cross_edges == sum(owner[s] != layer.rank for s, _ in mine)
        assert layer.received_from == tuple(sum(owner[v] == q for v in foreign) for q in range(3))
        assert layer.sent == len(asked)
        size = 100 if layer.hop == 2 else 10
        expected = {"id_bytes": 8 * len(foreign), "received_bytes": size * layer.halo, "sent_bytes": size * layer.sent}
        assert expected.items() <= layer.row().items()
    assert work.distinct == (whole.blocks[1].num_src, whole.num_inputs)
    assert work.duplication == 1.0


def test_links_are_the_rows_received_by_sender() -> None:
    work = wb.cooperative.cooperative_work(wb.cooperative.batches(GRAPH, SEEDS, **OPTIONS), row_bytes=[100, 10])
    assert work.links.shape == (2, 3, 3)
    for layer in work.layers:
        assert tuple(work.links[layer.hop - 1, layer.rank].tolist()) == layer.received_from
        assert int(work.links[layer.hop - 1, :, layer.rank].sum()) == layer.sent
    assert torch.equal(work.link_bytes, 10 * work.links[0] + 100 * work.links[1])
    assert not work.link_bytes.diagonal().any()


def test_independent_ranks_duplicate_work_and_exchange_nothing() -> None:
    batches = wb.cooperative.independent_batches(GRAPH, SEEDS, **OPTIONS)
    work, inputs = wb.cooperative.cooperative_work(batches), torch.cat([mb.node_ids for mb in batches])
    assert work.distinct[-1] == len(inputs.unique()) < len(inputs)
    assert work.duplication == len(inputs) / work.distinct[-1]
    assert not work.links.any() and all(layer.needed == layer.owned for layer in work.layers)


def test_a_row_contains_means_over_ranks() -> None:
    work = wb.cooperative.cooperative_work(wb.cooperative.batches(GRAPH, SEEDS, **OPTIONS))
    row, edges = work.row(), [sum(x.edges for x in work.layers if x.rank == p) for p in range(3)]
    assert row["owned_2"] == work.distinct[1] / 3
    assert row["halo_1"] == int(work.links[0].sum()) / 3
    assert row["imbalance"] == pytest.approx(max(edges) / (sum(edges) / 3))
    assert row["cross_edge_share"] == sum(layer.cross_edges for layer in work.layers) / sum(edges)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_random_owners_make_the_share_of_cross_edges_p_minus_1_over_p(num_ranks: int) -> None:
    """For uniform owners, edges that share a node cross independently: the standard error is √(p(1 − p) / edges).

    Per needed id the share is less, because a rank's own destinations are among them.
    """
    generator = torch.Generator().manual_seed(3)
    ends = torch.randint(20_000, (2, 200_000), generator=generator)
    ends = ends[:, ends[0] != ends[1]]
    graph = Graph.from_edges(*ends, num_nodes=20_000)
    owner = wb.partition_graph(graph, num_ranks, method="random", seed=1)
    options: dict[str, Any] = {"sampler": wb.FullNeighborSampler(1), "owner": owner, "num_ranks": num_ranks}
    all_rows, few = (
        wb.cooperative.cooperative_work(wb.cooperative.batches(graph, torch.arange(seeds), **options)).row()
        for seeds in (20_000, 2000)
    )
    share = (num_ranks - 1) / num_ranks
    assert (share * (1 - share) / ends.shape[1]) ** 0.5 < 0.0025 * share
    assert all_rows["cross_edge_share"] == pytest.approx(share, rel=0.01)
    assert few["halo_1"] / few["needed_1"] < share * 0.95


def test_invalid_batches_are_refused() -> None:
    one, two = (wb.NeighborSampler([2] * n).sample(GRAPH, SEEDS) for n in (1, 2))
    with pytest.raises(ValueError, match=r"batches have \[1, 2\] layers"):
        wb.cooperative.cooperative_work([one, two])
    with pytest.raises(ValueError, match=r"batches have \[\] layers"):
        wb.cooperative.cooperative_work([])
    with pytest.raises(TypeError, match=r"batches\[1\] is a list; pass one MiniBatch per rank"):
        wb.cooperative.cooperative_work([one, []])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"row_bytes has 1 sizes for 2 layers"):
        wb.cooperative.cooperative_work([two], row_bytes=[4])


def test_row_bytes_may_be_a_numpy_integer() -> None:
    batches = wb.cooperative.batches(GRAPH, SEEDS, **OPTIONS)
    sizes: list[Any] = [8, np.int64(8)]
    works = [wb.cooperative.cooperative_work(batches, row_bytes=size) for size in sizes]
    assert works[0].layers == works[1].layers

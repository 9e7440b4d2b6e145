"""Mt-KaHyPar on hypergraphs whose optimal partitions are known."""

import sys

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from workbench.core.errors import PartitionError
from workbench.partition.metis import mtkahypar

Hypergraph = tuple[Tensor, Tensor, Tensor, int]


def hypergraph(nets: list[list[int]], count: int, net_weights: list[int] | None = None) -> Hypergraph:
    indptr = torch.tensor([0, *map(len, nets)]).cumsum(0)
    pins = torch.tensor([pin for net in nets for pin in net], dtype=torch.int32)
    return indptr, pins, torch.tensor(net_weights or [1] * len(nets), dtype=torch.int64), count


def chained_groups(groups: int, size: int) -> Hypergraph:
    """Groups of vertices that share all nets but one, which connects each group to the next."""
    nets = [[g * size + (i + j) % size for j in range(5)] for g in range(groups) for i in range(size)]
    return hypergraph(nets + [[g * size, (g + 1) % groups * size] for g in range(groups)], groups * size)


@pytest.fixture(autouse=True)
def needs_mt_kahypar(request: pytest.FixtureRequest) -> None:
    if "missing" not in request.node.name and "without" not in request.node.name:
        pytest.importorskip("mtkahypar")


@pytest.mark.parametrize("num_parts", [2, 4, 12])
def test_groups_are_not_cut(num_parts: int) -> None:
    part = mtkahypar(*chained_groups(12, 8), num_parts).view(12, 8)
    assert bool((part == part[:, :1]).all())
    assert torch.bincount(part[:, 0]).tolist() == [12 // num_parts] * num_parts


def test_heavy_nets_are_not_cut() -> None:
    square = [[0, 1], [1, 2], [2, 3], [3, 0]]
    first = mtkahypar(*hypergraph(square, 4, [9, 1, 9, 1]), 2)
    second = mtkahypar(*hypergraph(square, 4, [1, 9, 1, 9]), 2)
    assert first[0] == first[1] != first[2] == first[3]
    assert second[1] == second[2] != second[3] == second[0]


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e12])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_vertex_weights_are_balanced(scale: float, dtype: torch.dtype) -> None:
    """Also beyond 32 bits, in which Mt-KaHyPar sums them."""
    weights = torch.ones(96, dtype=torch.float64)
    weights[:24] = 3.0
    weights = (weights * scale).to(dtype) if scale >= 1 or dtype == torch.float64 else weights.to(dtype)
    part = mtkahypar(*chained_groups(12, 8), 4, weights=weights)
    loads = torch.zeros(4, dtype=torch.float64).index_add_(0, part, weights.double())
    assert float(loads.max()) <= 1.1 * float(loads.mean())


def test_results_are_reproducible() -> None:
    vertices = torch.rand(600, 300, generator=torch.Generator().manual_seed(0)).argsort(1)[:, :3]
    nets = hypergraph(vertices.tolist(), 300)
    runs = [tuple(mtkahypar(*nets, 7, seed=seed).tolist()) for seed in (0, 1, 2, 3, 3, 1, 2, 0)]
    assert runs[:4] == [runs[i] for i in (7, 5, 6, 4)] and len(set(runs)) > 1


@given(st.data())
def test_no_part_is_empty(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    vertex = st.integers(0, count - 1)
    nets = data.draw(
        st.lists(st.lists(vertex, min_size=2, max_size=count, unique=True), max_size=30) if count > 1 else st.just([])
    )
    num_parts = data.draw(st.integers(1, count))
    weights = data.draw(st.none() | st.lists(st.sampled_from([0.0, 1.0, 50.0]), min_size=count, max_size=count))
    weights = None if weights is None or not any(weights) else torch.tensor(weights)
    part = mtkahypar(*hypergraph(nets, count), num_parts, weights=weights)
    assert part.shape == (count,) and sorted(set(part.tolist())) == list(range(num_parts))


@pytest.mark.parametrize("num_parts", [2, 7, 99])
def test_a_net_of_all_vertices(num_parts: int) -> None:
    sizes = torch.bincount(mtkahypar(*hypergraph([list(range(100))], 100), num_parts), minlength=num_parts)
    assert int(sizes.min()) >= 1 and int(sizes.max()) <= max(2, 1.1 * 100 / num_parts)


def test_many_parts() -> None:
    sizes = torch.bincount(mtkahypar(*chained_groups(256, 8), 512), minlength=512)
    assert int(sizes.min()) >= 1 and int(sizes.max()) <= 5


def test_without_nets_vertices_are_cut_in_order() -> None:
    assert mtkahypar(*hypergraph([], 6), 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert mtkahypar(*hypergraph([[0, 1, 2]], 3), 3).tolist() == [0, 1, 2]


def test_a_time_limit_ends_it() -> None:
    with pytest.raises(PartitionError, match=r"Mt-KaHyPar was ended after .* over its limit of 0.001 s"):
        mtkahypar(*chained_groups(2000, 8), 8, time_limit_seconds=0.001)


def test_an_unknown_preset_is_reported() -> None:
    with pytest.raises(PartitionError, match=r"Mt-KaHyPar failed with exit code 1 .*SPEEDY"):
        mtkahypar(*chained_groups(4, 8), 2, preset="SPEEDY")


def test_missing_mt_kahypar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mtkahypar", None)
    with pytest.raises(ImportError, match=r"needs Mt-KaHyPar: pip install mtkahypar, or choose a method without it"):
        mtkahypar(*chained_groups(4, 8), 2)

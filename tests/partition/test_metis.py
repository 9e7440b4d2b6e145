"""METIS, as batch and graph partitions call it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given

from tests.strategies import graphs
from workbench.core.graph import Graph
from workbench.partition.isolated import METIS, run_program
from workbench.partition.metis import metis, symmetric_adjacency, whole_weights


def edges(indptr: torch.Tensor, indices: torch.Tensor) -> list[tuple[int, int]]:
    rows = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return list(zip(rows.tolist(), indices.tolist(), strict=True))


@given(graphs())
def test_adjacency_is_the_undirected_simple_graph(g: Graph) -> None:
    given_edges = edges(g.indptr, g.indices)
    expected = {(a, b) for a, b in given_edges if a != b} | {(b, a) for a, b in given_edges if a != b}
    found = edges(*symmetric_adjacency(g.indptr, g.indices))
    assert len(found) == len(set(found))
    assert set(found) == expected


def ring_of_cliques(cliques: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = [(c * size + i, c * size + j) for c in range(cliques) for i in range(size) for j in range(size) if i != j]
    pairs += [(c * size, (c + 1) % cliques * size) for c in range(cliques)]
    pairs = sorted(set(pairs) | {(b, a) for a, b in pairs})
    rows, columns = torch.tensor(pairs).T.contiguous()
    return torch.cat((torch.zeros(1, dtype=torch.int64), torch.bincount(rows).cumsum(0))), columns.contiguous()


@pytest.mark.parametrize("num_parts", [2, 4, 12])
def test_cliques_are_not_cut(num_parts: int) -> None:
    pytest.importorskip("pymetis")
    part = metis(*ring_of_cliques(12, 8), num_parts).view(12, 8)
    assert bool((part == part[:, :1]).all())
    assert torch.bincount(part[:, 0]).tolist() == [12 // num_parts] * num_parts


def test_heavy_edges_are_not_cut() -> None:
    pytest.importorskip("pymetis")
    # A square 0-1-2-3: first its edges 0-1 and 2-3 are heavy, then the other two.
    indptr, indices = torch.tensor([0, 2, 4, 6, 8]), torch.tensor([1, 3, 0, 2, 1, 3, 2, 0])
    heavy = torch.tensor([9, 1, 9, 1, 1, 9, 9, 1])
    first, second = metis(indptr, indices, 2, edge_weight=heavy), metis(indptr, indices, 2, edge_weight=10 - heavy)
    assert first[0] == first[1] != first[2] == first[3]
    assert second[0] == second[3] != second[1] == second[2]


def test_node_weights_are_balanced() -> None:
    pytest.importorskip("pymetis")
    weights = torch.ones(96)
    weights[:24] = 3.0
    part = metis(*ring_of_cliques(12, 8), 4, weights=weights)
    loads = torch.zeros(4).index_add_(0, part, weights)
    assert float(loads.max()) <= 1.1 * float(loads.mean())


def test_results_are_reproducible() -> None:
    pytest.importorskip("pymetis")
    indptr, indices = ring_of_cliques(40, 3)
    runs = {tuple(metis(indptr, indices, 3, seed=seed).tolist()) for seed in (0, 1, 2, 3, 0, 1, 2, 3)}
    assert 1 < len(runs) <= 4


@pytest.mark.parametrize("recursive", [False, True])
def test_numpy_buffers_give_the_same_parts(tmp_path: Path, recursive: bool) -> None:
    pytest.importorskip("pymetis")
    script = tmp_path / "program.py"
    script.write_text(METIS.script.read_text().replace("_NUMPY_FROM = 1 << 20", "_NUMPY_FROM = 0"))
    indptr, indices = ring_of_cliques(40, 8)
    heavy = {"edge_weights": torch.ones_like(indices), "vertex_weights": torch.arange(320) % 7 + 1}
    given = {"indptr": indptr, "indices": indices, **heavy}
    programs = (METIS, replace(METIS, script=script))
    options = {"num_parts": 5, "seed": 3, "imbalance": 0.03, "rounds": 10, "recursive": recursive}
    small, large = (run_program(p, given, options, num_results=320) for p in programs)
    assert torch.equal(small, large) and len(small.unique()) == 5


def test_without_edges_nodes_are_cut_in_order() -> None:
    empty = torch.zeros(7, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    assert metis(*empty, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert metis(*empty, 2, weights=torch.tensor([5.0, 1, 1, 1, 1, 1])).tolist() == [0, 1, 1, 1, 1, 1]


def test_integer_weights_are_unchanged_and_others_scaled() -> None:
    assert whole_weights(torch.tensor([3, 1, 2])).tolist() == [3, 1, 2]
    assert whole_weights(torch.tensor([0, 2])).tolist() == [1, 2000]
    assert whole_weights(torch.tensor([1e-9, 1.0], dtype=torch.float64)).tolist() == [1, 2000]
    assert whole_weights(torch.tensor([2**50, 2**50])).tolist() == [1000, 1000]
    assert whole_weights(torch.tensor([2**50, 2**50]), max_total=500).tolist() == [250, 250]
    assert whole_weights(torch.tensor([200, 301]), max_total=500).tolist() == [200, 300]


def test_a_missing_pymetis_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"pip install pymetis"):
        metis(*ring_of_cliques(2, 3), 2)

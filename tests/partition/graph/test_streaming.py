"""The streaming partitioner beside a brute force in plain Python, and its invariants."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor

import workbench as wb
from tests.strategies import random_edges, random_graph
from workbench.partition.graph.streaming import STREAMING_METHODS, partition_stream

GREEDY = ("ldg", "fennel")
Edges = list[tuple[int, int]]


def brute_force(edges: Edges, num_nodes: int, num_parts: int, method: str, imbalance: float) -> list[int]:
    """Greedy partition from its definition: nodes arrive in the order of their first run of edges, then the rest."""
    runs: list[tuple[int, list[int]]] = []
    for src, dst in edges:
        if not runs or runs[-1][0] != dst:
            runs.append((dst, []))
        runs[-1][1].append(src)
    runs += [(node, []) for node in range(num_nodes)]
    capacity = min(num_nodes, math.ceil((1 + imbalance) * num_nodes / num_parts))
    owner: dict[int, int] = {}
    for node, sources in runs:
        if node in owner:
            continue
        sizes = [list(owner.values()).count(part) for part in range(num_parts)]
        scores = {}
        for part in range(num_parts):
            neighbours = sum(owner.get(source) == part for source in sources)
            if method == "ldg":
                scores[part] = neighbours * (1 - sizes[part] / capacity)
            else:
                alpha = num_parts**0.5 * (len(edges) / 2) / num_nodes**1.5
                scores[part] = neighbours - alpha * 1.5 * math.sqrt(sizes[part])
        free = [part for part in range(num_parts) if sizes[part] < capacity]
        owner[node] = max(free, key=lambda part: (scores[part], -sizes[part], -part))
    return fill_empty([owner[node] for node in range(num_nodes)], num_parts)


def fill_empty(owner: list[int], num_parts: int) -> list[int]:
    """Give an empty part the last node of the largest part."""
    for part in range(num_parts):
        if part not in owner:
            largest = max(range(num_parts), key=lambda p: (owner.count(p), -p))
            owner[max(node for node, p in enumerate(owner) if p == largest)] = part
    return owner


def cut_into_chunks(edges: Edges, cuts: list[int]) -> list[tuple[Tensor, Tensor]]:
    """Cut a list of edges at positions, which may repeat: chunks may be empty."""
    src, dst = torch.tensor(edges, dtype=torch.int64).view(-1, 2).T
    bounds = [0, *sorted(cut % (len(edges) + 1) for cut in cuts), len(edges)]
    return [(src[a:b], dst[a:b]) for a, b in pairwise(bounds)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[Edges, int, int]:
    """Edges in random order or grouped by destination; number of nodes and of parts."""
    nodes = draw(st.integers(1, 14))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    if draw(st.booleans()):
        edges.sort(key=lambda edge: edge[1])
    return edges, nodes, draw(st.integers(1, nodes))


@given(streams(), st.lists(st.integers(0, 40), max_size=5), st.sampled_from(GREEDY), st.sampled_from([0.0, 0.1, 1.0]))
@example(([(0, 0)] * 6 + [(0, 1), (0, 2)], 6, 3), [], "fennel", 0.1)  # a tie, but for the rounding of the square root
def test_equals_brute_force_for_any_chunks(
    stream: tuple[Edges, int, int], cuts: list[int], method: str, imbalance: float
) -> None:
    edges, nodes, parts = stream
    options = {"num_nodes": nodes, "method": method, "imbalance": imbalance}
    owner = partition_stream(cut_into_chunks(edges, cuts), parts, **options)
    assert owner.dtype == torch.int32
    assert owner.tolist() == brute_force(edges, nodes, parts, method, imbalance)
    assert torch.equal(owner, partition_stream(cut_into_chunks(edges, []), parts, **options))
    sizes = torch.bincount(owner, minlength=parts)
    assert int(sizes.min()) >= 1 and int(sizes.max()) <= math.ceil((1 + imbalance) * nodes / parts)


@pytest.mark.parametrize("method", STREAMING_METHODS)
def test_graph_is_a_stream_of_its_rows(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(60, 400, seed=3)
    rows = [(graph.indices, torch.repeat_interleave(torch.arange(60), graph.in_degrees()))]
    whole = partition_stream(graph, 4, method=method, seed=5)
    assert torch.equal(whole, partition_stream(rows, 4, num_nodes=60, method=method, seed=5))
    assert torch.equal(whole.long(), wb.partition_graph(graph, 4, method=method, seed=5))
    monkeypatch.setattr("workbench.core.edge_stream.CHUNK_EDGES", 7)
    assert torch.equal(whole, partition_stream(graph, 4, method=method, seed=5))


def communities(num_nodes: int = 400, num_communities: int = 4, degree: int = 12) -> wb.Graph:
    """Undirected edges within communities of consecutive ids, and one of ten at random."""
    rng = random.Random(0)
    size = num_nodes // num_communities
    src = [node for node in range(num_nodes) for _ in range(degree // 2)]
    dst = [
        rng.randrange(num_nodes) if rng.random() < 0.1 else node // size * size + rng.randrange(size) for node in src
    ]
    ids = list(range(num_nodes))
    rng.shuffle(ids)
    ends = torch.tensor(ids)
    return wb.Graph.from_edges(ends[src], ends[dst], num_nodes=num_nodes, undirected=True)


@pytest.mark.parametrize("method", GREEDY)
def test_greedy_methods_find_communities(method: str) -> None:
    graph = communities()
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())

    def cut(method: str) -> int:
        owner = partition_stream(graph, 4, method=method)
        return int((owner[rows] != owner[graph.indices]).sum())

    assert cut(method) < 0.6 * cut("random")


def test_memory_is_for_nodes_and_a_chunk() -> None:
    nodes, chunk = 20_000, 1_000
    src, dst = (torch.tensor(ends, dtype=torch.int32) for ends in random_edges(nodes, chunk, 0))

    def peak(num_chunks: int) -> int:
        chunks = ((src, dst) for _ in range(num_chunks))
        options = {"num_nodes": nodes, "num_edges": chunk * num_chunks, "method": "fennel"}
        return wb.measure_peak(lambda: partition_stream(chunks, 4, **options))

    peak(1)
    assert peak(40) <= peak(2) <= 80 * nodes + 50 * chunk


def test_progress_counts_edges() -> None:
    seen: list[int] = []
    chunks = [([0, 1], [1, 0]), ([], []), ([2], [1])]
    partition_stream(chunks, 2, num_nodes=3, progress=seen.append)
    assert seen == [2, 2, 3]


def test_number_of_edges_of_fennel() -> None:
    chunks = [([0, 1, 3], [1, 0, 2]), ([2, 0], [3, 3])]
    known = partition_stream(chunks, 2, num_nodes=4, method="fennel")
    assert torch.equal(known, partition_stream(iter(chunks), 2, num_nodes=4, method="fennel", num_edges=5))
    with pytest.raises(ValueError, match=r"num_edges is None, but fennel .* pass num_edges=, or use"):
        partition_stream(iter(chunks), 2, num_nodes=4, method="fennel")


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        ([([0], [1]), ([0], [7])], IndexError, r"dst of chunk 1 contains 7; ids must be in \[0, 4\); number the nodes"),
        ([([-1], [1])], IndexError, r"src of chunk 0 contains -1"),
        ([([0, 1], [1])], ValueError, r"chunk 0 has 2 sources, but 1 destinations"),
        (
            [(torch.zeros(2), torch.zeros(2))],
            TypeError,
            r"src of chunk 0 must be an int64 or int32 tensor, not torch.float32",
        ),
        ([(np.zeros(1, np.uint8), np.zeros(1, np.int64))], TypeError, r"src of chunk 0 must be"),
        ([torch.zeros(3, 2)], TypeError, r"chunk 0 is Tensor, not a pair"),
        ([5], TypeError, r"chunk 0 is int, not a pair"),
        (5, TypeError, r"edges is an int; pass a Graph, an EdgeFile or pairs"),
    ],
)
def test_bad_streams_are_refused(chunks: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        partition_stream(chunks, 2, num_nodes=4)  # type: ignore[arg-type]


def test_bad_arguments_are_refused() -> None:
    graph = random_graph(5, 9)
    with pytest.raises(ValueError, match=r"num_nodes is None, but a stream does not tell"):
        partition_stream([([0], [1])], 2)
    with pytest.raises(ValueError, match=r"num_nodes is 6, but the graph has 5"):
        partition_stream(graph, 2, num_nodes=6)
    with pytest.raises(ValueError, match=r"num_parts is 6, but the graph has 5 nodes"):
        partition_stream(graph, 6)
    with pytest.raises(ValueError, match=r"imbalance is -0.1; it must be a fraction"):
        partition_stream(graph, 2, imbalance=-0.1)
    with pytest.raises(ValueError, match=r"method 'metis' is not known; choose from fennel, ldg, random, range"):
        partition_stream(graph, 2, method="metis")
    assert partition_stream([], 1, num_nodes=0).tolist() == []

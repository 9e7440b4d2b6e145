"""PaGraph's partition against the published algorithm on sets."""

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph


def published(graph: wb.Graph, train: list[int], num_parts: int, num_hops: int) -> tuple[list[int], list[set[int]]]:
    """Algorithm of the paper with Python sets."""
    rows = [set(graph.indices[a:b].tolist()) for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]

    def reaching(v: int) -> set[int]:
        found, frontier = {v}, {v}
        for _ in range(num_hops):
            frontier = set().union(*(rows[u] for u in frontier)) - found
            found |= frontier
        return found

    trained: list[set[int]] = [set() for _ in range(num_parts)]
    closed: list[set[int]] = [set() for _ in range(num_parts)]
    assignment = []
    for v in train:
        near = reaching(v)
        scores = [
            len(t & near) * (len(train) / num_parts - len(t)) / max(1, len(c))
            for t, c in zip(trained, closed, strict=True)
        ]
        best = min(range(num_parts), key=lambda i: (-scores[i], len(trained[i]), i))
        trained[best].add(v)
        closed[best] |= near
        assignment.append(best)
    return assignment, closed


@pytest.mark.parametrize("seed", range(8))
def test_as_published(seed: int) -> None:
    graph = random_graph(60, 150, seed=seed)
    train = torch.randperm(60, generator=torch.Generator().manual_seed(seed))[:25]
    hops, parts = 1 + seed % 3, 2 + seed % 2
    found = wb.partition.pagraph_parts(graph, train, parts, num_hops=hops)
    assignment, closed = published(graph, train.tolist(), parts, hops)
    assert found.assignment.tolist() == assignment
    assert [nodes.tolist() for nodes in found.nodes] == [sorted(c) for c in closed]


def test_bad_input() -> None:
    graph = random_graph(10, 20)
    with pytest.raises(ValueError, match="num_parts is 0"):
        wb.partition.pagraph_parts(graph, torch.arange(3), 0, num_hops=1)
    with pytest.raises(ValueError, match="num_hops is 127"):
        wb.partition.pagraph_parts(graph, torch.arange(3), 2, num_hops=127)
    with pytest.raises(IndexError, match="train_ids contains 10"):
        wb.partition.pagraph_parts(graph, torch.tensor([10]), 2, num_hops=1)

"""The protocol of samplers: what a class with `draw` alone inherits, and which arguments and rows are refused."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.sampling.stars import star
from tests.strategies import random_graph
from workbench.core.graph import Graph
from workbench.sampling.sampler import require_row_independence

NODES = torch.tensor([0, 1])


@dataclass(frozen=True)
class Fixed(wb.Sampler):
    """Returns the same rows in every layer."""

    drawn: wb.sampling.Drawn
    num_layers: int = 1
    rows_are_independent: bool = False

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> wb.sampling.Drawn:
        return self.drawn


def test_the_weight_drawn_is_the_weight_of_the_block() -> None:
    graph = random_graph(4, 9, edge_weight=torch.float64, num_edge_types=2)
    weight = torch.tensor([0.5, 2.0])
    drawn = wb.sampling.Drawn(torch.tensor([0, 1, 2]), graph.indices[:2].clone(), weight=weight)
    block = Fixed(drawn).sample(graph, NODES).blocks[0]
    assert block.edge_weight is weight
    assert block.edge_type is block.edge_ids is None  # without positions


def test_sampling_does_not_overwrite_the_sources_that_a_draw_returns() -> None:
    graph = Graph(torch.tensor([0, 2, 4, 4, 4]), torch.tensor([3, 2, 3, 2], dtype=torch.int32))
    mb = Fixed(wb.sampling.Drawn(graph.indptr[:3], graph.indices)).sample(graph, NODES)
    assert graph.indices.tolist() == [3, 2, 3, 2]
    assert mb.blocks[0].indices.tolist() == [2, 3, 2, 3]
    assert mb.node_ids.tolist() == [0, 1, 3, 2]


class Remembering(wb.NeighborSampler):
    """Draws the rows of some nodes once, and returns what it has drawn."""

    kept: ClassVar[dict[Any, wb.sampling.Drawn]] = {}

    def draw(self, graph: Graph, nodes: Tensor, **options: Any) -> wb.sampling.Drawn:
        key = type(self), graph, options["layer"], tuple(nodes.tolist())
        if key not in self.kept:
            self.kept[key] = super().draw(graph, nodes, **options)
        return self.kept[key]


class Promising(Remembering):
    """Says that it keeps no sources, and does."""

    sources_are_new = True


def test_a_subclass_with_a_draw_of_its_own_keeps_its_sources() -> None:
    graph, seeds = Graph.from_edges(torch.arange(50, 60), torch.zeros(10, dtype=torch.int64), num_nodes=60), NODES[:1]
    expected = wb.NeighborSampler([3]).sample(graph, seeds).node_ids
    owned = wb.sampling.OwnedGraph.of(graph, torch.arange(60) % 2, rank=0)
    for kind, kept in ((Remembering, True), (Promising, False)):
        sampler = kind([3])
        for _ in range(2):
            found = sampler.sample(graph, seeds).node_ids
        assert torch.equal(found, expected) == kept
    sampler = Remembering([3])
    first, second = (wb.cooperative.sample_owned(owned, seeds, sampler=sampler) for _ in range(2))
    asked = [next(steps) for steps in (first, second)]
    assert torch.equal(asked[0][1], asked[1][1]) and (asked[0][1] >= 50).all()


def test_a_sampler_needs_draw() -> None:
    class Nothing(wb.Sampler):
        num_layers, rows_are_independent = 1, True

    with pytest.raises(TypeError, match=r"abstract.*draw"):
        Nothing()  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (wb.sampling.Drawn(torch.tensor([0, 1]), torch.tensor([1])), "indptr of the drawn rows .*must be 3"),
        (
            wb.sampling.Drawn(torch.tensor([0, 1, 1]), torch.tensor([1.0])),
            "sources of the drawn rows must be a tensor of",
        ),
        (
            wb.sampling.Drawn(torch.tensor([0, 1, 1]), torch.tensor([1]), torch.tensor([1, 2])),
            "positions of the drawn rows",
        ),
        (
            wb.sampling.Drawn(torch.tensor([0, 1, 1]), torch.tensor([1]), weight=torch.tensor([1])),
            "weight of the drawn rows",
        ),
        (wb.sampling.Drawn(torch.tensor([0, 1, 1]), torch.tensor([7])), r"contain 7; sources must be in \[0, 4\)"),
    ],
)
def test_rows_that_kernels_could_not_trust_are_refused(drawn: wb.sampling.Drawn, message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=message):
        Fixed(drawn).sample(star(3), NODES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": object()}, "graph is an object; pass a Graph"),
        ({"layer": 2}, "layer is 2; it must be a whole number from 0 to 1"),
        ({"layer": -1}, "layer is -1; it must be a whole number of at least 0"),
        ({"step": 0.5}, r"step is 0\.5"),
        ({"nodes": torch.tensor([True, False])}, "nodes must be an int64 or int32 tensor.*convert a mask"),
        ({"nodes": torch.tensor([[0]])}, "nodes must be a vector"),
        ({"nodes": torch.tensor([0, 4])}, r"nodes contains 4; ids must be in \[0, 4\)"),
        ({"nodes": torch.tensor([-1], dtype=torch.int32)}, "nodes contains -1"),
        ({"exclude_edges": torch.tensor([3])}, "edge_ids contains 3"),
    ],
)
def test_draw_checks_its_arguments(change: dict, message: str) -> None:
    valid = {"graph": star(3), "nodes": NODES, "layer": 1, "step": 0}
    with pytest.raises((TypeError, ValueError, IndexError), match=message):
        wb.NeighborSampler([2, 2]).draw(**valid | change)


def test_draw_takes_a_node_twice_and_none() -> None:
    sampler = wb.NeighborSampler([2])
    twice = sampler.draw(star(9), torch.tensor([0, 3, 0], dtype=torch.int32), layer=0)
    assert twice.indptr.tolist() == [0, 2, 2, 4]
    assert twice.sources[:2].tolist() == twice.sources[2:].tolist()
    assert len(sampler.draw(star(9), NODES[:0], layer=0).sources) == 0


def test_dependent_rows_are_refused_by_name() -> None:
    require_row_independence(wb.NeighborSampler([2]), "cooperative sampling")
    message = "cooperative sampling needs .* Fixed with these options does not .*use NeighborSampler"
    with pytest.raises(ValueError, match=message):
        require_row_independence(Fixed(wb.sampling.Drawn(NODES, NODES)), "cooperative sampling")


class Counted(wb.NeighborSampler):
    """Counts how often it draws."""

    layers: list[int] = []  # noqa: RUF012

    def draw(self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None):
        self.layers.append(layer)
        return super().draw(graph, nodes, layer=layer, step=step, exclude_edges=exclude_edges)


def test_sample_calls_the_draw_of_a_subclass() -> None:
    graph, seeds, excluded = random_graph(30, 200, seed=3), torch.tensor([5, 2]), torch.arange(0, 200, 3)
    ours, plain = (kind([3, 4]).sample(graph, seeds, exclude_edges=excluded) for kind in (Counted, wb.NeighborSampler))
    assert Counted.layers == [1, 0]
    for mine, theirs in zip(ours.blocks, plain.blocks, strict=True):
        assert torch.equal(mine.indptr, theirs.indptr) and torch.equal(mine.indices, theirs.indices)

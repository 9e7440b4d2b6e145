"""A small graph, its owners, samplers and models, on which ranks are compared with one process."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import workbench as wb
from workbench.core.randomness import Smoothed
from workbench.distributed.group import gather_numbers

NODES, TYPES, CLASSES, WIDTH = 70, 3, 4, 6
STEP = 11
Rows = Iterator[Mapping[str, Any]]


def new_graph() -> wb.Graph:
    """Typed edges with reverses, and weights."""
    edges = torch.randint(NODES, (2, 220), generator=torch.Generator().manual_seed(1))
    kinds = edges.sum(0) % TYPES
    return wb.Graph.from_edges(*edges, num_nodes=NODES, undirected="multi", edge_type=kinds, num_edge_types=TYPES)


GRAPH = new_graph()
X = torch.linspace(-9, 9, NODES * WIDTH, dtype=torch.float64).sin().view(NODES, WIDTH)
Y = torch.where(torch.arange(NODES) % 5 == 0, -1, torch.arange(NODES) % CLASSES)

SAMPLERS: dict[str, Callable[[Any], wb.Sampler]] = {
    "neighbor": lambda dependence: wb.NeighborSampler([4, 3], seed=3, dependence=dependence),
    "replace": lambda dependence: wb.NeighborSampler([4, 3], seed=3, replace=True, dependence=dependence),
    "labor": lambda dependence: wb.LaborSampler([4, 3], seed=3, dependence=dependence),
    "random walk": lambda dependence: wb.RandomWalkSampler([3, 3], num_walks=8, seed=3, dependence=dependence),
}


def new_sampler(name: str, dependent: bool) -> wb.Sampler:
    return SAMPLERS[name](Smoothed(8) if dependent else None)


def new_model(kind: str, dropout: float = 0.5) -> nn.Module:
    options: dict[str, Any] = {"heads": 2} if kind == "gat" else {}
    if kind == "rgcn":
        options = {"num_relations": 2 * TYPES}
    sizes = {"in_dim": WIDTH, "hidden_dim": 8, "out_dim": CLASSES}
    return wb.build_model(kind, **sizes, dropout=dropout, seed=4, **options).double()


def owner_of(num_ranks: int) -> Tensor:
    """Unequal shares, mixed."""
    return (torch.arange(NODES) * 7 % 11 % num_ranks).to(torch.int32)


def seeds_of(num_ranks: int) -> Tensor:
    """A number of seeds that ranks do not divide; from three ranks on, the last has none."""
    ids = torch.arange(NODES)[torch.randperm(NODES, generator=torch.Generator().manual_seed(5))]
    return (ids if num_ranks < 3 else ids[owner_of(num_ranks)[ids] < num_ranks - 1])[:23]


def gradients(model: nn.Module) -> Tensor:
    """All gradients as one vector, zeros for parameters without one."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


def difference(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())


def edges(mb: wb.MiniBatch) -> list[list[tuple[Any, ...]]]:
    """Per block, the edges in raw ids with their types and weights."""
    found = []
    for layer, block in enumerate(mb.blocks):
        halo = mb.node_ids[:0] if mb.exchanges is None else mb.exchanges[layer].halo_ids
        sources = torch.cat([mb.node_ids[: block.num_src - len(halo)], halo])
        columns: list[Any] = [mb.node_ids[block.destinations.long()].tolist(), sources[block.indices.long()].tolist()]
        columns += [c.tolist() for c in (block.edge_type, block.edge_weight) if c is not None]
        found.append([*zip(*columns, strict=True)])
    return found


def nodes(mb: wb.MiniBatch) -> list[list[int]]:
    """S^l of every layer: inputs first, seeds last."""
    owned = [mb.num_inputs, *[block.num_dst for block in mb.blocks]]
    return [mb.node_ids[:count].tolist() for count in owned]


def worst(value: float) -> float:
    """The largest of all ranks."""
    return max(gather_numbers(value))


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, in order."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def owned_graph() -> wb.sampling.OwnedGraph:
    size = wb.distributed.get_world_size()
    return wb.sampling.OwnedGraph.of(GRAPH, owner_of(size), wb.distributed.get_rank(), size)


class Descent:
    """Gradient descent; torch's optimizers import its compiler, which takes every rank a second."""

    def __init__(self, model: torch.nn.Module, rate: float = 0.0) -> None:
        self.param_groups, self.rate = [{"params": list(model.parameters())}], rate

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter -= self.rate * parameter.grad


def new_optimizer(model: torch.nn.Module, rate: float = 0.0) -> Any:
    return Descent(model, rate)

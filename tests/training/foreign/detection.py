"""What `check_exact` says of a layer on a batch, beside the deviation of four parts from the whole batch in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

import workbench as wb
from tests.training.foreign.cases import NUM_EDGES, NUM_NODES, NUM_TYPES, WIDTH, Case, Network, forward_of
from tests.training.toys import gradients, relative_difference

NUM_SEEDS = 24
ROUNDING = 1e-8
DENSITIES = {"dense": (NUM_NODES, NUM_EDGES, (3, -1)), "sparse": (2000, 5000, (-1, -1))}
"""Nodes, edges and fanouts."""


@dataclass(frozen=True)
class Detection:
    """What was said and what is so.

    Args:
        result: what `check_exact` says.
        deviation: by how much outputs or gradients of four parts differ from those of the whole batch.
        is_exact: whether that is rounding.
    """

    result: wb.training.Exactness
    deviation: float
    is_exact: bool


@cache
def batch_of(density: str, *, merged: bool) -> wb.MiniBatch:
    """A batch of two layers whose nodes all have in-edges, which DGL asks for, and some of which share neighbours."""
    num_nodes, num_edges, fanouts = DENSITIES[density]
    generator = torch.Generator().manual_seed(3)
    hubs = (num_nodes * torch.rand(num_edges - 2 * num_nodes, generator=generator) ** 2).long()
    popular = (num_nodes * torch.rand(num_edges, generator=generator) ** 2).long()
    graph = wb.Graph.from_edges(
        torch.randint(num_nodes, (num_edges,), generator=generator) if density == "dense" else popular,
        torch.cat([torch.arange(num_nodes).repeat(2), hubs]),
        num_nodes=num_nodes,
        edge_weight=0.1 + torch.rand(num_edges, generator=generator, dtype=torch.float64),
        edge_type=torch.randint(NUM_TYPES, (num_edges,), generator=generator),
    )
    sampled = wb.NeighborSampler(list(fanouts), edge_ids=True).sample(graph, torch.arange(NUM_SEEDS))
    return as_merged(sampled) if merged else sampled


def as_merged(mb: wb.MiniBatch) -> wb.MiniBatch:
    """Let every node keep one sample for all layers."""
    return wb.MiniBatch.from_pyg(mb.to_pyg("edge_index"))


def features(ids: Tensor) -> Tensor:
    """Rows that are all different: between equal ones, rounding would choose the maximum that gets the gradient."""
    return (0.37 * (WIDTH * ids[:, None] + torch.arange(WIDTH)).double()).sin()


def detect(library: str, case: Case, mb: wb.MiniBatch, *, merged: bool) -> Detection:
    """Check a network of a case's layers on a batch, and measure it.

    Args:
        library: "dgl" or "pyg".
        case: the layer.
        mb: the batch, of any graph.
        merged: layers are called with all edges of the batch.
    """
    torch.manual_seed(0)
    model = without_dropout(Network(case, library).to(case.dtype))
    forward = forward_of(model, library, merged=merged)
    result = wb.check_exact(model, mb, x=features(mb.node_ids).to(case.dtype), forward=forward)
    measured = deviation(model, mb, forward, case.dtype)
    return Detection(result, measured, measured <= (ROUNDING if case.dtype == torch.float64 else 1e-5))


def deviation(model: nn.Module, mb: wb.MiniBatch, forward: Callable[..., Tensor], dtype: torch.dtype) -> float:
    """By how much outputs or gradients of four parts differ from those of the whole batch."""
    coefficients = torch.linspace(-5, 5, mb.num_seeds, dtype=torch.float64).cos()[:, None]

    def run(part: wb.MiniBatch, weight: Tensor) -> Tensor:
        out = forward(part, wb.Inputs(features(part.node_ids).to(dtype)))
        (out * weight.to(dtype)).sum().backward()
        return out.detach()

    model.zero_grad()
    whole, outputs = run(mb, coefficients), []
    expected = gradients(model)
    model.zero_grad()
    for part in mb.split(torch.arange(mb.num_seeds) % 4):
        assert part.parent is not None
        seeds = part.parent[: part.num_seeds]
        outputs.append(relative_difference(run(part, coefficients[seeds]), whole[seeds]))
    return max(*outputs, relative_difference(gradients(model), expected))


def without_dropout(model: nn.Module) -> nn.Module:
    """Turn dropout off."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model

"""Bipartite layers of LABOR and their inclusion probabilities, for tests."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import Variates
from workbench.sampling.labor_importance import BipartiteLayer, Importance, draw_layer

ROUNDS = {0: 0, 1: 1, 3: 3, "*": None}


def layer_of(graph: Graph, nodes: Tensor) -> BipartiteLayer:
    """Return all in-edges of some nodes as a bipartite layer."""
    rows = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].long() for v in nodes.tolist()]
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    sources, local = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *rows]), return_inverse=True)
    return BipartiteLayer.of_csr(indptr, local, sources)


def importance(layer: BipartiteLayer, k: int, rounds: int | None) -> Importance:
    """Return what a layer is drawn with."""
    return draw_layer(layer, k, rounds=rounds, poisson=True, variates=Variates(0), positions=False)[1]


def inclusion(graph: Graph, nodes: Tensor, k: int, rounds: int | None) -> Tensor:
    """Return the inclusion probability of every in-edge of some nodes."""
    layer = layer_of(graph, nodes)
    found = importance(layer, k, rounds)
    row = torch.repeat_interleave(torch.arange(len(nodes)), layer.degrees)
    return (found.rho[layer.local] * found.x[row]).reciprocal().clamp(max=1)

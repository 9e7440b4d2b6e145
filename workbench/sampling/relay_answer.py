"""The owner's side of a relay: the rows of all nodes that ranks ask for, drawn together by step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.sampling.drawn import check_drawn, edge_values
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.relay_messages import Request, Rows
from workbench.sampling.sampler import Sampler


def draw_requested(owned: OwnedGraph, requests: Sequence[Request], sampler: Sampler, layer: int) -> list[list[Rows]]:
    """Draw the rows that every rank asks for.

    Mini-batches of one step, of whatever rank, are drawn in one call, unless edges are excluded from one of them.

    Args:
        owned: the part of the graph that contains the rows.
        requests: by rank.
        sampler: draws every row independently of the others.
        layer: number of the layer.

    Returns:
        Rows in the order of the request, by rank and mini-batch.
    """
    drawn: dict[tuple[int, int], Rows] = {}
    for members in _groups(requests):
        rank, number = members[0]
        request, nodes = requests[rank], [requests[of].nodes[which] for of, which in members]
        step, excluded = request.steps[number], request.excluded[number]
        rows = _draw(owned, torch.cat(nodes), sampler, layer, step, excluded if len(excluded) else None)
        drawn |= zip(members, rows.split([len(ids) for ids in nodes]), strict=True)
    return [[drawn[rank, number] for number in range(len(one.steps))] for rank, one in enumerate(requests)]


def _groups(requests: Sequence[Request]) -> list[list[tuple[int, int]]]:
    """Return the (rank, mini-batch) that are drawn together: those of a step, and each that excludes edges alone."""
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for rank, request in enumerate(requests):
        for number, (step, excluded) in enumerate(zip(request.steps, request.excluded, strict=True)):
            groups.setdefault((step, rank, number) if len(excluded) else (step,), []).append((rank, number))
    return list(groups.values())


def _draw(owned: OwnedGraph, nodes: Tensor, sampler: Sampler, layer: int, step: int, excluded: Tensor | None) -> Rows:
    edges = owned.own_edges(excluded)
    drawn = sampler.draw(owned.graph, nodes, layer=layer, step=step, exclude_edges=edges)
    check_drawn(drawn, len(nodes))
    extra = edge_values(owned.graph, drawn, getattr(sampler, "edge_ids", False))
    return Rows(drawn.indptr, {"sources": drawn.sources, **extra})

"""What all layer-by-layer samplers share: rows are drawn for the nodes met so far, then relabelled into a block."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.relabel import relabeler
from workbench.kernels.threads import parallel_rows

_AHEAD = 16  # rows between the one looked up and the one asked for
_MIN_ROWS = 32768  # looked up in less time than another thread takes to wake


class Candidates(NamedTuple):
    """The in-edges that may be drawn for each of some nodes.

    `starts` int64 [n] is each row's first CSR position, `degrees` int64 [n] the edges it may draw: its in-degree less
    the excluded ones. `excluded` holds the excluded CSR positions in ascending order, row `i`'s from
    `first_excluded[i]` on.
    """

    nodes: Tensor
    starts: Tensor
    degrees: Tensor
    excluded: Tensor
    first_excluded: Tensor


class Drawn(NamedTuple):
    """Drawn rows: `indptr` int64 [n + 1], raw `sources` and, if asked for, their CSR `positions` (int64)."""

    indptr: Tensor
    sources: Tensor
    positions: Tensor | None


@compiled
def _look_up_rows(lo, hi, nodes, indptr, starts, degrees):
    for i in range(lo, hi):
        prefetch(indptr, nodes[min(i + _AHEAD, hi - 1)])
        starts[i] = indptr[nodes[i]]
        degrees[i] = indptr[nodes[i] + 1] - starts[i]


def _starts_and_degrees(indptr: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    if nodes.device.type != "cpu":
        starts = indptr[nodes]
        return starts, indptr[nodes + 1] - starts
    starts, degrees = torch.empty_like(nodes), torch.empty_like(nodes)
    arrays = (nodes.numpy(), indptr.numpy(), starts.numpy(), degrees.numpy())
    parallel_rows(lambda lo, hi: _look_up_rows(lo, hi, *arrays), len(nodes), _MIN_ROWS)
    return starts, degrees


def candidates(graph: Graph, nodes: Tensor, excluded: Tensor | None) -> Candidates:
    """The in-edges of `nodes` (int64) without those at the ascending CSR positions `excluded`."""
    starts, degrees = _starts_and_degrees(graph.indptr, nodes)
    if excluded is None:
        none = torch.empty(0, dtype=torch.int64, device=nodes.device)
        return Candidates(nodes, starts, degrees, none, none)
    first = torch.searchsorted(excluded, starts)
    removed = torch.searchsorted(excluded, starts + degrees) - first
    return Candidates(nodes, starts, degrees - removed, excluded, first)


def excluded_positions(graph: Graph, edge_ids: Tensor | None) -> Tensor | None:
    """Ascending CSR positions of the edges not to be drawn, each once."""
    if edge_ids is None:
        return None
    ids = check_ids("exclude_edges", edge_ids, INT64_MAX)
    return torch.unique(graph.edge_positions(ids.to(graph.indices.device)))


@compiled
def _add_up(counts, limit, indptr):
    indptr[0] = 0
    for i in range(len(counts)):
        indptr[i + 1] = indptr[i] + min(counts[i], limit)


def row_offsets(counts: Tensor, limit: int = 2**62) -> Tensor:
    """int64 [n + 1]: running sum of the counts, each at most `limit`, from 0."""
    indptr = torch.empty(len(counts) + 1, dtype=torch.int64, device=counts.device)
    if counts.device.type == "cpu":
        _add_up(counts.numpy(), limit, indptr.numpy())
    else:
        indptr[0] = 0
        torch.cumsum(counts.clamp(max=limit), 0, out=indptr[1:])
    return indptr


def sample_layers(
    graph: Graph,
    seeds: Tensor,
    num_layers: int,
    draw: Callable[[int, Tensor], Drawn],
    *,
    step: int,
    edge_ids: bool = False,
    edge_weight: Tensor | None = None,
) -> MiniBatch:
    """Sample a batch from its seeds inwards.

    Args:
        graph: to sample from.
        seeds: int64, each once.
        num_layers: blocks to make.
        draw: `draw(layer, nodes)` draws the in-edges of `nodes`; layers count from the input.
        step: number of the batch.
        edge_ids: whether blocks carry raw-graph edge ids.
        edge_weight: per edge of the graph, what blocks carry; None: nothing.

    Raises:
        TypeError, ValueError, IndexError: seeds of another dtype, twice, or out of range.
    """
    seeds = check_ids("seeds", seeds, graph.num_nodes).to(graph.indices.device)
    blocks: list[Block] = []
    with relabeler(graph.num_nodes, seeds) as labels:
        for layer in reversed(range(num_layers)):
            num_dst = len(labels.node_ids)
            drawn = draw(layer, labels.node_ids)
            local = labels(drawn.sources)
            extra = _edge_values(graph, drawn.positions, edge_ids, edge_weight)
            blocks.insert(0, Block(drawn.indptr, local, len(labels.node_ids), num_dst, **extra))
        node_ids = _copy(labels.node_ids)
    return MiniBatch(node_ids, tuple(blocks), step=step)


def _copy(ids: Tensor) -> Tensor:
    """A storage of their own size; torch's copy would wake OpenMP threads, which then spin beside the kernels'."""
    if ids.device.type != "cpu":
        return ids.clone()
    out = torch.empty_like(ids)
    out.numpy()[:] = ids.numpy()
    return out


def _edge_values(
    graph: Graph, positions: Tensor | None, edge_ids: bool, edge_weight: Tensor | None
) -> dict[str, Tensor]:
    if positions is None:
        return {}
    values: dict[str, Tensor] = {}
    if edge_ids:
        values["edge_ids"] = positions if graph.edge_ids is None else graph.edge_ids[positions]
    if edge_weight is not None:
        values["edge_weight"] = edge_weight[positions]
    if graph.edge_type is not None:
        values["edge_type"] = graph.edge_type[positions]
    return values

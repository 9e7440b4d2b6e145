"""Layer-by-layer sampling: draw in-edges of all nodes reached so far, relabel them into a block, repeat."""

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

_PREFETCH_DISTANCE = 16  # rows
_MIN_ROWS = 32768  # per thread: fewer take less time than waking a thread


class Candidates(NamedTuple):
    """The in-edges of some nodes from which a sampler may draw.

    Args:
        nodes: int64 [n], raw-graph ids.
        starts: int64 [n], the first CSR position of every row.
        degrees: int64 [n], the number of candidates per row: the in-degree minus excluded edges.
        excluded: int64, the excluded CSR positions in ascending order.
        first_excluded: int64 [n], where the excluded positions of every row begin in `excluded`; empty without any.
    """

    nodes: Tensor
    starts: Tensor
    degrees: Tensor
    excluded: Tensor
    first_excluded: Tensor


class Drawn(NamedTuple):
    """The drawn in-edges of some nodes, as a CSR.

    Args:
        indptr: int64 [n + 1].
        sources: int32 or int64 [num_drawn], raw-graph ids.
        positions: int64 [num_drawn], CSR positions in the graph; None: not requested.
    """

    indptr: Tensor
    sources: Tensor
    positions: Tensor | None


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
    """Sample a batch layer by layer, from the seeds to the inputs.

    Args:
        graph: the graph to sample from.
        seeds: int64 or int32 node ids, each once.
        num_layers: number of blocks.
        draw: `draw(layer, nodes)` draws in-edges of `nodes`; layers are numbered from the input.
        step: number of the batch.
        edge_ids: whether blocks contain raw-graph edge ids.
        edge_weight: [num_edges], weights of the graph's edges to store in the blocks; None: none.

    Returns:
        The batch; every block's destinations are the sources of the next, and its new sources follow in order of first
        appearance.

    Raises:
        TypeError: seeds of another dtype.
        ValueError: duplicate seeds.
        IndexError: a seed out of range.
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
    """Copy ids into a storage of exact size; torch's copy would wake OpenMP threads, whose spinning slows kernels."""
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


@compiled
def _look_up_rows(lo, hi, nodes, indptr, starts, degrees):
    for i in range(lo, hi):
        prefetch(indptr, nodes[min(i + _PREFETCH_DISTANCE, hi - 1)])
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
    """Look up the candidates of some nodes.

    Args:
        graph: the graph to sample from.
        nodes: int64 [n], raw-graph ids.
        excluded: int64, CSR positions in ascending order that must not be drawn; None: none.

    Returns:
        The rows' in-edges without the excluded ones.
    """
    starts, degrees = _starts_and_degrees(graph.indptr, nodes)
    if excluded is None:
        none = torch.empty(0, dtype=torch.int64, device=nodes.device)
        return Candidates(nodes, starts, degrees, none, none)
    first = torch.searchsorted(excluded, starts)
    removed = torch.searchsorted(excluded, starts + degrees) - first
    return Candidates(nodes, starts, degrees - removed, excluded, first)


def excluded_positions(graph: Graph, edge_ids: Tensor | None) -> Tensor | None:
    """Convert edge ids to the CSR positions that must not be drawn.

    Args:
        graph: the graph to sample from.
        edge_ids: int64 or int32, raw-graph edge ids; None: none.

    Returns:
        int64, ascending, each position once; None without edge ids.

    Raises:
        TypeError: ids of another dtype.
        IndexError: an id that is not an edge of the graph.
    """
    if edge_ids is None:
        return None
    ids = check_ids("exclude_edges", edge_ids, INT64_MAX)
    return torch.unique(graph.edge_positions(ids.to(graph.indices.device)))


@compiled
def _cumulate(counts, limit, indptr):
    indptr[0] = 0
    for i in range(len(counts)):
        indptr[i + 1] = indptr[i] + min(counts[i], limit)


def row_offsets(counts: Tensor, limit: int = 2**62) -> Tensor:
    """Compute CSR offsets from row lengths.

    Args:
        counts: int64 [n].
        limit: maximum length of a row; longer ones are cut.

    Returns:
        int64 [n + 1], from 0.
    """
    indptr = torch.empty(len(counts) + 1, dtype=torch.int64, device=counts.device)
    if counts.device.type == "cpu":
        _cumulate(counts.numpy(), limit, indptr.numpy())
    else:
        indptr[0] = 0
        torch.cumsum(counts.clamp(max=limit), 0, out=indptr[1:])
    return indptr

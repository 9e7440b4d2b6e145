"""Macrobatch sampling: the mini-batches of a window are sampled together, with one relay per hop.

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs" (2023), section 3 and
appendix D.1. In every hop, each rank asks every owner for the rows of the nodes that its mini-batches expand (the
request), draws the rows that it is asked for and its own, sends those in the order of the request (the answer), and
writes what it receives to the rows' slots. The topology that crosses ranks is that of the
mini-batches sampled one by one; the number of relays is that of one of them.

Communication is the caller's: `sample_relayed` yields the messages for every rank and is sent what every rank yielded
for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_id_vector, check_ids, check_seed, check_type
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.kernels.csr import group_rows
from workbench.kernels.gather import gather_rows
from workbench.kernels.place_rows import place_rows
from workbench.kernels.relabel import relabeler
from workbench.sampling.all_to_all import LENGTH_BYTES, AllToAll
from workbench.sampling.candidates import row_offsets
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.relay_answer import draw_requested
from workbench.sampling.relay_messages import (
    Request,
    Rows,
    decode_request,
    decode_rows,
    encode_request,
    encode_rows,
    row_bytes,
)
from workbench.sampling.sampler import Sampler, check_sampler, copy_ids, require_row_independence


def sample_relayed(
    owned: OwnedGraph,
    seeds: Sequence[Tensor],
    *,
    sampler: Sampler,
    steps: Sequence[int],
    exclude_edges: Sequence[Tensor | None] | None = None,
    traffic: Traffic | None = None,
) -> AllToAll[list[MiniBatch]]:
    """Sample a window of one rank's mini-batches; each equals the one that `sampler.sample` draws from the whole graph.

    Every value it yields is a list of int64 vectors, one per rank (its own is empty); it is to be sent the list of what
    every rank yielded for this one: an all-to-all exchange. It yields twice per layer, requests and answers, whatever
    the number of mini-batches, so ranks may have windows of different sizes, empty ones included.

    Args:
        owned: the rank's part of the graph.
        seeds: int64 or int32 node ids of each mini-batch, each once, of any rank.
        sampler: draws every row independently of the others; the same on all ranks.
        steps: number of each mini-batch, which selects its random variates.
        exclude_edges: int64 or int32, per mini-batch, raw-graph edge ids that must not be drawn, or None.
        traffic: counts what other ranks send as "rank": "ids", the nodes that they ask for; "edges", the rows drawn
            for this rank; "relays" and the bytes of their headers.

    Returns:
        A generator, which returns the mini-batches.

    Raises:
        TypeError: `owned`, the sampler or ids of another type.
        ValueError: duplicate seeds, lists of different lengths, or a sampler whose rows depend on each other or that
            reads rows of other nodes than those that it draws for; the message names it.
        IndexError: a seed out of range; later, a request for the row of another rank.

    Source: BatchGNN, section 3, "Macrobatch sampling".
    """
    check_type("owned", owned, OwnedGraph, "pass an OwnedGraph: OwnedGraph.of(graph, owner, rank)")
    check_relayable(owned, sampler)
    return _relay(owned, _checked_window(owned.graph, seeds, steps, exclude_edges), sampler, traffic)


class _Window(NamedTuple):
    """Seeds, step and excluded edges of each mini-batch."""

    seeds: list[Tensor]
    steps: list[int]
    excluded: list[Tensor]


def check_relayable(owned: OwnedGraph, sampler: Sampler) -> None:
    """Check that the rows of a sampler can be drawn by their owners in one relay per hop.

    Args:
        owned: a rank's part of the graph.
        sampler: draws the rows.

    Raises:
        TypeError: not a sampler.
        ValueError: its rows depend on each other, or it reads rows of other nodes than those that it draws for; the
            message names it.
    """
    check_sampler(sampler)
    require_row_independence(sampler, "macrobatch sampling")
    if owned.num_ranks > 1 and getattr(sampler, "reads_other_rows", False):
        raise ValueError(
            f"{type(sampler).__name__} reads rows of nodes that other ranks own (reads_other_rows is True), which "
            "takes more than one relay per hop; use NeighborSampler or LaborSampler, or CooperativeSampler for walks"
        )


def _checked_window(
    graph: Graph, seeds: Sequence[Tensor], steps: Sequence[int], exclude_edges: Sequence[Tensor | None] | None
) -> _Window:
    excluded = [None] * len(seeds) if exclude_edges is None else list(exclude_edges)
    for name, count in {"steps": len(steps), "exclude_edges": len(excluded)}.items():
        if count != len(seeds):
            raise ValueError(f"{name} has {count} items for {len(seeds)} mini-batches; pass one per mini-batch")
    for step in steps:
        check_seed(step, "step")
    ids = [check_ids("seeds", one, graph.num_nodes, unique=True).to(graph.device) for one in seeds]
    none = torch.empty(0, dtype=torch.int64, device=graph.device)
    for one in excluded:
        if one is not None:
            check_id_vector("exclude_edges", one)
    edges = [none if one is None else one.to(graph.device, torch.int64) for one in excluded]
    return _Window(ids, [int(step) for step in steps], edges)


def _relay(owned: OwnedGraph, window: _Window, sampler: Sampler, traffic: Traffic | None) -> AllToAll[list[MiniBatch]]:
    nodes = list(window.seeds)
    blocks: list[list[Block]] = [[] for _ in nodes]
    for layer in reversed(range(sampler.num_layers)):
        slots = [_slots_by_owner(owned, ids) for ids in nodes]
        requests = [_request(window, nodes, slots, rank) for rank in range(owned.num_ranks)]
        asked = yield _messages(owned, encode_request, requests)
        wanted = _requests(owned, asked, requests[owned.rank])
        rows = draw_requested(owned, wanted, sampler, layer)
        received = yield _messages(owned, encode_rows, rows)
        rows = _rows(owned, received, requests, rows[owned.rank])
        if traffic is not None and owned.num_ranks > 1:
            _count(traffic, owned.rank, [*asked, *received], wanted, rows)
        for number, ids in enumerate(nodes):
            block, nodes[number] = _block(owned, ids, slots[number], [of[number] for of in rows])
            blocks[number].insert(0, block)
    batches = zip(nodes, blocks, window.steps, strict=True)
    return [MiniBatch(copy_ids(ids), tuple(layers), step=step) for ids, layers, step in batches]


def _slots_by_owner(owned: OwnedGraph, nodes: Tensor) -> Sequence[Tensor]:
    """Return the positions of each rank's nodes, in order."""
    owner = gather_rows(owned.owner, nodes)
    grouped = group_rows(owner, owner, owned.num_ranks, owned.num_ranks)
    order = torch.arange(len(nodes), device=nodes.device) if grouped.order is None else grouped.order
    return order.split(grouped.indptr.diff().tolist())


def _request(window: _Window, nodes: Sequence[Tensor], slots: Sequence[Sequence[Tensor]], rank: int) -> Request:
    """The nodes of all mini-batches that one rank owns, with the edges to exclude where there are any."""
    wanted = [gather_rows(ids, of[rank]) for ids, of in zip(nodes, slots, strict=True)]
    excluded = [edges if len(ids) else edges[:0] for edges, ids in zip(window.excluded, wanted, strict=True)]
    return Request(window.steps, wanted, excluded)


def _messages(owned: OwnedGraph, encode: Callable[[Any], Tensor], contents: Sequence[Any]) -> list[Tensor]:
    """One message per rank; that of a rank to itself is empty."""
    none = torch.empty(0, dtype=torch.int64, device=owned.graph.device)
    return [none if rank == owned.rank else encode(content) for rank, content in enumerate(contents)]


def _requests(owned: OwnedGraph, asked: Sequence[Tensor], own: Request) -> list[Request]:
    if len(asked) != owned.num_ranks:
        raise ValueError(f"the exchange returned {len(asked)} vectors; it must return one per rank, {owned.num_ranks}")
    requests = [decode_request(message, rank) for rank, message in enumerate(asked)]
    for request in requests:
        for ids in request.nodes:
            owned.check_owned("the nodes that other ranks ask for", ids)
    requests[owned.rank] = own
    return requests


def _rows(
    owned: OwnedGraph, received: Sequence[Tensor], requests: Sequence[Request], own: list[Rows]
) -> list[list[Rows]]:
    """The rows of every mini-batch, by the rank that drew them."""
    found = []
    for rank, request in enumerate(requests):
        if rank == owned.rank:
            found.append(own)
        else:
            rows = decode_rows(received[rank], request.num_nodes, rank)
            found.append(list(rows.split([len(ids) for ids in request.nodes])))
    return found


def _count(
    traffic: Traffic, rank: int, messages: Sequence[Tensor], wanted: Sequence[Request], rows: Sequence[Sequence[Rows]]
) -> None:
    """Count what was received in one relay; what is neither an id nor a part of a row is its header."""
    ids = sum(map(len, (v for of, one in enumerate(wanted) if of != rank for v in (*one.nodes, *one.excluded))))
    parts = [part for of, some in enumerate(rows) if of != rank for part in some]
    edges, edge_bytes = sum(part.num_edges for part in parts), sum(map(row_bytes, parts))
    lengths = 2 * LENGTH_BYTES * (len(wanted) - 1)
    head_bytes = sum(message.nbytes for message in messages) - 8 * ids - edge_bytes
    traffic.add("rank", "ids", ids, 8 * ids)
    traffic.add("rank", "edges", edges, edge_bytes)
    traffic.add("rank", "relays", 1, head_bytes + lengths)


def _block(owned: OwnedGraph, nodes: Tensor, slots: Sequence[Tensor], rows: Sequence[Rows]) -> tuple[Block, Tensor]:
    """Write the rows of a mini-batch to their slots and number their sources; return all nodes too."""
    lengths = torch.empty_like(nodes)
    for at, some in zip(slots, rows, strict=True):
        lengths[at] = some.indptr.diff()
    indptr = row_offsets(lengths)
    kinds = _dtypes(rows[owned.rank])
    columns = {name: torch.empty(int(indptr[-1]), dtype=dtype, device=nodes.device) for name, dtype in kinds.items()}
    for rank, (at, some) in enumerate(zip(slots, rows, strict=True)):
        if len(at) and (theirs := _dtypes(some)) != kinds:
            raise ValueError(f"rank {rank} draws {theirs}, but rank {owned.rank} {kinds}; all ranks need one sampler")
        for name, out in columns.items() if len(at) else ():
            place_rows(some.columns[name], some.indptr, at, out, indptr)
    sources = columns.pop("sources")
    with relabeler(owned.graph.num_nodes, nodes) as labels:
        local = labels(sources, overwrite=True)
        return Block(indptr, local, len(labels.node_ids), len(nodes), **columns), labels.node_ids


def _dtypes(rows: Rows) -> dict[str, torch.dtype]:
    return {name: values.dtype for name, values in rows.columns.items()}

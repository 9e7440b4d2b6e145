"""Macrobatch sampling: the mini-batches of a window are sampled together, with one relay per hop.

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs" (2023), section 3 and
appendix D.1. In every hop, each rank asks every owner for the rows of the nodes that its mini-batches expand (the
request), draws the rows that it is asked for and its own, sends those in the order of the request (the answer), and
writes what it receives to the rows' slots. The topology that crosses ranks is that of the
mini-batches sampled one by one; the number of relays is that of one of them.

Communication is the caller's: `sample_relayed` yields the messages for every rank and is sent what every rank yielded
for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_id_vector, check_ids, check_seed, check_type, check_vector
from workbench.core.exchange import LENGTH_BYTES, AllToAll, run_in_lockstep
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.kernels.buffers import byte_view
from workbench.kernels.csr import group_rows
from workbench.kernels.gather import gather_rows, place_rows
from workbench.kernels.relabel import relabeler
from workbench.sampling.owned_graph import OwnedGraph, checked_owner
from workbench.sampling.sampler import (
    Drawn,
    Sampler,
    check_drawn,
    check_graph,
    check_sampler,
    copy_ids,
    require_row_independence,
    row_offsets,
)


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
        sampler: draws the rows.
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


class Request(NamedTuple):
    """Nodes of one owner that a rank's mini-batches expand.

    Args:
        steps: number of each mini-batch, which selects its random variates.
        nodes: int64, per mini-batch.
        excluded: int64, raw-graph edge ids that must not be drawn, per mini-batch.
    """

    steps: Sequence[int]
    nodes: Sequence[Tensor]
    excluded: Sequence[Tensor]

    @property
    def num_nodes(self) -> int:
        return sum(map(len, self.nodes))


def _request(window: _Window, nodes: Sequence[Tensor], slots: Sequence[Sequence[Tensor]], rank: int) -> Request:
    """The nodes of all mini-batches that one rank owns, with the edges to exclude where there are any."""
    wanted = [gather_rows(ids, of[rank]) for ids, of in zip(nodes, slots, strict=True)]
    excluded = [edges if len(ids) else edges[:0] for edges, ids in zip(window.excluded, wanted, strict=True)]
    return Request(window.steps, wanted, excluded)


def _messages(owned: OwnedGraph, encode: Callable[[Any], Tensor], contents: Sequence[Any]) -> list[Tensor]:
    """One message per rank; that of a rank to itself is empty."""
    none = torch.empty(0, dtype=torch.int64, device=owned.graph.device)
    sent = [none if rank == owned.rank else encode(content) for rank, content in enumerate(contents)]
    return [message if len(message) else none for message in sent]  # those of nothing, too, on the graph's device


def _requests(owned: OwnedGraph, asked: Sequence[Tensor], own: Request) -> list[Request]:
    if len(asked) != owned.num_ranks:
        raise ValueError(f"the exchange returned {len(asked)} vectors; it must return one per rank, {owned.num_ranks}")
    requests = [decode_request(message, rank) for rank, message in enumerate(asked)]
    for request in requests:
        for ids in request.nodes:
            owned.check_owned("the nodes that other ranks ask for", ids)
    requests[owned.rank] = own
    return requests


class Rows(NamedTuple):
    """Drawn rows, with all that a block stores per edge.

    Args:
        indptr: int64 [n + 1], from any number on.
        columns: "sources", and those of "edge_ids", "edge_weight" and "edge_type" that there are.
    """

    indptr: Tensor
    columns: Mapping[str, Tensor]

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def split(self, counts: Sequence[int]) -> "Iterator[Rows]":
        """Divide the rows into consecutive ones, which are views."""
        ends = self.indptr[list(accumulate(counts, initial=0))].tolist()
        first = ends[0]
        for (low, high), (begin, end) in zip(pairwise(accumulate(counts, initial=0)), pairwise(ends), strict=True):
            parts = {name: values[begin - first : end - first] for name, values in self.columns.items()}
            yield Rows(self.indptr[low : high + 1], parts)


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


_WORD = 8  # bytes

_COLUMNS = ("sources", "edge_ids", "edge_weight", "edge_type")

_DTYPES = (
    None,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
)

_CODES = len(_DTYPES)


def encode_request(request: Request) -> Tensor:
    """Write a request: number of mini-batches, their steps, numbers of nodes and of excluded edges, then both."""
    if not request.num_nodes:
        return torch.empty(0, dtype=torch.int64)
    lengths = [*map(len, request.nodes), *map(len, request.excluded)]
    head = torch.tensor([len(request.steps), *request.steps, *lengths], device=request.nodes[0].device)
    return torch.cat([head, *request.nodes, *request.excluded])


def decode_request(message: Tensor, rank: int) -> Request:
    """Read a request.

    Args:
        message: as `encode_request` returns it.
        rank: that sent it, for the error.
    """
    check_vector(f"the request of rank {rank}", message, None, (torch.int64,))
    if not len(message):
        return Request((), (), ())
    count = int(message[0])
    head = message[1 : 1 + 3 * count].tolist()
    steps, lengths = head[:count], head[count:]
    _check_length(message, 1 + 3 * count + sum(lengths), "request", rank)
    vectors = message[1 + 3 * count :].split(lengths)
    return Request(steps, vectors[:count], vectors[count:])


def encode_rows(parts: Sequence[Rows]) -> Tensor:
    """Write consecutive rows: one number for the dtypes of the columns, the lengths of the rows, the columns."""
    if not sum(len(part.indptr) - 1 for part in parts):
        return torch.empty(0, dtype=torch.int64)
    kinds = {name: parts[0].columns[name].dtype for name in _COLUMNS if name in parts[0].columns}
    device = parts[0].indptr.device
    code = sum(_CODES**place * _DTYPES.index(kinds.get(name)) for place, name in enumerate(_COLUMNS))
    fields = [[torch.tensor([code], device=device)], [part.indptr.diff().to(torch.int32) for part in parts]]
    fields += [[part.columns[name] for part in parts] for name in kinds]
    sizes = [_words(sum(values.nbytes for values in field)) for field in fields]
    message = torch.empty(sum(sizes), dtype=torch.int64, device=device)
    for field, words in zip(fields, message.split(sizes), strict=True):
        _write(words, field)
    return message


def decode_rows(message: Tensor, num_rows: int, rank: int) -> Rows:
    """Read rows.

    Args:
        message: as `encode_rows` returns it.
        num_rows: number of rows that were asked for.
        rank: that sent it, for the error.
    """
    check_vector(f"the answer of rank {rank}", message, None, (torch.int64,))
    lengths_end = 1 + _words(4 * num_rows) if num_rows else 0
    if not num_rows or len(message) < lengths_end:
        _check_length(message, lengths_end, "answer", rank)
        return Rows(message.new_zeros(1), {})
    kinds = _kinds(int(message[0]))
    indptr = row_offsets(message[1:lengths_end].view(torch.int32)[:num_rows].long())
    num_edges = int(indptr[-1])
    sizes = [_words(num_edges * dtype.itemsize) for dtype in kinds.values()]
    _check_length(message, lengths_end + sum(sizes), "answer", rank)
    columns = {
        name: words.view(dtype)[:num_edges]
        for (name, dtype), words in zip(kinds.items(), message[lengths_end:].split(sizes), strict=True)
    }
    check_drawn(Drawn(indptr, columns["sources"]), num_rows)
    return Rows(indptr, columns)


def row_bytes(rows: Rows) -> int:
    """Bytes of rows in a message, without its head and padding: 4 per row, and those of the columns."""
    return 4 * (len(rows.indptr) - 1) + sum(values.nbytes for values in rows.columns.values())


def _kinds(code: int) -> dict[str, torch.dtype]:
    found = ((name, _DTYPES[code // _CODES**place % _CODES]) for place, name in enumerate(_COLUMNS))
    return {name: dtype for name, dtype in found if dtype is not None}


def _words(num_bytes: int) -> int:
    return -(-num_bytes // _WORD)


def _write(words: Tensor, values: Sequence[Tensor]) -> None:
    """Write the bytes of vectors one after the other, then zeros."""
    to, at = words.view(torch.uint8), 0
    for one in values:
        to[at : at + one.nbytes] = byte_view(one)
        at += one.nbytes
    to[at:] = 0


def _check_length(message: Tensor, expected: int, what: str, rank: int) -> None:
    if len(message) != expected:
        raise ValueError(
            f"the {what} of rank {rank} has {len(message)} numbers, not {expected}; all ranks must sample with the "
            "same sampler and send what sample_relayed yields"
        )


def draw_requested(owned: OwnedGraph, requests: Sequence[Request], sampler: Sampler, layer: int) -> list[list[Rows]]:
    """Draw the rows that every rank asks for.

    Mini-batches of one step, of whatever rank, are drawn in one call, unless edges are excluded from one of them.

    Args:
        requests: by rank.

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
    extra = owned.edge_values(drawn, sampler)
    return Rows(drawn.indptr, {"sources": drawn.sources, **extra})


def relay_windows(
    graph: Graph,
    seeds: Sequence[Sequence[Tensor]],
    *,
    sampler: Sampler,
    owner: Tensor,
    num_ranks: int,
    steps: Sequence[Sequence[int]],
    exclude_edges: Sequence[Sequence[Tensor | None]] | None = None,
    traffic: Sequence[Traffic] | None = None,
) -> list[list[MiniBatch]]:
    """Sample a window of mini-batches on each rank, all ranks in lockstep in this process.

    Args:
        graph: the whole graph.
        seeds: by rank and mini-batch, int64 or int32 node ids, each once per mini-batch; windows may differ in size.
        sampler: draws every row independently of the others.
        owner: int64 or int32 [num_nodes], the rank that owns each node.
        num_ranks: number of ranks.
        steps: number of each mini-batch, by rank.
        exclude_edges: int64 or int32, by rank and mini-batch, raw-graph edge ids that must not be drawn, or None.
        traffic: counts what each rank receives, as for `sample_relayed`; by rank.

    Returns:
        The mini-batches by rank, without exchanges; each equals `sampler.sample(graph, seeds, step=step)`.

    Raises:
        ValueError: as `sample_relayed` and `OwnedGraph.of`; or not one item per rank.
        IndexError: a seed or an edge to exclude is not in the graph.

    Source: BatchGNN, section 3, "Macrobatch sampling".

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> windows = wb.macrobatch.relay_windows(
    ...     path, [[torch.tensor([3]), torch.tensor([2])], []], steps=[[0, 1], []], num_ranks=2,
    ...     sampler=wb.FullNeighborSampler(2), owner=torch.tensor([0, 1, 0, 1]))
    >>> [[mb.node_ids.tolist() for mb in window] for window in windows]
    [[[3, 2, 1], [2, 1, 0]], []]
    """
    check_graph(graph)
    check_at_least("num_ranks", num_ranks, 1)
    owner = checked_owner(owner, graph, num_ranks)
    by_rank = {"seeds": seeds, "steps": steps, "exclude_edges": exclude_edges, "traffic": traffic}
    for name, items in by_rank.items():
        if items is not None and len(items) != num_ranks:
            raise ValueError(f"{name} has {len(items)} items for {num_ranks} ranks; pass one per rank")
    for edges in (one for window in exclude_edges or () for one in window if one is not None):
        graph.edge_positions(edges)
    return run_in_lockstep(
        [
            sample_relayed(
                OwnedGraph(graph, owner, rank, num_ranks),
                seeds[rank],
                sampler=sampler,
                steps=steps[rank],
                exclude_edges=None if exclude_edges is None else exclude_edges[rank],
                traffic=None if traffic is None else traffic[rank],
            )
            for rank in range(num_ranks)
        ]
    )

"""Negative pairs: nodes that replace one end of positive pairs, drawn by hashes of the pair and the draw.

Integer operations give the same nodes on every device.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    INT64_MAX,
    check_at_least,
    check_choice,
    check_fits,
    check_ids,
    check_seed,
    check_type,
    check_vector,
)
from workbench.core.graph import TYPE_DTYPES, Graph
from workbench.core.randomness import Purpose, stream
from workbench.kernels.csr import count_pairs
from workbench.kernels.hash import hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.links.edge_batch import EdgeBatch

_ENDS = ("src", "dst")

_OTHER = {"src": "dst", "dst": "src"}

_COIN = len(_ENDS)  # number of the stream that chooses one of both ends

_MAX_COUNT = 2**31 - 1


def sample_negatives(
    graph: Graph | int,
    shape: tuple[int, int],
    *,
    end: str = "dst",
    by_degree: float = 0.0,
    pool: Tensor | None = None,
    kept: Tensor | None = None,
    relation: Tensor | None = None,
    nodes: Tensor | None = None,
    seed: int = 0,
    step: int = 0,
) -> Tensor:
    """Draw nodes that replace one end of positive pairs, independently and with replacement.

    An entry depends on (seed, step, end; row, column) alone, and is the same on every device.

    Args:
        graph: the graph, or its number of nodes.
        shape: (rows, count), with one row per pair, or per chunk of pairs that share negatives.
        end: the end to replace, "src" or "dst".
        by_degree: fraction of every row, its last columns, that is drawn in proportion to degrees: this end of a
            uniformly drawn edge. The other columns are uniform over all nodes.
        pool: int64 or int32 [any], raw-graph ids: this end of the edges to draw from, such as those of the batch;
            None: all edges of the graph.
        kept: int64 or int32 [rows], the end that every row's pair keeps: a node that has an edge with it is drawn
            again, and so is that end itself. None: all nodes are accepted.
        relation: integer [rows], with `kept` and a graph with edge types: only edges of this type count.
        nodes: int64 or int32 [any], raw-graph ids: the nodes of the uniform columns, such as those whose rows are in
            memory; None: all nodes.
        seed: a 64-bit integer.
        step: number of the batch.

    Returns:
        int64 [rows, count], raw-graph ids on the graph's device.

    Raises:
        TypeError: if the graph or ids are of another type.
        ValueError: if an option is out of range, or 100 draws in a row are edges.
        IndexError: if an id is out of range.
        CapacityError: if the negatives exceed the memory.

    Source: batched negatives of PyTorch-BigGraph (Lerer et al., MLSys 2019), as in MariusGNN (EuroSys 2023).
    """
    options = {"by_degree": by_degree, "pool": pool, "relation": relation, "nodes": nodes, "seed": seed, "step": step}
    drawn = _sample(graph, shape, end=end, kept=kept, **options, avoid="kept")
    if kept is not None:
        _check_found(drawn >= 0, [kept], avoid="kept")
    return drawn


def _sample(
    graph: Graph | int,
    shape: tuple[int, int],
    *,
    end: str,
    by_degree: float,
    pool: Tensor | None,
    kept: Tensor | None,
    relation: Tensor | None,
    nodes: Tensor | None,
    seed: int,
    step: int,
    avoid: str,
    wanted: Tensor | None = None,
) -> Tensor:
    """Draw nodes as `sample_negatives`; -1 where all draws are edges.

    Args:
        avoid: the caller's name of `kept`, for messages.
        wanted: bool [rows, count], the entries that matter: the others may be edges. None: all entries.
    """
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise TypeError(f"shape is {shape!r}; pass (rows, count): one row per pair or chunk, count negatives each")
    rows, count = shape
    check_at_least("the number of rows", rows, 0, most=_MAX_COUNT)
    check_at_least("the number of negatives per row", count, 1, most=_MAX_COUNT)
    check_fits(f"{rows} × {count} negatives", 5 * 8 * rows * count, "draw fewer, or share them in chunks")
    choose = _chooser(graph, end, by_degree, pool, nodes)
    key = stream(check_seed(seed), Purpose.NEGATIVES, check_seed(step, "step"), _ENDS.index(end))
    device = graph.device if isinstance(graph, Graph) else torch.device("cpu") if pool is None else pool.device
    num_uniform = count - int(by_degree * count + 0.5)
    uniform = (torch.arange(count, device=device) < num_uniform).repeat(rows)
    drawn = choose(entry_bits(key, rows, count, device), uniform)
    if kept is not None:
        keys, row = entry_keys(key, rows, count, device), torch.arange(rows, device=device).repeat_interleave(count)
        draw: Draw = lambda keys, uniform, attempt: choose(attempt_bits(keys, attempt), uniform)  # noqa: E731
        is_edge = edge_test(graph, end, kept, relation, rows, avoid=avoid)
        wanted = torch.ones_like(uniform) if wanted is None else wanted.flatten()
        drawn = without_edges(is_edge, draw, drawn, keys, uniform, row, wanted)
    elif relation is not None:
        raise ValueError("relation is given, but kept is not; pass the ends whose edges are to be avoided as kept")
    return drawn.view(rows, count)


def _chooser(
    graph: Graph | int, end: str, by_degree: float, pool: Tensor | None, nodes: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Check what to draw from, and return a function of random bits, and which entries are uniform."""
    num_nodes = _count_nodes(graph)
    check_choice("end", end, _ENDS)
    _check_fraction(by_degree)
    if pool is not None:
        pool = check_ids("pool", pool, num_nodes)
    if nodes is not None:
        nodes = check_ids("nodes", nodes, num_nodes)
        check_at_least("the number of nodes to draw from", len(nodes), 1)
    num_edges = len(pool) if pool is not None else graph.num_edges if isinstance(graph, Graph) else 0
    if by_degree and not num_edges:
        raise ValueError(
            f"by_degree is {by_degree}, but there are no edges to draw from; pass a Graph with edges, pool= "
            "(Negatives: from_batch=True), or by_degree=0"
        )

    def choose(word: Tensor, uniform: Tensor) -> Tensor:
        node = word % num_nodes if nodes is None else nodes[word % len(nodes)]
        if not by_degree:
            return node
        edge = word % num_edges
        if pool is not None:
            ends = pool[edge]
        else:
            assert isinstance(graph, Graph)
            ends = graph.indices[edge] if end == "src" else torch.searchsorted(graph.indptr, edge, right=True) - 1
        return torch.where(uniform, node, ends.long())

    return choose


def _count_nodes(graph: Graph | int) -> int:
    check_type("graph", graph, (Graph, int), "pass a Graph or a number of nodes")
    num_nodes = graph.num_nodes if isinstance(graph, Graph) else graph
    check_at_least("the number of nodes", num_nodes, 1)
    return num_nodes


def _check_fraction(by_degree: float) -> None:
    if isinstance(by_degree, bool) or not isinstance(by_degree, Real) or not 0 <= by_degree <= 1:
        raise ValueError(f"by_degree is {by_degree!r}; it must be a fraction from 0 to 1")


@dataclass(frozen=True)
class Negatives:
    """Options of the negatives of every batch of pairs.

    Args:
        count: negatives per pair, with `ends="both"` per pair and end.
        chunks: number of chunks of pairs that share negatives (fewer if a batch has fewer pairs); None: every pair has
            negatives of its own.
        ends: the ends to replace, one at a time: "src", "dst", "both", or "either", which replaces one of both, chosen
            at random for every negative (the other one if all draws of the first are edges); only without `chunks`.
        by_degree: fraction that is drawn in proportion to degrees.
        from_batch: draw these from the ends of the batch's own pairs instead of all edges of the graph.
        avoid_edges: draw negatives that are edges of the graph, or pair a node with itself, again; only without
            `chunks`.
        seed: a 64-bit integer.

    Raises:
        ValueError: if an option is out of range, or `avoid_edges` or `ends="either"` is set with `chunks`.

    Source: MariusGNN (EuroSys 2023) trains with 10 chunks of 500 negatives, or of 5,000, half of them by degree.
    `Negatives(1, ends="either", avoid_edges=True)` is edge prediction in Balin et al., "Cooperative minibatching in
    graph neural networks", 2023: one non-edge per edge, with which it shares an endpoint.
    """

    count: int
    _: KW_ONLY
    chunks: int | None = None
    ends: str = "dst"
    by_degree: float = 0.0
    from_batch: bool = False
    avoid_edges: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least("count", self.count, 1, most=_MAX_COUNT)
        check_at_least("chunks", 1 if self.chunks is None else self.chunks, 1, most=_MAX_COUNT)
        check_choice("ends", self.ends, (*_ENDS, "both", "either"))
        _check_fraction(self.by_degree)
        check_seed(self.seed)
        if self.avoid_edges and self.chunks is not None:
            raise ValueError(
                "avoid_edges is set, but negatives shared by a chunk can't avoid the edges of all its pairs; omit it, "
                "and mask false_negatives(batch, graph) in the loss, or omit chunks"
            )
        if self.ends == "either" and self.chunks is not None:
            raise ValueError(
                'ends is "either", which chooses an end per pair, but a chunk shares its negatives; omit chunks'
            )

    @property
    def reads_edges(self) -> bool:
        """Whether negatives depend on the graph's edges, so that `draw` needs more than the number of nodes."""
        return self.avoid_edges or bool(self.by_degree and not self.from_batch)

    @property
    def _replaced(self) -> tuple[str, ...]:
        return (self.ends,) if self.ends in _ENDS else _ENDS

    def draw(
        self,
        graph: Graph | int,
        src: Tensor,
        dst: Tensor,
        *,
        relation: Tensor | None = None,
        nodes: Tensor | None = None,
        step: int = 0,
    ) -> EdgeBatch:
        """Draw negatives for positive pairs.

        Args:
            graph: the graph, or its number of nodes.
            src: int32 or int64 [num_pairs], raw-graph ids.
            dst: int32 or int64 [num_pairs], raw-graph ids.
            relation: integer [num_pairs], relation of each pair.
            nodes: int64 or int32 [any], raw-graph ids: the nodes to draw from uniformly; None: all nodes.
            step: number of the batch.

        Returns:
            The batch of the pairs and their negatives; without `chunks`, those of "both" that replace the source come
            first. Without pairs, an empty batch.

        Raises:
            TypeError: if the graph, ids or relations are of another type, or edges are to be avoided in a number.
            ValueError: if lengths differ, or 100 draws in a row are edges; with `ends="either"` 100 of each end.
            IndexError: if an id is out of range.
            CapacityError: if the negatives exceed the memory.
        """
        num_nodes = _count_nodes(graph)
        src, dst = check_ids("src", src, num_nodes), check_ids("dst", dst, num_nodes)
        check_vector("dst", dst, len(src), (torch.int64,))
        relation, ends = check_relation(relation, len(src)), {"src": src, "dst": dst}
        if not len(src):
            return self._without_pairs(ends, relation)
        chunks = len(src) if self.chunks is None else min(self.chunks, len(src))

        def sample(end: str, wanted: Tensor | None = None) -> Tensor:
            return _sample(
                graph,
                (chunks, self.count),
                end=end,
                by_degree=self.by_degree,
                pool=ends[end] if self.from_batch else None,
                kept=ends[_OTHER[end]] if self.avoid_edges else None,
                relation=relation if self.avoid_edges else None,
                nodes=nodes,
                seed=self.seed,
                step=step,
                avoid="avoid_edges",
                wanted=wanted,
            )

        if self.ends == "either":
            negative_src, negative_dst = self._either(sample, ends, step)
            return EdgeBatch.from_pairs(
                src, dst, negative_src=negative_src, negative_dst=negative_dst, relation=relation
            )
        drawn = {end: sample(end) for end in self._replaced}
        for end, found in drawn.items():
            if self.avoid_edges:
                _check_found(found >= 0, [ends[_OTHER[end]]], avoid="avoid_edges")
        negatives: dict[str, Any] = {f"negative_{end}": found for end, found in drawn.items()}
        batch = EdgeBatch.from_pairs(src, dst, **negatives, relation=relation, chunks=chunks)
        return batch.per_pair() if self.chunks is None else batch

    def _without_pairs(self, ends: dict[str, Tensor], relation: Tensor | None) -> EdgeBatch:
        """Return a batch without pairs, seeds and rows of negatives, of which `EdgeBatch.from_pairs` needs one."""
        none = ends["src"]
        replaced = {f"neg_{end}": none.new_empty(0, self.count) for end in self._replaced}
        batch = EdgeBatch(none, **ends, **replaced, relation=relation, chunk=none)
        return batch.per_pair() if self.chunks is None else batch

    def _either(self, sample: Callable[[str, Tensor], Tensor], ends: dict[str, Tensor], step: int) -> list[Tensor]:
        """Replace one end of every negative, by a coin: the highest bit of a hash of (pair, column).

        Args:
            sample: draws an end of the entries of a mask; -1 where all draws are edges.
        """
        row, column = (torch.arange(size, device=ends["src"].device) for size in (len(ends["src"]), self.count))
        key = stream(self.seed, Purpose.NEGATIVES, step, _COIN)
        is_dst = hash_index_torch(hash_index_torch(key, row)[:, None], column) < 0
        drawn = {end: ids[:, None].expand_as(is_dst) for end, ids in ends.items()}
        wanted = {"src": ~is_dst, "dst": is_dst}
        for _ in range(2):  # the coin's end, then the other end where all draws were edges
            found = {end: sample(end, wanted[end]) for end in _ENDS}
            drawn = {e: torch.where(wanted[e] & (found[e] >= 0), found[e], drawn[e]) for e in _ENDS}
            wanted = {_OTHER[end]: wanted[end] & (found[end] < 0) for end in _ENDS}
            if not (wanted["src"] | wanted["dst"]).any():
                break
        _check_found(~(wanted["src"] | wanted["dst"]), list(ends.values()), avoid="avoid_edges")
        return [drawn[end] for end in _ENDS]


_MAX_DRAWS = 100

Draw = Callable[[Tensor, Tensor, int], Tensor]
"""Maps hashes of entries, whether each is uniform over the nodes, and the number of the attempt to nodes."""


def check_relation(relation: Tensor | None, num_pairs: int) -> Tensor | None:
    """Return the relations of some pairs, converted to int64 if an `EdgeBatch` does not accept their dtype.

    Args:
        relation: integer [num_pairs], of any dtype that edge types may have, or None.
    """
    check_vector("relation", relation, num_pairs, TYPE_DTYPES)
    return relation if relation is None or relation.dtype in ID_DTYPES else relation.long()


def edge_test(
    graph: Graph | int, end: str, kept: Tensor, relation: Tensor | None, rows: int, *, avoid: str
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of (nodes, rows): whether a node is the end that the row keeps, or has an edge with it."""
    if not isinstance(graph, Graph):
        raise TypeError(
            f"{avoid} needs the edges of a Graph, but graph is the number {graph}; pass the Graph, or omit {avoid}"
        )
    ids = check_ids("kept", kept, graph.num_nodes)
    check_vector("kept", ids, rows, (torch.int64,))
    relation = check_relation(relation, rows)

    def is_edge(nodes: Tensor, row: Tensor) -> Tensor:
        ends = (nodes, ids[row]) if end == "src" else (ids[row], nodes)
        return (nodes == ids[row]) | have_edges(graph, *ends, None if relation is None else relation[row])

    return is_edge


def without_edges(
    is_edge: Callable[[Tensor, Tensor], Tensor],
    draw: Draw,
    nodes: Tensor,
    entry: Tensor,
    uniform: Tensor,
    row: Tensor,
    wanted: Tensor,
) -> Tensor:
    """Draw the wanted nodes that have an edge again, until none has; -1 where all draws have.

    Args:
        nodes: int64 [n], overwritten.
        wanted: bool [n].
    """
    again = (is_edge(nodes, row) & wanted).nonzero()[:, 0]
    for attempt in range(1, _MAX_DRAWS):
        if not len(again):
            return nodes
        nodes[again] = draw(entry[again], uniform[again], attempt)
        again = again[is_edge(nodes[again], row[again])]
    nodes[again] = -1
    return nodes


def _check_found(found: Tensor, kept: Sequence[Tensor], *, avoid: str) -> None:
    """Check that every entry found a node.

    Args:
        found: bool [rows, count].
        kept: int64 or int32 [rows], the ends whose edges all draws were.
        avoid: the caller's name of what to omit.
    """
    if found.all():
        return
    pair = int((~found).nonzero()[0, 0])
    ends = [int(ids[pair]) for ids in kept]
    have = f"node {ends[0]} has" if len(ends) == 1 else f"nodes {ends[0]} and {ends[1]} have"
    raise ValueError(
        f"{_MAX_DRAWS} draws for pair {pair} all gave edges: {have} an edge with nearly all nodes to draw from; omit "
        f"{avoid}, and mask false_negatives(batch, graph) in the loss"
    )


_QUERIES_AT_A_TIME = 1 << 20


def have_edges(graph: Graph, src: Tensor, dst: Tensor, relation: Tensor | None) -> Tensor:
    """Tell which pairs of nodes have an edge: bool [n].

    Args:
        src: int64 [n], nodes of the graph.
        dst: int64 [n], nodes of the graph.
        relation: integer [n], the type of each pair's edge if the graph has edge types; None: any type.
    """
    types = None if relation is None else graph.edge_type
    found = torch.empty(len(src), dtype=torch.bool, device=src.device)
    for start in range(0, len(src), _QUERIES_AT_A_TIME):
        part = slice(start, start + _QUERIES_AT_A_TIME)
        wanted = None if types is None or relation is None else relation[part]
        found[part] = count_pairs(graph.indptr, graph.indices, dst[part], src[part], types, wanted) > 0
    return found


def false_negatives(batch: EdgeBatch, graph: Graph) -> Tensor:
    """Tell which negatives are edges of the graph, to exclude their scores from a loss or a ranking.

    Args:
        batch: a batch with negatives; its relations are compared if the graph has edge types.
        graph: the graph of all true edges.

    Returns:
        bool [num_pairs, num_negatives], in the order of `batch.per_pair()`.

    Raises:
        IndexError: if a node is not in the graph.
        CapacityError: if the negatives of all pairs exceed the memory.
    """
    check_type("batch", batch, EdgeBatch, "pass an EdgeBatch (EdgeBatch.from_pairs makes one)")
    check_type("graph", graph, Graph, "pass the Graph of the true edges")
    shape = batch.num_pairs, batch.num_negatives
    check_fits(f"a mask of {shape} negatives", 40 * shape[0] * shape[1], "use fewer negatives, or split the batch")
    seeds, pairs = check_ids("batch.seeds", batch.seeds, graph.num_nodes), batch.per_pair()
    if pairs.neg_src is None or pairs.neg_dst is None:
        return torch.zeros(shape, dtype=torch.bool, device=batch.device)
    relation = None if batch.relation is None else batch.relation.repeat_interleave(shape[1])
    return have_edges(graph, seeds[pairs.neg_src], seeds[pairs.neg_dst], relation).view(shape)


_POSITIVE = np.uint64(INT64_MAX)


def entry_bits(key: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Hash (key, row, column, 0) for every entry: int64 [rows · columns], not negative, row by row.

    Args:
        rows: number of rows.
    """
    if device.type != "cpu":
        return attempt_bits(entry_keys(key, rows, columns, device), 0)
    out = torch.empty(rows * columns, dtype=torch.int64)
    _entry_bits(key, out.view(rows, columns).numpy())
    return out


def entry_keys(key: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Hash (key, row, column) for every entry: keys of the streams of its attempts, int64 [rows · columns]."""
    row = torch.arange(rows, device=device).repeat_interleave(columns)
    return hash_index_torch(hash_index_torch(key, row), torch.arange(columns, device=device).repeat(rows))


def attempt_bits(keys: Tensor, attempt: int) -> Tensor:
    """Hash an attempt of every entry: int64 like `keys`, not negative."""
    return hash_index_torch(keys, torch.tensor(attempt, device=keys.device)) & INT64_MAX


@compiled
def _entry_bits(key, out):
    for row in range(out.shape[0]):
        row_key = hash_index(key, row)
        for column in range(out.shape[1]):
            out[row, column] = np.int64(hash_index(hash_index(row_key, column), 0) & _POSITIVE)

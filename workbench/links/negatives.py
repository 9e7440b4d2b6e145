"""Negative pairs: nodes that replace one end of positive pairs, drawn by hashes of the pair and the draw.

Integer operations give the same nodes on every device.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Real

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import (
    check_at_least,
    check_choice,
    check_ids,
    check_seed,
    check_type,
)
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.kernels.hash import hash_index_torch
from workbench.links.edge_batch import EdgeBatch
from workbench.links.entry_bits import attempt_bits, entry_bits, entry_keys
from workbench.links.non_edges import Draw, edge_test, without_edges

_ENDS = ("src", "dst")
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
        drawn = without_edges(edge_test(graph, end, kept, relation, rows), draw, drawn, keys, uniform, row)
    elif relation is not None:
        raise ValueError("relation is given, but kept is not; pass the ends whose edges are to be avoided as kept")
    return drawn.view(rows, count)


def _chooser(
    graph: Graph | int, end: str, by_degree: float, pool: Tensor | None, nodes: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Check what to draw from, and return a function of random bits, and which entries are uniform."""
    check_type("graph", graph, (Graph, int), "pass a Graph or a number of nodes")
    check_choice("end", end, _ENDS)
    num_nodes = graph.num_nodes if isinstance(graph, Graph) else graph
    check_at_least("the number of nodes", num_nodes, 1)
    _check_fraction(by_degree)
    if pool is not None:
        pool = check_ids("pool", pool, num_nodes)
    if nodes is not None:
        nodes = check_ids("nodes", nodes, num_nodes)
        check_at_least("the number of nodes to draw from", len(nodes), 1)
    num_edges = len(pool) if pool is not None else graph.num_edges if isinstance(graph, Graph) else 0
    if by_degree and not num_edges:
        raise ValueError(f"by_degree is {by_degree}, but there are no edges to draw from; pass a Graph or pool=")

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
            at random for every negative; only without `chunks`.
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
            first.
        """
        ends = {"src": src, "dst": dst}
        chunks = max(1, len(src) if self.chunks is None else min(self.chunks, len(src)))
        drawn = {
            f"negative_{end}": sample_negatives(
                graph,
                (chunks, self.count),
                end=end,
                by_degree=self.by_degree,
                pool=ends[end] if self.from_batch else None,
                kept=ends["src" if end == "dst" else "dst"] if self.avoid_edges else None,
                relation=relation if self.avoid_edges else None,
                nodes=nodes,
                seed=self.seed,
                step=step,
            )
            for end in (_ENDS if self.ends in ("both", "either") else (self.ends,))
        }
        if self.ends == "either":
            negative_src, negative_dst = self._one_end(ends, drawn, step)
            return EdgeBatch.from_pairs(
                src, dst, negative_src=negative_src, negative_dst=negative_dst, relation=relation
            )
        batch = EdgeBatch.from_pairs(src, dst, **drawn, relation=relation, chunks=chunks)
        return batch.per_pair() if self.chunks is None else batch

    def _one_end(self, ends: dict[str, Tensor], drawn: dict[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Restore one end of every negative to that of its pair, by the highest bit of a hash of (pair, column)."""
        new_src, new_dst = drawn["negative_src"], drawn["negative_dst"]
        src, dst = (ends[end].to(new_src.device, torch.int64)[:, None] for end in _ENDS)
        row, column = (torch.arange(size, device=new_src.device) for size in new_src.shape)
        key = stream(self.seed, Purpose.NEGATIVES, step, _COIN)
        keeps_src = hash_index_torch(hash_index_torch(key, row)[:, None], column) < 0
        return torch.where(keeps_src, src, new_src), torch.where(keeps_src, new_dst, dst)

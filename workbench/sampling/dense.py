"""DENSE: every node's one-hop sample is drawn once per batch and reused in all layers.

Waleffe, Mohoney, Rekatsinas, Venkataraman: "MariusGNN: Resource-efficient out-of-core training of graph neural
networks", EuroSys 2023, Algorithm 1. There, nodes are stacked newest first and offsets are shifted after every layer.
Here they are stacked targets first, so that the rows of each layer are the first rows of one CSR and nothing moves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_fits, check_ids, check_seed, check_sources
from workbench.core.graph import Graph, types_of_both
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Dependence, check_dependence
from workbench.core.split import first_rows
from workbench.kernels.csr import group_rows, index_dtype, offsets
from workbench.kernels.gather import as_integers
from workbench.kernels.relabel import relabeler
from workbench.kernels.threads import run_tasks
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import (
    Drawn,
    Fanout,
    Sampler,
    candidates,
    check_draw,
    check_drawn,
    check_graph,
    check_seeds,
    checked_fanouts,
    copy_ids,
    edge_values,
    excluded_positions,
    sources_are_new,
)


@dataclass(frozen=True)
class DenseSampler(Sampler):
    """DENSE sampler: draws up to `fanout` neighbours of every node once per batch, and uses them in all layers.

    Nodes are sampled by the hop that first reaches them, so a batch needs fewer draws, edges and bytes than one of
    `NeighborSampler`, the more so the more layers there are; in exchange, the layers of a batch are not independent.
    The blocks are views of one CSR, and a backward pass transposes it once for all layers.

    A node's row depends on (seed, step, node) and its fanout. With the same fanout for all hops, rows are independent:
    the one of `NeighborSampler([fanout])`, in every layer. With other fanouts, a node keeps that of the hop that first
    reached it: a seed has `fanouts[-1]` neighbours even in the input layer, and a node that another part of the batch
    reaches earlier would have another row. `rows_are_independent` is then False, and functions that draw parts of a
    batch separately, such as cooperative sampling, refuse the sampler. Splitting such a batch is exact.

    Args:
        fanouts: in-neighbours to draw per hop, **input layer first**, so that the last one is for the seeds; -1: all. A
            mapping draws that many edges of every type.
        out_fanouts: out-neighbours to draw per hop, from the graph's reverse edges; None: none. The row of a node is
            its in-neighbours, then its out-neighbours. The reverse of edge e of type r has edge id e + E and type
            r + n, as in `Graph.from_edges(undirected="multi")`. Each is an integer or a mapping as the hop's `fanouts`
            is; a mapping names the types r + n of reverse edges.
        replace: draw with replacement; nodes without edges get none.
        weighted: draw with probabilities proportional to the graph's `edge_weight`. The blocks then have no weights.
        edge_ids: whether the blocks contain raw-graph edge ids.
        seed: a 64-bit integer.
        dependence: `wb.Smoothed(kappa)` or `wb.Nested(kappa)`, as for `NeighborSampler`.
        num_edge_types: number n of edge types, for `out_fanouts`; None: the largest type of the graph + 1.

    Raises:
        ValueError: no fanouts, a fanout that is neither positive nor -1 (nor 0 in a mapping), another number of
            `out_fanouts`, an integer beside a mapping, a type in both directions, or a seed that is not a 64-bit
            integer.
        TypeError: a fanout that is neither an integer nor a mapping of integers, or another dependence.

    Source: Waleffe et al., "MariusGNN", EuroSys 2023, section 4, Algorithm 1.

    >>> import torch, workbench as wb
    >>> cycle = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]))
    >>> batch = wb.DenseSampler([1, 1, 1]).sample(cycle, torch.tensor([2]))
    >>> batch.node_ids, [block.num_edges for block in batch.blocks]
    (tensor([2, 1, 0]), [3, 2, 1])
    >>> batch.blocks[0].indices.data_ptr() == batch.blocks[2].indices.data_ptr()
    True
    """

    fanouts: Sequence[Fanout]
    _: KW_ONLY
    out_fanouts: Sequence[Fanout] | None = None
    replace: bool = False
    weighted: bool = False
    edge_ids: bool = False
    seed: int = 0
    dependence: Dependence | None = None
    num_edge_types: int | None = None

    sources_are_new = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", checked_fanouts(self.fanouts))
        if self.out_fanouts is not None:
            object.__setattr__(self, "out_fanouts", _checked_pairs(self.fanouts, self.out_fanouts))
        if self.num_edge_types is not None:
            check_at_least("num_edge_types", self.num_edge_types, 1)
        check_seed(self.seed)
        check_dependence(self.dependence)

    @property
    def num_layers(self) -> int:
        """Number of layers: one per fanout."""
        return len(self.fanouts)

    @property
    def rows_are_independent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a node's row is the same whichever hop reaches it first: whether all hops have the same fanouts."""
        hops = [self.fanouts] if self.out_fanouts is None else [self.fanouts, self.out_fanouts]
        return all(fanout == fanouts[0] for fanouts in hops for fanout in fanouts)

    @property
    def reads_other_rows(self) -> bool:
        """Whether `draw` needs the whole graph, in which it looks up out-edges."""
        return self.out_fanouts is not None

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw the rows of nodes that the hop of a layer reaches first; with equal fanouts, their rows in all layers.

        Args:
            graph: the graph to sample from.
            nodes: int64 or int32 [n], node ids; a node that occurs twice gets the same row twice.
            layer: number of the layer, 0 for the input layer.
            step: number of the batch, which selects the random variates.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn, in either direction.

        Returns:
            The drawn rows; with positions if `edge_ids`, weights or types need them. With `out_fanouts`, positions are
            those in the CSR of the in-edges followed by that of the out-edges.

        Raises:
            TypeError: ids of another dtype.
            ValueError: a layer that does not exist, weights that are missing, negative or not finite, or an edge type
                without a fanout.
            IndexError: an id out of range.
            CapacityError: the drawn rows, or the reverse edges, need more memory than is available.
        """
        nodes = check_draw(self, graph, nodes, layer=layer, step=step)
        if self.out_fanouts is not None:
            check_ids("nodes", nodes, graph.num_nodes)
        return self._draw(*self._edges(graph, exclude_edges), nodes, layer=layer, step=step)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds. Arguments and errors as for `Sampler.sample`.

        Excluded edges are drawn in neither direction. Without them and without mappings, memory is proportional to what
        is sampled, apart from a map of all nodes that batches share.
        """
        check_graph(graph)
        edges, excluded = self._edges(graph, exclude_edges)

        def draw(nodes: Tensor, layer: int) -> Drawn:
            return self._draw(edges, excluded, nodes, layer=layer, step=step)

        return sample_once_per_node(self, graph, edges, seeds, step=step, draw=draw)

    def _edges(self, graph: Graph, exclude_edges: Tensor | None) -> tuple[Graph, Tensor | None]:
        """Return the graph to draw from and the excluded CSR positions in it."""
        if self.out_fanouts is None:
            return graph, excluded_positions(graph, exclude_edges)
        needs_ids = self.edge_ids or exclude_edges is not None
        both = two_way(graph, num_edge_types=self.num_edge_types, edge_ids=needs_ids)
        if exclude_edges is None:
            return both, None
        ids = check_ids("exclude_edges", exclude_edges, first_reverse_id(graph))
        return both, excluded_positions(both, torch.cat([ids, ids + first_reverse_id(graph)]))

    def _draw(self, edges: Graph, excluded: Tensor | None, nodes: Tensor, *, layer: int, step: int) -> Drawn:
        """Draw rows of int64 [n] nodes; the variates are those of layer 0 in all layers."""
        sampler, fanout = self._neighbors, self.fanouts[layer]
        if self.out_fanouts is None:
            return sampler.draw_from(edges, candidates(edges, nodes, excluded), fanout, step=step)
        both = _rows_of_both(nodes, edges.num_nodes // 2)
        fanout = _fanout_of_both(fanout, self.out_fanouts[layer], both)
        drawn = sampler.draw_from(edges, candidates(edges, both, excluded), fanout, step=step)
        return drawn._replace(indptr=_every_second(drawn.indptr))

    @cached_property
    def _neighbors(self) -> NeighborSampler:
        options = {"replace": self.replace, "weighted": self.weighted, "edge_ids": self.edge_ids}
        return NeighborSampler(self.fanouts, **options, seed=self.seed, dependence=self.dependence)


def _rows_of_both(nodes: Tensor, num_nodes: int) -> Tensor:
    """Return the rows of in-edges and out-edges of each node; torch would wake OpenMP threads, which then spin."""
    if nodes.device.type != "cpu":
        return torch.stack([nodes, nodes + num_nodes], 1).flatten()
    rows = torch.empty(2 * nodes.shape[0], dtype=torch.int64)
    rows.numpy()[::2] = nodes.numpy()
    np.add(nodes.numpy(), num_nodes, out=rows.numpy()[1::2])
    return rows


def _every_second(indptr: Tensor) -> Tensor:
    if indptr.device.type != "cpu":
        return indptr[::2].contiguous()
    out = torch.empty(indptr.shape[0] // 2 + 1, dtype=torch.int64)
    out.numpy()[:] = indptr.numpy()[::2]
    return out


def _fanout_of_both(inward: Fanout, outward: Fanout, rows: Tensor) -> Fanout | Tensor:
    """Return the fanout of rows that are in-edges and out-edges by turns."""
    if isinstance(inward, Mapping) and isinstance(outward, Mapping):
        return {**inward, **outward}
    if inward == outward:
        return inward
    return torch.tensor([inward, outward], device=rows.device).repeat(len(rows) // 2)


def _checked_pairs(fanouts: Sequence[Fanout], out_fanouts: Any) -> tuple[Fanout, ...]:
    """Check that the fanouts of both directions match hop by hop."""
    checked = checked_fanouts(out_fanouts)
    if len(checked) != len(fanouts):
        raise ValueError(f"out_fanouts has {len(checked)} fanouts, fanouts has {len(fanouts)}; pass one each per hop")
    for inward, outward in zip(fanouts, checked, strict=True):
        if isinstance(inward, Mapping) != isinstance(outward, Mapping):
            raise ValueError(
                f"a hop draws {inward} in-neighbours and {outward} out-neighbours; pass two integers or two mappings"
            )
        if isinstance(inward, Mapping) and isinstance(outward, Mapping) and (both := inward.keys() & outward.keys()):
            raise ValueError(
                f"fanouts and out_fanouts both name edge type {min(both)}; the reverse of an edge of type r has type "
                "r + n, where n is the number of types: add n to the types in out_fanouts"
            )
    return checked


_MIN_EDGES = 1 << 17  # fewer take less time than waking a thread


def sample_once_per_node(
    sampler: Sampler, graph: Graph, edges: Graph, seeds: Tensor, *, step: int, draw: Callable[[Tensor, int], Drawn]
) -> MiniBatch:
    """Sample a batch hop by hop: draw rows of the nodes that the previous hop has reached first, relabel their sources.

    `edges` is the graph that positions of the drawn rows refer to. The blocks are row prefixes of one CSR: seeds first,
    then new nodes hop by hop. Raises as `Sampler.sample`.

    Source: Waleffe et al., "MariusGNN", EuroSys 2023, Algorithm 1, with nodes stacked targets first.
    """
    check_seed(step, "step")
    seeds = check_seeds(graph, seeds)
    hops: list[dict[str, Tensor]] = []
    with relabeler(graph.num_nodes, seeds) as labels:
        reached = [0, seeds.shape[0]]
        for layer in reversed(range(sampler.num_layers)):
            new = labels.node_ids[reached[-2] :]
            drawn = draw(new, layer)
            check_drawn(drawn, new.shape[0])
            values = edge_values(edges, drawn, getattr(sampler, "edge_ids", False))
            room = _room(hops, drawn.sources, graph.num_nodes) if layer == 0 else None
            local = labels(drawn.sources, overwrite=sources_are_new(sampler), out=room)
            hops.append({"indptr": drawn.indptr, "indices": local, **values})
            reached.append(labels.node_ids.shape[0])
        node_ids = copy_ids(labels.node_ids)
    return MiniBatch(node_ids, _row_prefixes(_stacked(hops), reached), step=step)


def _row_prefixes(rows: dict[str, Tensor], reached: list[int]) -> tuple[Block, ...]:
    """Return a block per layer, input layer first, given the number of nodes reached after each hop."""
    sizes = list(pairwise(reached[1:]))[::-1]
    num_dst, num_src = sizes[0]
    whole = Block(rows.pop("indptr"), rows.pop("indices"), num_src, num_dst, **rows)
    return (whole, *(first_rows(whole, num_src, num_dst) for num_dst, num_src in sizes[1:]))


def _room(hops: Sequence[dict[str, Tensor]], sources: Tensor, num_nodes: int) -> Tensor | None:
    """Return memory for the local ids of the last hop, behind room for those of the other hops; None: not on the CPU.

    Most edges are those of the last hop, which need no copy then.
    """
    if not hops or sources.device.type != "cpu":
        return None
    before = sum(hop["indices"].shape[0] for hop in hops)
    return torch.empty(before + sources.shape[0], dtype=index_dtype(num_nodes))[before:]


def _stacked(hops: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Append the rows of all hops."""
    if len(hops) == 1:
        return hops[0]
    columns = {name: [hop[name] for hop in hops] for name in hops[0]}
    if hops[0]["indices"].device.type != "cpu" or any(t.requires_grad for hop in hops for t in hop.values()):
        return {name: _concatenated_torch(name, parts) for name, parts in columns.items()}
    stacked = {name: _memory(name, parts) for name, parts in columns.items()}
    copies = [partial(_copy, name, columns[name], out) for name, out in stacked.items()]
    if stacked["indices"].shape[0] < _MIN_EDGES:
        for copy in copies:
            copy()
    else:
        run_tasks(copies)
    return stacked


def _concatenated_torch(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Concatenate on any device; ids of the last hop may be wider than those of earlier ones."""
    if name == "indptr":
        return offsets(torch.cat([part.diff() for part in parts]))
    return torch.cat([part.to(parts[-1].dtype) for part in parts])


def _memory(name: str, parts: Sequence[Tensor]) -> Tensor:
    """Allocate the result, or take that in which the last part is already."""
    last, extra = parts[-1], int(name == "indptr")
    size = sum(part.shape[0] - extra for part in parts) + extra
    if last.storage_offset() and last.storage_offset() + last.shape[0] == size:  # see _room
        return last.as_strided((size,), (1,), 0)
    return torch.empty(size, dtype=last.dtype)


def _copy(name: str, parts: Sequence[Tensor], out: Tensor) -> None:
    """Copy the parts one behind the other; torch would wake OpenMP threads, whose spinning slows kernels."""
    whole, end = as_integers(out), 0
    if name == "indptr":
        whole[0] = 0
        for part in (part.numpy() for part in parts):
            np.add(part[1:], whole[end], out=whole[end + 1 : end + len(part)])
            end += len(part) - 1
        return
    is_there = parts[-1].storage_offset() > 0  # see _room
    for part in map(as_integers, parts[:-1] if is_there else parts):
        whole[end : end + len(part)] = part
        end += len(part)


Both = dict[tuple[int | None, bool, int | None], tuple[Graph, Tensor | None]]

_graphs: WeakKeyDictionary[Graph, Both] = WeakKeyDictionary()


def two_way(graph: Graph, *, num_edge_types: int | None = None, edge_ids: bool = False) -> Graph:
    """Return the graph whose rows v and `num_nodes` + v are the in-edges and the out-edges of node v.

    It is built once per graph, in time and memory proportional to its edges, and again when weights that are not
    trained have changed; those that are trained are not part of what is kept. The reverse of an edge of type r has
    type r + n, and that of edge e has edge id e + E, as in `Graph.from_edges(undirected="multi")`; its source is the
    destination of the edge.

    Args:
        graph: a directed graph of n edge types and E edges (the largest edge id + 1).
        num_edge_types: n; None: the largest type + 1.
        edge_ids: whether edge ids are needed, 16 bytes per edge.

    Raises:
        CapacityError: the edges of both directions do not fit into memory.
        IndexError: a type is not below `num_edge_types`, or a source is not a node.
    """
    known, weight = _graphs.setdefault(graph, {}), graph.edge_weight
    key = num_edge_types, edge_ids, _version(weight)
    if key not in known:
        for other in [other for other in known if other[:2] == key[:2] and other[2] != _TRAINED]:
            del known[other]  # with weights that have changed since
        known[key] = _build(graph, num_edge_types, edge_ids)
    both, order = known[key]
    if weight is None or order is None:
        return both
    return replace(both, edge_weight=torch.cat([weight, weight[order]]))


_TRAINED = -1


def _version(weight: Tensor | None) -> int | None:
    """Number that changes with every change of the weights in place; `_TRAINED` for those that are trained."""
    if weight is None or weight.requires_grad:
        return None if weight is None else _TRAINED
    return 0 if weight.is_inference() else weight._version


def _build(graph: Graph, num_edge_types: int | None, edge_ids: bool) -> tuple[Graph, Tensor | None]:
    """The graph of both directions; if its weights are trained, without them, and the order of the reverse edges."""
    check_sources(graph.indices, graph.num_nodes, IndexError)
    num_nodes, num_edges, indices = graph.num_nodes, graph.num_edges, graph.indices
    remedy = "draw in-neighbours alone (out_fanouts=None)"
    check_fits("a graph with its reverse edges", (3 * indices.element_size() + 24) * num_edges, remedy)
    nodes = torch.arange(num_nodes, dtype=indices.dtype, device=graph.device)
    destinations = nodes.repeat_interleave(graph.in_degrees(), output_size=num_edges)
    reverse = group_rows(indices, destinations, num_nodes, num_nodes)
    order = torch.arange(num_edges, device=graph.device) if reverse.order is None else reverse.order
    types = None if graph.edge_type is None else types_of_both(graph.edge_type, num_edge_types)
    trained = _version(graph.edge_weight) == _TRAINED
    weight = None if trained else graph.edge_weight
    both = Graph(
        torch.cat([graph.indptr, reverse.indptr[1:] + num_edges]),
        torch.cat([indices, reverse.indices.to(indices.dtype)]),
        edge_ids=_ids_of_both(graph, order) if edge_ids else None,
        edge_weight=None if weight is None else torch.cat([weight, weight[order]]),
        edge_type=None if types is None else torch.cat([types[:num_edges], types[num_edges:][order]]),
    )
    return both, order if trained else None


def _ids_of_both(graph: Graph, order: Tensor) -> Tensor:
    ids = torch.arange(graph.num_edges, device=graph.device) if graph.edge_ids is None else graph.edge_ids
    return torch.cat([ids, ids[order] + first_reverse_id(graph)])


def first_reverse_id(graph: Graph) -> int:
    """Return the edge id of the reverse of edge 0: the number of edges, or of those of the graph that ids refer to."""
    return graph.num_edges if graph.edge_ids is None else int(graph.edge_ids.max()) + 1 if graph.num_edges else 0

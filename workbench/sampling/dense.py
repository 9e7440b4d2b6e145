"""DENSE: every node's one-hop sample is drawn once per batch and reused in all layers.

Waleffe, Mohoney, Rekatsinas, Venkataraman: "MariusGNN: Resource-efficient out-of-core training of graph neural
networks", EuroSys 2023, Algorithm 1. There, nodes are stacked newest first and offsets are shifted after every layer.
Here they are stacked targets first, so that the rows of each layer are the first rows of one CSR and nothing moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_seed
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.variates import Dependence, check_dependence
from workbench.sampling.candidates import candidates, excluded_positions
from workbench.sampling.fanouts import Fanout, checked_fanouts
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.one_sample import sample_once_per_node
from workbench.sampling.sampler import Drawn, Sampler, check_draw, check_graph
from workbench.sampling.two_way import first_reverse_id, two_way


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

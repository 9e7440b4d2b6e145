"""`OwnedGraph`: the in-edges of the nodes that one rank owns, in a graph of raw ids."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, INT64_MAX, check_at_least, check_ids, check_vector, find_out_of_range
from workbench.core.graph import Graph, find
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch
from workbench.sampling.sampler import (
    Drawn,
    Sampler,
    candidates,
    check_graph,
    edge_values,
    expand_rows,
    require_row_independence,
    row_offsets,
)

_PREFETCH_DISTANCE = 32  # ids
_MAX_RANKS = 2**15


@dataclass(frozen=True, eq=False, repr=False)
class OwnedGraph:
    """The part of a graph that one rank owns: some nodes and all their in-edges.

    Args:
        graph: contains the complete rows of the rank's nodes, in raw ids; `OwnedGraph.of` leaves those of others empty.
        owner: int32 [num_nodes], the rank that owns each node.
        rank: number of this rank.
        num_ranks: number of ranks.
        knows_edge_ids: edges have their ids in the whole graph. In a part that `split_graph(edge_ids=False)` wrote
            they don't, and can neither be excluded nor named.

    Raises:
        TypeError: `graph` is not a Graph, or `owner` has another dtype.
        ValueError: `owner` has another length, or `rank` is out of range.

    Source: Balın, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", section 3.1.

    >>> path = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> OwnedGraph.of(path, torch.tensor([0, 0, 1, 1]), rank=1)
    OwnedGraph(rank 1 of 2: 2 of 4 nodes, 2 edges)
    """

    graph: Graph
    owner: Tensor
    rank: int
    num_ranks: int
    knows_edge_ids: bool = True

    def __post_init__(self) -> None:
        check_graph(self.graph)
        check_vector("owner", self.owner, self.graph.num_nodes, (torch.int32,))
        check_at_least("num_ranks", self.num_ranks, 1, most=_MAX_RANKS)
        check_at_least("rank", self.rank, 0, most=self.num_ranks - 1)

    @staticmethod
    def of(graph: Graph, owner: Tensor, rank: int, num_ranks: int | None = None) -> "OwnedGraph":
        """Extract the rows of one rank's nodes from a graph. Edge ids remain those of the whole graph.

        Args:
            graph: the whole graph, which may be memory-mapped: only the rank's rows are read.
            owner: int64 or int32 [num_nodes], the rank that owns each node, as `partition_graph` returns it.
            rank: number of the rank.
            num_ranks: number of ranks; by default the largest owner + 1.

        Raises:
            TypeError: `owner` is not an integer tensor.
            ValueError: `owner` has another length or contains a number that is not a rank.
        """
        check_graph(graph)
        owner = checked_owner(owner, graph, num_ranks)
        whole = OwnedGraph(graph, owner, rank, num_ranks or _num_ranks(owner))
        return replace(whole, graph=_rows_of(graph, (owner == rank).nonzero()[:, 0]))

    def draw(
        self, sampler: Sampler, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges of nodes of this rank in one layer; the sources may belong to any rank.

        Args:
            sampler: draws every row independently of the others.
            nodes: int64 or int32 [n], nodes of this rank.
            layer: number of the layer, 0 for the input layer.
            step: number of the batch, which selects the random variates.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn; those of other ranks are ignored.

        Returns:
            The drawn rows, in the order of `nodes`; positions are those in `graph`.

        Raises:
            IndexError: a node of another rank; the message names both.
            ValueError: the sampler reads rows of other nodes than those that it draws for, or its rows depend on nodes
                of other ranks.
        """
        self.check_reads(sampler)
        if self.num_ranks > 1:
            require_row_independence(sampler, "drawing on one of several ranks")
        self.check_owned("nodes", nodes)
        return sampler.draw(self.graph, nodes, layer=layer, step=step, exclude_edges=self.own_edges(exclude_edges))

    def check_reads(self, sampler: Sampler) -> None:
        """Check that a sampler reads no rows but those of the nodes that it draws for.

        Args:
            sampler: draws for nodes of this rank.

        Raises:
            ValueError: it does, and other ranks have such rows.
        """
        if self.num_ranks > 1 and getattr(sampler, "reads_other_rows", False):
            raise ValueError(
                f"{type(sampler).__name__} reads rows of nodes that other ranks own (reads_other_rows is True), so "
                f"rank {self.rank} of {self.num_ranks} can't draw alone; call sample_owned, for which a sampler "
                "defines draw_owned"
            )

    def check_owned(self, name: str, nodes: Tensor) -> Tensor:
        """Return nodes as an int64 vector after checking that this rank owns all of them.

        Args:
            name: name of the argument, for the message.
            nodes: int64 or int32 [n].

        Raises:
            TypeError: nodes of another dtype.
            IndexError: a node is not in the graph, or belongs to another rank.
        """
        nodes = check_ids(name, nodes, self.graph.num_nodes)
        position = _first_foreign(nodes, self.owner, self.rank)
        if position is None:
            return nodes
        node = int(nodes[position])
        raise IndexError(
            f"{name} contains {node}, which rank {int(self.owner[node])} owns; rank {self.rank} has the rows of its "
            "own nodes alone: ask the owner"
        )

    def own_edges(self, edge_ids: Tensor | None) -> Tensor | None:
        """Return those of some edge ids that are edges of `graph`; None for None.

        Raises:
            ValueError: the graph was divided without edge ids.
        """
        if edge_ids is None:
            return None
        self._check_knows_ids("exclude_edges")
        if self.num_ranks == 1 or self.graph.edge_ids is None:
            return edge_ids  # the sampler refuses those that are no edges
        ids = check_ids("exclude_edges", edge_ids, INT64_MAX)
        return ids[find(self.graph.position_index, ids) >= 0]

    def edge_values(self, drawn: Drawn, sampler: Sampler) -> dict[str, Tensor]:
        """Return what a block has per edge, as `workbench.sampling.sampler.edge_values`.

        Args:
            drawn: rows of `graph`.
            sampler: that has drawn them; whether ids of edges are wanted is its `edge_ids`.

        Raises:
            ValueError: ids of edges are wanted, but the graph was divided without them.
        """
        wanted = getattr(sampler, "edge_ids", False)
        if wanted:
            self._check_knows_ids("edge_ids=True")
        return edge_values(self.graph, drawn, wanted)

    def _check_knows_ids(self, need: str) -> None:
        if not self.knows_edge_ids:
            raise ValueError(
                f"{need} needs the ids of edges, but the graph was divided without them; divide it again with "
                "workbench.partition.split_graph(…, edge_ids=True)"
            )

    def __repr__(self) -> str:
        owned = int((self.owner == self.rank).sum())
        return (
            f"OwnedGraph(rank {self.rank} of {self.num_ranks}: {owned} of {self.graph.num_nodes} nodes, "
            f"{self.graph.num_edges} edges)"
        )


def checked_owner(owner: Tensor, graph: Graph, num_ranks: int | None) -> Tensor:
    """Return the owners as an int32 vector on the graph's device after checking them.

    Raises:
        TypeError: `owner` is not an integer tensor.
        ValueError: another length, or an owner out of range: `num_ranks`, or any number that is supported.
    """
    check_vector("owner", owner, graph.num_nodes, ID_DTYPES)
    limit = _MAX_RANKS if num_ranks is None else num_ranks
    if (bad := find_out_of_range(owner, 0, limit)) is not None:
        raise ValueError(
            f"owner contains {bad}; owners are ranks in [0, {limit}): wb.partition_graph(graph, {limit}) returns such"
        )
    return owner.to(graph.device, torch.int32).contiguous()


def _num_ranks(owner: Tensor) -> int:
    return int(owner.max()) + 1 if len(owner) else 1


def _rows_of(graph: Graph, nodes: Tensor) -> Graph:
    """Return a graph with the rows of some nodes, in ascending order, and empty rows for the others."""
    rows = candidates(graph, nodes, None)
    _, positions = expand_rows(rows)
    degrees = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    degrees[nodes] = rows.degrees
    edges = {
        name: None if values is None else values[positions]
        for name, values in {"edge_weight": graph.edge_weight, "edge_type": graph.edge_type}.items()
    }
    ids = positions if graph.edge_ids is None else graph.edge_ids[positions]
    return Graph(row_offsets(degrees), graph.indices[positions], edge_ids=ids, node_type=graph.node_type, **edges)


def _first_foreign(nodes: Tensor, owner: Tensor, rank: int) -> int | None:
    """Return the position of the first node of another rank; None if there is none."""
    if nodes.device.type != "cpu":
        foreign = (owner[nodes] != rank).nonzero()
        return int(foreign[0, 0]) if len(foreign) else None
    position = _find_foreign(nodes.numpy(), owner.numpy(), np.int32(rank))
    return None if position < 0 else int(position)


@compiled
def _find_foreign(nodes, owner, rank):
    last = len(nodes) - 1
    for i in range(len(nodes)):
        prefetch(owner, nodes[min(i + _PREFETCH_DISTANCE, last)])
        if owner[nodes[i]] != rank:
            return i
    return -1

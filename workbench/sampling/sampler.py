"""`Sampler`: the interface of samplers, and the loop over layers that turns drawn rows into a batch."""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import (
    check_at_least,
    check_id_vector,
    check_ids,
    check_seed,
    check_type,
)
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.relabel import relabeler
from workbench.sampling.drawn import Drawn, check_drawn, edge_values


class Sampler(Protocol):
    """Draws in-edges of nodes layer by layer; a subclass that defines `draw` and the two attributes inherits `sample`.

    Four more attributes are optional: `edge_ids`, whether blocks contain raw-graph edge ids (if `draw` returns
    positions); `sources_are_new`, whether nothing else uses the sources that `draw` returns, so that the batch may
    overwrite them; `reads_other_rows`, whether `draw` reads rows of other nodes than those that it gets, as random
    walks do, so that it needs the whole graph; and `draw_owned`, by which such a sampler draws on one of several ranks
    (`RandomWalkSampler.draw_owned`).

    Args:
        num_layers: number of layers, numbered from 0, the input layer.
        rows_are_independent: whether a node's row depends on (seed, step, layer, node) alone. Then sampling a part of
            the seeds, with the same step, gives bit for bit the part of the whole batch.

    >>> import torch, workbench as wb
    >>> class FirstNeighbor(wb.Sampler):
    ...     num_layers, rows_are_independent = 2, True
    ...
    ...     def draw(self, graph, nodes, *, layer, step=0, exclude_edges=None):
    ...         has_any = graph.in_degrees()[nodes] > 0
    ...         indptr = torch.cat([torch.zeros(1, dtype=torch.int64), has_any.cumsum(0)])
    ...         return wb.Drawn(indptr, graph.indices[graph.indptr[nodes[has_any]]])
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> FirstNeighbor().sample(path, torch.tensor([3])).node_ids
    tensor([3, 2, 1])
    """

    num_layers: int
    rows_are_independent: bool

    @abstractmethod
    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges of some nodes in one layer.

        Args:
            graph: the graph to sample from.
            nodes: int64 or int32 [n], node ids, the destinations.
            layer: number of the layer, 0 for the input layer.
            step: number of the batch, which selects the random variates.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn.

        Returns:
            The drawn rows, in the order of `nodes`.
        """
        ...

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds.

        Args:
            graph: the graph to sample from; the batch is created on its device.
            seeds: int64 or int32 node ids, each once.
            step: number of the batch; every step draws other neighbours.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn (target edges of link prediction
                and their reverses).

        Returns:
            The batch.

        Raises:
            TypeError: ids of another dtype.
            ValueError: duplicate seeds, or `step` is not a 64-bit integer.
            IndexError: an id out of range.
        """
        return sample_layers(self, graph, seeds, step=step, draw=partial(self.draw, graph, exclude_edges=exclude_edges))


def sample_layers(sampler: Sampler, graph: Graph, seeds: Tensor, *, step: int, draw: Callable[..., Drawn]) -> MiniBatch:
    """Sample a batch from the seeds to the inputs: draw in-edges of all nodes reached so far, relabel them, repeat.

    Args:
        sampler: the sampler.
        graph: the graph to sample from.
        seeds: int64 or int32 node ids, each once.
        step: number of the batch.
        draw: called with the nodes, `layer=` and `step=` for each layer; returns their rows.

    Returns:
        The batch; every block's destinations are the sources of the next, and its new sources follow in order of first
        appearance.

    Raises:
        TypeError: seeds of another dtype.
        ValueError: duplicate seeds.
        IndexError: a seed out of range.
    """
    check_graph(graph)
    check_seed(step, "step")
    seeds = check_seeds(graph, seeds)
    blocks: list[Block] = []
    with relabeler(graph.num_nodes, seeds) as labels:
        for layer in reversed(range(sampler.num_layers)):
            nodes = labels.node_ids
            num_nodes = nodes.shape[0]
            drawn = draw(nodes, layer=layer, step=step)
            check_drawn(drawn, num_nodes)
            extra = edge_values(graph, drawn, getattr(sampler, "edge_ids", False))
            local = labels(drawn.sources, overwrite=getattr(sampler, "sources_are_new", False))
            blocks.insert(0, Block(drawn.indptr, local, labels.node_ids.shape[0], num_nodes, **extra))
        node_ids = copy_ids(labels.node_ids)
    return MiniBatch(node_ids, tuple(blocks), step=step)


def copy_ids(ids: Tensor) -> Tensor:
    """Copy ids into a storage of exact size; torch's copy would wake OpenMP threads, whose spinning slows kernels."""
    if ids.device.type != "cpu":
        return ids.clone()
    out = torch.empty_like(ids)
    out.numpy()[:] = ids.numpy()
    return out


def check_graph(graph: Graph) -> None:
    """Check that the graph to sample from is a `Graph`.

    Args:
        graph: the graph to sample from.

    Raises:
        TypeError: it is another object.
    """
    remedy = "pass a Graph (Graph.from_dgl, from_pyg, from_scipy and from_networkx convert those of other libraries)"
    check_type("graph", graph, Graph, remedy)


def check_seeds(graph: Graph, seeds: Tensor) -> Tensor:
    """Return seeds as an int64 vector on the graph's device, after checking that the graph has their rows.

    Args:
        graph: the graph to sample from; one that has some nodes' rows alone says so by a method `check_rows`.
        seeds: int64 or int32 [n].

    Raises:
        TypeError: seeds of another dtype.
        IndexError: a seed out of range, or one whose row the graph does not have.
    """
    seeds = check_ids("seeds", seeds, graph.num_nodes).to(graph.device)
    check_rows = getattr(graph, "check_rows", None)
    if check_rows is not None:
        check_rows("seeds", seeds)
    return seeds


def check_sampler(sampler: Sampler) -> None:
    """Check that a sampler can sample.

    Raises:
        TypeError: it is another object.
    """
    if inspect.isclass(sampler) or not callable(getattr(sampler, "sample", None)):
        raise TypeError(f"sampler is {sampler!r}; pass a sampler, such as wb.NeighborSampler([10, 25])")


def check_draw(sampler: Sampler, graph: Graph, nodes: Tensor, *, layer: int, step: int) -> Tensor:
    """Check the arguments of a `draw`, except the range of `nodes`, which `candidates` checks where it reads the rows.

    Args:
        sampler: the sampler that draws.
        graph: the graph to sample from.
        nodes: the destinations.
        layer: number of the layer.
        step: number of the batch.

    Returns:
        The nodes, int64 [n], on the graph's device.

    Raises:
        TypeError: `graph` is not a Graph, or `nodes` have another dtype.
        ValueError: `layer` or `step` is out of range, or `nodes` is not a vector.
    """
    check_graph(graph)
    check_at_least("layer", layer, 0, most=sampler.num_layers - 1)
    check_seed(step, "step")
    check_id_vector("nodes", nodes)
    return nodes.to(graph.device, torch.int64).contiguous()


def require_row_independence(sampler: Sampler, what: str) -> None:
    """Reject a sampler whose rows depend on each other, where each process or part draws rows of its own.

    Args:
        sampler: the sampler.
        what: what needs independent rows, such as "cooperative sampling".

    Raises:
        ValueError: `sampler.rows_are_independent` is false; the message names the sampler.
    """
    if not sampler.rows_are_independent:
        raise ValueError(
            f"{what} needs a sampler that draws each node's row independently of the others, which "
            f"{type(sampler).__name__} with these options does not (rows_are_independent is False); use "
            "NeighborSampler, or LaborSampler with importance=0"
        )

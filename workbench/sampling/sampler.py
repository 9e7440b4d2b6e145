"""`Sampler`: the interface of samplers, the loop over layers that turns drawn rows into a batch, and its checks.

Below: fanouts, the candidates that a row may draw, and the offsets of drawn rows, which samplers share.
"""

import inspect
import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from workbench.core.block import FLOATS, Block
from workbench.core.errors import (
    ID_DTYPES,
    check_at_least,
    check_id_vector,
    check_ids,
    check_seed,
    check_type,
    check_vector,
)
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.kernels.buffers import to_device
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch
from workbench.kernels.relabel import relabeler, rows_of_ids
from workbench.kernels.threads import parallel_rows


class Drawn(NamedTuple):
    """The drawn in-edges of some nodes, as a CSR with one row per node.

    Args:
        indptr: int64 [n + 1].
        sources: int32 or int64 [num_drawn], raw-graph ids.
        positions: int64 [num_drawn], CSR positions in the graph; None: not needed.
        weight: floating point [num_drawn], weights of the drawn edges in the batch; None: unweighted.
    """

    indptr: Tensor
    sources: Tensor
    positions: Tensor | None = None
    weight: Tensor | None = None


class Sampler(Protocol):
    """Draws in-edges of nodes layer by layer; a subclass that defines `draw` and the two attributes inherits `sample`.

    Four more attributes are optional: `edge_ids`, whether blocks contain raw-graph edge ids (if `draw` returns
    positions); `sources_are_new`, whether nothing else uses the sources that `draw` returns, so that the batch may
    overwrite them (a class that defines `draw` does not inherit it); `reads_other_rows`, whether `draw` reads rows of
    other nodes than those that it gets, as random walks do, so that it needs the whole graph; and `draw_owned`, by
    which such a sampler draws on one of several ranks (`RandomWalkSampler.draw_owned`).

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
    ...         return wb.sampling.Drawn(indptr, graph.indices[graph.indptr[nodes[has_any]]])
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

        def draw(nodes: Tensor, num_edges: int | None, **options: int) -> Drawn:
            return self.draw(graph, nodes, exclude_edges=exclude_edges, **options)

        return sample_layers(self, graph, seeds, step=step, draw=draw)


def sample_layers(sampler: Sampler, graph: Graph, seeds: Tensor, *, step: int, draw: Callable[..., Drawn]) -> MiniBatch:
    """Sample a batch from the seeds to the inputs: draw in-edges of all nodes reached so far, relabel them, repeat.

    Every block's destinations are the sources of the next, and its new sources follow in order of first appearance.
    `draw` is called for each layer with the nodes, the number of their in-edges (on a GPU, where the host learns it
    together with the number of nodes; otherwise None), `layer=` and `step=`. Raises as `Sampler.sample`.
    """
    check_graph(graph)
    check_seed(step, "step")
    seeds = check_seeds(graph, seeds)
    blocks: list[Block] = []
    with relabeler(graph.num_nodes, seeds, graph.indptr) as labels:
        for layer in reversed(range(sampler.num_layers)):
            nodes = labels.node_ids
            num_nodes = nodes.shape[0]
            drawn = draw(nodes, labels.num_edges, layer=layer, step=step)
            check_drawn(drawn, num_nodes)
            extra = edge_values(graph, drawn, getattr(sampler, "edge_ids", False))
            local = labels(drawn.sources, overwrite=sources_are_new(sampler))
            blocks.insert(0, Block(drawn.indptr, local, labels.node_ids.shape[0], num_nodes, **extra))
        node_ids = copy_ids(labels.node_ids)
    return MiniBatch(node_ids, tuple(blocks), step=step)


def sources_are_new(sampler: Sampler) -> bool:
    """Return whether a batch may overwrite the sources that a sampler draws: its `sources_are_new`.

    A class that defines a draw of its own, which may return sources that it keeps, does not inherit the promise.
    """
    for names in (getattr(sampler, "__dict__", {}), *map(vars, type(sampler).__mro__)):
        if "sources_are_new" in names:
            return sampler.sources_are_new  # pyright: ignore[reportAttributeAccessIssue]
        if not _DRAWS.isdisjoint(names):
            return False
    return False


_DRAWS = {"draw", "_draw", "draw_owned"}


def copy_ids(ids: Tensor) -> Tensor:
    """Copy ids into a storage of exact size; torch's copy would wake OpenMP threads, whose spinning slows kernels."""
    if ids.device.type != "cpu":
        return ids.clone()
    out = torch.empty_like(ids)
    out.numpy()[:] = ids.numpy()
    return out


def check_graph(graph: Graph) -> None:
    """Check that the graph to sample from is a `Graph`."""
    remedy = "pass a Graph (Graph.from_dgl, from_pyg, from_scipy and from_networkx convert those of other libraries)"
    check_type("graph", graph, Graph, remedy)


def check_seeds(graph: Graph, seeds: Tensor) -> Tensor:
    """Return seeds as an int64 vector on the graph's device, after checking that the graph has their rows.

    A graph that has some nodes' rows alone says so by a method `check_rows`.
    """
    seeds = to_device(check_ids("seeds", seeds, graph.num_nodes), graph.device)
    check_rows = getattr(graph, "check_rows", None)
    if check_rows is not None:
        check_rows("seeds", seeds)
    return seeds


def check_sampler(sampler: Sampler) -> None:
    """Check that a sampler can sample."""
    if inspect.isclass(sampler) or not callable(getattr(sampler, "sample", None)):
        raise TypeError(f"sampler is {sampler!r}; pass a sampler, such as wb.NeighborSampler([10, 25])")


def check_draw(sampler: Sampler, graph: Graph, nodes: Tensor, *, layer: int, step: int) -> Tensor:
    """Check the arguments of a `draw`, and return the nodes as int64 [n] on the graph's device.

    The range of `nodes` is checked by `candidates`, where it reads the rows.
    """
    check_graph(graph)
    check_at_least("layer", layer, 0, most=sampler.num_layers - 1)
    check_seed(step, "step")
    check_id_vector("nodes", nodes)
    return to_device(nodes.to(torch.int64), graph.device).contiguous()


def require_row_independence(sampler: Sampler, what: str) -> None:
    """Refuse a sampler whose rows depend on each other, for `what` each process or part draws rows of its own."""
    if not sampler.rows_are_independent:
        raise ValueError(
            f"{what} needs a sampler that draws each node's row independently of the others, which "
            f"{type(sampler).__name__} with these options does not (rows_are_independent is False); use "
            "NeighborSampler, or LaborSampler with importance=0"
        )


def check_drawn(drawn: Drawn, num_rows: int) -> None:
    """Check dtypes and lengths that the kernels which relabel the sources trust; the block checks the rest."""
    check_vector("indptr of the drawn rows", drawn.indptr, num_rows + 1, (torch.int64,))
    check_vector("sources of the drawn rows", drawn.sources, None, ID_DTYPES)
    num_drawn = drawn.sources.numel()
    check_vector("positions of the drawn rows", drawn.positions, num_drawn, (torch.int64,))
    check_vector("weight of the drawn rows", drawn.weight, num_drawn, FLOATS)


def edge_values(graph: Graph, drawn: Drawn, edge_ids: bool) -> dict[str, Tensor]:
    """Look up what a block contains per edge: its `edge_weight`, `edge_ids` and `edge_type`, those that there are."""
    values: dict[str, Tensor] = {} if drawn.weight is None else {"edge_weight": drawn.weight}
    if drawn.positions is None:
        return values
    if edge_ids:
        values["edge_ids"] = drawn.positions if graph.edge_ids is None else graph.edge_ids[drawn.positions]
    if graph.edge_type is not None:
        values["edge_type"] = graph.edge_type[drawn.positions]
    return values


class ExcludingSampler(Sampler):
    """A sampler with a fanout per layer, defined by `_draw`, which gets the edges that it may draw."""

    fanouts: Sequence[Any]

    @property
    def num_layers(self) -> int:
        """Number of layers: one per fanout."""
        return len(self.fanouts)

    @abstractmethod
    def _draw(self, graph: Graph, rows: "Candidates", *, layer: int, step: int) -> Drawn:
        """Draw from the candidates of nodes, on the graph's device."""
        ...

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw the rows of some nodes in one layer; a node that occurs twice gets the same row twice.

        Rows have positions if `edge_ids`, weights or types need them. Random walks need all of the graph.

        Raises:
            TypeError: ids of another dtype.
            ValueError: a layer that does not exist, weights that are missing, negative or not finite, or an edge type
                without a fanout.
            IndexError: an id out of range.
            CapacityError: the drawn rows need more memory than is available.
        """
        nodes = check_draw(self, graph, nodes, layer=layer, step=step)
        rows = candidates(graph, nodes, excluded_positions(graph, exclude_edges))
        return self._draw(graph, rows, layer=layer, step=step)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds. Arguments and errors as for `Sampler.sample`.

        The excluded edges are looked up and sorted once for all layers.
        """
        if type(self).draw is not ExcludingSampler.draw:  # a subclass defines its own
            return super().sample(graph, seeds, step=step, exclude_edges=exclude_edges)
        check_graph(graph)
        excluded = excluded_positions(graph, exclude_edges)

        def draw(nodes: Tensor, num_edges: int | None, **options: int) -> Drawn:
            return self._draw(graph, candidates(graph, nodes, excluded, num_edges), **options)

        return sample_layers(self, graph, seeds, step=step, draw=draw)


Fanout = int | Mapping[int, int]

MAX_LAYERS = 1000

UNLIMITED = 2**62
"""More than any in-degree, and the largest fanout."""


def checked_fanouts(fanouts: Any) -> tuple[Fanout, ...]:
    """Return the fanouts of a sampler, one per layer, as a tuple of integers and mappings of integers.

    Raises:
        TypeError: a fanout that is neither an integer nor a mapping of integers.
        ValueError: no fanouts, or a fanout that is neither positive nor -1 (nor 0 in a mapping).
    """
    checked = _as_fanouts(fanouts)
    if not 1 <= len(checked) <= MAX_LAYERS or not all(map(_is_valid, checked)):
        raise ValueError(
            f"fanouts are {list(checked[:9])}; pass one per layer (1 to {MAX_LAYERS} layers), each at least "
            f"1 (and at most {UNLIMITED}), or -1 for all; 0 only for a type in a mapping, which must not be empty"
        )
    return checked


def _is_valid(fanout: Fanout) -> bool:
    least, limits = (1, [fanout]) if isinstance(fanout, int) else (0, fanout.values())
    return bool(limits) and all(limit == -1 or least <= limit <= UNLIMITED for limit in limits)


def _type_names(fanouts: Any) -> str:
    """List the types of the fanouts, which their values don't show: 10.0 may be a float or a tensor."""
    values = fanouts if isinstance(fanouts, list | tuple) else [fanouts]
    return ", ".join(dict.fromkeys(type(value).__name__ for value in values))


def _as_fanouts(fanouts: Any) -> tuple[Fanout, ...]:
    try:
        if isinstance(fanouts, str | Mapping):
            raise TypeError
        return tuple(
            {_as_integer(kind): _as_integer(limit) for kind, limit in fanout.items()}
            if isinstance(fanout, Mapping)
            else _as_integer(fanout)
            for fanout in fanouts
        )
    except TypeError:
        raise TypeError(
            f"fanouts are {fanouts!r} ({_type_names(fanouts)}); pass a list of integers, input layer first: [10, 25], "
            "or -1 for all neighbours; a mapping {edge type: fanout} in place of an integer draws per type"
        ) from None


def _as_integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


_PREFETCH_DISTANCE = 16  # rows

_MIN_ROWS = 32768  # per thread: fewer take less time than waking a thread

_NONE = torch.empty(0, dtype=torch.int64)


class Candidates(NamedTuple):
    """The in-edges from which a sampler may draw, in rows: those of a node, or those of a node and an edge type.

    Args:
        nodes: int64 [n], raw-graph ids, or ids of the groups; they select the random variates of the rows.
        starts: int64 [n], the first CSR position of every row; with `positions`, where the row begins there.
        lengths: int64 [n], positions per row from `starts` on.
        degrees: int64 [n], candidates per row: `lengths` minus excluded edges.
        excluded: int64, the excluded CSR positions in ascending order.
        first_excluded: int64 [n], where the excluded positions of every row begin in `excluded`; empty without any.
        positions: int64, the candidates' CSR positions, grouped by row; None: each row is consecutive in the CSR.
        origins: int64 [n], the first CSR position of the row's node; None: `starts`.
        num_edges: sum of `lengths`, for tensors on a GPU, so that the host need not wait for it; None: not known.
    """

    nodes: Tensor
    starts: Tensor
    lengths: Tensor
    degrees: Tensor
    excluded: Tensor
    first_excluded: Tensor
    positions: Tensor | None = None
    origins: Tensor | None = None
    num_edges: int | None = None


@compiled
def _look_up_rows(lo, hi, nodes, indptr, starts, degrees, invalid):
    for i in range(lo, hi):
        prefetch(indptr, nodes[min(i + _PREFETCH_DISTANCE, hi - 1)])
        if not 0 <= nodes[i] < len(indptr) - 1:
            invalid[0] = True
            break
        starts[i] = indptr[nodes[i]]
        degrees[i] = indptr[nodes[i] + 1] - starts[i]


def _starts_and_degrees(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    starts, degrees, invalid = torch.empty_like(nodes), torch.empty_like(nodes), np.zeros(1, np.bool_)
    arrays = [t.numpy() for t in (nodes, graph.indptr, starts, degrees)]
    parallel_rows(lambda lo, hi: _look_up_rows(lo, hi, *arrays, invalid), nodes.numel(), _MIN_ROWS)
    if invalid[0]:
        check_ids("nodes", nodes, graph.num_nodes)
    return starts, degrees


def candidates(graph: Graph, nodes: Tensor, excluded: Tensor | None, num_edges: int | None = None) -> Candidates:
    """Look up the candidates of int64 [n] nodes: their in-edges but the `excluded` CSR positions, which ascend.

    `num_edges`, the number of the nodes' in-edges, is given for nodes on a GPU that are known to be in range.
    """
    if nodes.device.type != "cpu":
        return _candidates_torch(graph, nodes, excluded, num_edges)
    starts, lengths = _starts_and_degrees(graph, nodes)
    if excluded is None:
        return Candidates(nodes, starts, lengths, lengths, _NONE, _NONE)
    first, degrees = torch.empty_like(starts), torch.empty_like(starts)
    arrays = [t.numpy() for t in (excluded, starts, lengths, first, degrees)]
    parallel_rows(lambda lo, hi: _find_excluded(lo, hi, *arrays), len(nodes))
    return Candidates(nodes, starts, lengths, degrees, excluded, first)


def _candidates_torch(graph: Graph, nodes: Tensor, excluded: Tensor | None, num_edges: int | None) -> Candidates:
    """Look up candidates in plain torch, for any device; the host waits once unless `num_edges` is given."""
    known = num_edges is not None
    starts, lengths = rows_of_ids(graph.indptr, nodes if known else nodes.clamp(0, graph.num_nodes - 1))
    if not known and len(nodes):
        low, high, num_edges = torch.stack([*torch.aminmax(nodes), lengths.sum()]).tolist()
        if low < 0 or high >= graph.num_nodes:
            check_ids("nodes", nodes, graph.num_nodes)
    rows = Candidates(nodes, starts, lengths, lengths, nodes[:0], nodes[:0], num_edges=num_edges or 0)
    if excluded is None or not len(excluded):
        return rows
    first = torch.searchsorted(excluded, starts)
    removed = torch.searchsorted(excluded, starts + lengths) - first
    return rows._replace(degrees=lengths - removed, excluded=excluded, first_excluded=first)


@compiled
def _find_excluded(lo, hi, excluded, starts, lengths, first, degrees):
    """Find where each row begins in `excluded` by binary search, and count its candidates."""
    for i in range(lo, hi):
        low, count = 0, len(excluded)
        while count > 0:  # without an unpredictable branch
            half = count >> 1
            below = excluded[low + half] < starts[i]
            low = low + half + 1 if below else low
            count = count - half - 1 if below else half
        first[i], end = low, starts[i] + lengths[i]
        while low < len(excluded) and excluded[low] < end:
            low += 1
        degrees[i] = lengths[i] - (low - first[i])


@compiled
def skip_excluded(rank, start, excluded, first):
    """Convert a rank among a row's edges that are not excluded to an offset; `first` is its first excluded edge."""
    low, high = first, len(excluded)
    while low < high:
        middle = (low + high) // 2
        if excluded[middle] - start - (middle - first) <= rank:
            low = middle + 1
        else:
            high = middle
    return rank + low - first


def skip_excluded_torch(ranks: Tensor, starts: Tensor, excluded: Tensor, first: Tensor) -> Tensor:
    """Convert ranks to CSR positions.

    The excluded positions minus their index, e_m - m, are the ranks before which they are passed, counted from the
    graph's first edge that is not excluded; they don't decrease, and all of earlier rows are passed at rank 0.
    """
    within = starts + ranks
    before = excluded - torch.arange(len(excluded), device=excluded.device)
    passed = torch.searchsorted(before, within - first, right=True)
    return within + passed - first


class ExpandedRows(NamedTuple):
    """Every edge of some rows, excluded ones included.

    Args:
        offsets: int64 [num_rows + 1], where the edges of every row begin.
        row: int64 [num_edges], the row of every edge.
        positions: int64 [num_edges], their CSR positions.
    """

    offsets: Tensor
    row: Tensor
    positions: Tensor

    def count(self, kept: Tensor) -> Tensor:
        """Count the edges of every row whose bool [num_edges] is set; on a GPU `bincount` would make the host wait."""
        return row_offsets(kept.view(torch.uint8))[self.offsets].diff()


def expanded(rows: Candidates) -> ExpandedRows:
    """List every edge of the rows in plain torch; the host waits only if it does not know `num_edges`."""
    offsets = row_offsets(rows.lengths)
    row = expand_offsets(offsets, rows.num_edges)
    slots = torch.arange(len(row), device=row.device) + (rows.starts - offsets[:-1])[row]
    return ExpandedRows(offsets, row, slots if rows.positions is None else rows.positions[slots])


def expand_offsets(offsets: Tensor, size: int | None = None) -> Tensor:
    """Return the row of every entry of a CSR, int64, given its offsets and, on a GPU, the number of entries."""
    rows = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(rows, offsets.diff(), output_size=size)


def expand_rows(rows: Candidates) -> tuple[Tensor, Tensor]:
    """Return the row and the CSR position of every edge of the rows, excluded ones included, in plain torch."""
    return expanded(rows)[1:]


def is_excluded_torch(positions: Tensor, excluded: Tensor) -> Tensor:
    """Return which CSR positions are among the excluded ones, which ascend; `torch.isin` would make the host wait."""
    if not len(excluded):
        return torch.zeros_like(positions, dtype=torch.bool)
    return excluded[torch.searchsorted(excluded, positions).clamp_(max=len(excluded) - 1)] == positions


def excluded_positions(graph: Graph, edge_ids: Tensor | None) -> Tensor | None:
    """Convert raw-graph edge ids to the CSR positions that must not be drawn, ascending, each once; None for None."""
    if edge_ids is None:
        return None
    check_id_vector("exclude_edges", edge_ids)
    ids = to_device(edge_ids.to(torch.int64), graph.indices.device)
    if graph.edge_ids is not None:
        return _ascending(graph.edge_positions(ids))
    positions = _ascending(ids)
    check_ids("edge_ids", positions[:: max(1, positions.numel() - 1)], graph.num_edges)  # the smallest and the largest
    return positions


def _ascending(positions: Tensor) -> Tensor:
    """Sort and drop duplicates; NumPy's sort is several times as fast as torch's, and wakes no OpenMP threads."""
    if positions.device.type != "cpu":
        return torch.unique(positions)
    out = torch.empty_like(positions)
    values = out.numpy()
    values[:] = positions.numpy()
    values.sort()
    return torch.unique_consecutive(out) if (values[1:] == values[:-1]).any() else out


@compiled
def _cumulate(counts, limit, indptr):
    indptr[0] = 0
    for i in range(len(counts)):
        indptr[i + 1] = indptr[i] + min(counts[i], limit)


def row_offsets(counts: Tensor, limit: int = UNLIMITED) -> Tensor:
    """Compute CSR offsets, int64 [n + 1], from row lengths, int64 [n], each cut to `limit`."""
    indptr = torch.empty(counts.numel() + 1, dtype=torch.int64, device=counts.device)
    if counts.device.type == "cpu":
        _cumulate(counts.numpy(), limit, indptr.numpy())
    else:
        indptr[:1].zero_()  # `indptr[0] = 0` would wait for a copy
        torch.cumsum(counts if limit >= UNLIMITED else counts.clamp(max=limit), 0, out=indptr[1:])
    return indptr


def drawn_offsets(available: Tensor, fanout: int | Tensor, replace: bool) -> Tensor:
    """Compute the CSR offsets, int64 [n + 1], of the drawn rows.

    Args:
        available: int64 [n], edges that may be drawn per row.
        fanout: edges to draw, for all rows or int64 [n]; -1: all.
        replace: draw `fanout` edges with replacement from every row that has any.
    """
    if isinstance(fanout, int) and (fanout < 0 or not replace):
        return row_offsets(available, fanout if fanout >= 0 else UNLIMITED)
    if isinstance(fanout, int):
        return row_offsets(torch.where(available > 0, fanout, 0))
    limits = to_device(fanout, available.device)
    counts = torch.where(available > 0, limits, 0) if replace else torch.minimum(available, limits)
    return row_offsets(torch.where(limits < 0, available, counts))


def draws_with_replacement(num_rows: int, fanout: int | Tensor, replace: bool) -> Tensor:
    """Return which rows are drawn with replacement, bool [num_rows]: none whose fanout is -1."""
    if not replace:
        return torch.zeros(num_rows, dtype=torch.bool)
    limits = torch.as_tensor(fanout)
    return ((limits >= 0) & replace).expand(num_rows).contiguous()

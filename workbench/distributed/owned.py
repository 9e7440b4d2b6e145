"""What a rank owns: rows (`OwnedRows`; others come in bulk, from their owners), its part of the graph, its sampler."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, check_ids, check_vector
from workbench.core.exchange import LENGTH_BYTES
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.distributed.group import Group, exchange_ids, get_rank, get_world_size, start_all_to_all
from workbench.distributed.progress import in_phase
from workbench.features.memory_rows import as_store
from workbench.features.protocols import FeatureStore, WrappedStore, check_rows, check_store
from workbench.features.stage import StagedRows
from workbench.kernels.buffers import uninitialised
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import IdIndex
from workbench.partition.graph.split_graph import open_part, stored_num_parts
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Drawn, Sampler


class OwnedRows(WrappedStore):
    """Feature store of the nodes that this rank owns, by raw-graph id.

    `read` is local and refuses rows of other ranks, which a cooperative batch does not read; `stage` fetches them from
    their owners, for independent minibatching and macrobatches. `CachedRows(OwnedRows(…), capacity)` caches rows of
    this rank's nodes only, as long as nothing is staged.

    Args:
        local: the rows of this rank's nodes in ascending order of their ids: a tensor, an array or a store.
        owner: integer [num_nodes], rank that owns each node.
        group: the ranks; None for all.
        traffic: counts the ids and rows received from other ranks by `stage` and `fetch`, as "rank", and each call as
            one of "relays" with the bytes that announce the numbers of ids; rows that are read are counted by `local`
            if it is a store.

    Raises:
        ValueError: `local` has another number of rows than this rank has nodes.
        IndexError: an owner that is not a rank of the group.

    Source: Cooperative Minibatching in GNNs, section 3.1: vertices are assigned to processing elements.
    """

    def __init__(self, local: Any, owner: Tensor, group: Group = None, *, traffic: Traffic | None = None) -> None:
        check_vector("owner", owner, None, (torch.int8, torch.int16, torch.int32, torch.int64))
        self._store = as_store(local, "local")
        check_store("local", self._store)
        self._rank, self._group, self._traffic = get_rank(group), group, traffic
        self._owner = owner.cpu()
        if len(owner):
            check_ids("owner", torch.stack(self._owner.aminmax()).long(), get_world_size(group))
        self._index = IdIndex([(self._owner == self._rank).nonzero()[:, 0]], len(owner))
        if len(self._store) != len(self._index.ids):
            raise ValueError(
                f"local has {len(self._store)} rows, but rank {self._rank} owns {len(self._index.ids)} of {len(owner)} "
                "nodes; pass the rows of its nodes in ascending order of their ids, or all rows to OwnedRows.of"
            )

    @staticmethod
    def of(x: Any, owner: Tensor, group: Group = None, *, traffic: Traffic | None = None) -> "OwnedRows":
        """Copy the rows of this rank's nodes from a source of all rows, such as `MappedRows`.

        Args:
            x: rows of all nodes by raw-graph id: a tensor, an array or a store.
            owner: integer [num_nodes], rank that owns each node.
            group: the ranks; None for all.
            traffic: counts what `stage` receives.
        """
        ids = (owner == get_rank(group)).nonzero()[:, 0]
        return OwnedRows(as_store(x).read(ids), owner, group, traffic=traffic)

    @property
    def ids(self) -> Tensor:
        """Ids of the nodes that this rank owns, int64, ascending."""
        return self._index.ids

    def __len__(self) -> int:
        """Number of nodes of the graph: the exclusive upper bound of the ids."""
        return len(self._owner)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows of this rank's nodes. Arguments as for `FeatureStore.read`.

        Raises:
            IndexError: an id out of range, or of a node that another rank owns.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        positions = self._index.positions(ids)
        if len(positions) and int(positions.numpy().min()) < 0:  # torch's would wake OpenMP threads
            raise self._foreign(ids.cpu(), positions)
        return self._store.read(positions, out=out)

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Fetch rows of any nodes from their owners; collective: every rank calls it, possibly with no ids.

        Args:
            ids: int64 or int32 [n].
            traffic: counts the rows that are read from the result.

        Returns:
            A store of exactly these rows.
        """
        index = IdIndex([check_ids("ids", ids, len(self)).cpu()], len(self))
        return StagedRows(index, self.fetch(index.ids), traffic=traffic)

    def fetch(self, ids: Tensor) -> Tensor:
        """Fetch rows of any nodes from their owners; collective: every rank calls it, possibly with no ids.

        Args:
            ids: int64 or int32 [n]; a repeated id is fetched as often.

        Returns:
            [n, *row_shape] in the order of the ids, on the device of the rows.
        """
        ids = check_ids("ids", ids, len(self)).cpu()
        order, (own, *others) = self._by_owner(ids)
        with in_phase("features"):
            rows = self._fetched(own, others)
        if len(own) == len(ids):
            return rows
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        return gather_rows(rows, place)

    def _by_owner(self, ids: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """An order of the ids with this rank's first, then those of rank 0, 1, …; and the ids of each."""
        owner = gather_rows(self._owner, ids).numpy().astype(np.int16)  # which NumPy sorts by radix
        owner[owner == self._rank] = -1
        order = torch.from_numpy(np.argsort(owner, kind="stable"))
        counts = np.bincount(owner + 1, minlength=get_world_size(self._group) + 1)
        return order, gather_rows(ids, order).split(counts.tolist())

    def _fetched(self, own: Tensor, others: list[Tensor]) -> Tensor:
        """This rank's rows, read while those of each other rank are received after them."""
        asked = exchange_ids([one.to(self.device) for one in others], self._group, self._traffic)
        counts = [len(one) for one in others]
        empty = torch.empty(0, dtype=self.dtype, device=self.device)
        rows = uninitialised(empty, len(own) + sum(counts), *self.row_shape)
        sent = self.read(torch.cat(asked))
        received, wait = start_all_to_all(sent, [len(a) for a in asked], counts, self._group, out=rows[len(own) :])
        self.read(own, out=rows[: len(own)])
        wait()
        if self._traffic is not None:
            self._traffic.add("rank", "rows", len(received), received.nbytes)
            if len(others) > 1:
                self._traffic.add("rank", "relays", 1, LENGTH_BYTES * (len(others) - 1))
        return rows

    def _foreign(self, ids: Tensor, positions: Tensor) -> IndexError:
        check_ids("ids", ids, len(self))
        row = int(ids[positions.cpu() < 0][0])
        return IndexError(
            f"row {row} belongs to rank {int(self._owner[row])}, and rank {self._rank} has only its own; sample with "
            "CooperativeSampler, or fetch the rows of a batch with workbench.stage(rows, [mb])"
        )

    def __repr__(self) -> str:
        return f"OwnedRows({len(self.ids):,} of {len(self):,} nodes, rank {self._rank}, local={self._store!r})"


def open_owned_graph(folder: str | os.PathLike[str], group: Group = None, *, verify: bool = False) -> OwnedGraph:
    """Memory-map this rank's part of a graph that `workbench.partition.split_graph` divided; no other part is opened.

    Args:
        folder: the folder given to `split_graph`; a rank needs its own part in it, and the owners.
        group: the ranks; None for all.
        verify: read everything and compare checksums.

    Returns:
        The in-edges of this rank's nodes, and the owner of every node. Of a graph that was divided without edge ids,
        edges can neither be excluded nor named.

    Raises:
        ValueError: the graph was divided into another number of parts than there are ranks.
        FileNotFoundError: the folder or the part is missing.
        CorruptFileError: a file is truncated, modified or not a valid graph.

    Source: BatchGNN, section 3, "Streaming partitioner".
    """
    rank, size = get_rank(group), get_world_size(group)
    if (parts := stored_num_parts(folder)) != size:
        raise ValueError(
            f"{os.fspath(folder)} contains {parts} parts, but there are {size} ranks; start as many ranks as "
            f"parts, or divide the graph again with workbench.partition.split_graph(…, num_parts={size})"
        )
    part = open_part(folder, rank, verify=verify)
    return OwnedGraph(part.graph, part.owner, rank, size, knows_edge_ids=part.graph.edge_ids is not None)


class OwnedSampler(Sampler):
    """Draws rows that this rank owns; the batches of its subclasses are collective.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`).
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts what other ranks send, as "rank".
    """

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        rank, size = get_rank(group), get_world_size(group)
        if (owned.rank, owned.num_ranks) != (rank, size):
            raise ValueError(
                f"owned is the graph of rank {owned.rank} of {owned.num_ranks}, but this is rank {rank} of {size}; "
                f"pass OwnedGraph.of(graph, owner, {rank}, {size})"
            )
        self.num_layers, self.rows_are_independent = sampler.num_layers, sampler.rows_are_independent
        self._sampler, self._owned, self._group, self._traffic = sampler, owned, group, traffic

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges of nodes that this rank owns; arguments as for `Sampler.draw`."""
        self._check(graph)
        return self._owned.draw(self._sampler, nodes, layer=layer, step=step, exclude_edges=exclude_edges)

    def _check(self, graph: Graph) -> None:
        if graph is not self._owned.graph:
            raise ValueError(f"{type(self).__name__} samples from the graph it was made with; pass owned.graph")

    def __repr__(self) -> str:
        size = get_world_size(self._group)
        return f"{type(self).__name__}({self._sampler!r}, rank {self._owned.rank} of {size})"

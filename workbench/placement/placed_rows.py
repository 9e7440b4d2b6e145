"""`PlacedRows`: reads a row from the device's own buffer, otherwise from a peer's, otherwise from the host."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_device, check_ids, check_type
from workbench.core.machine import Traffic
from workbench.core.units import format_bytes
from workbench.distributed.group import Group, all_to_all, exchange_ids, get_rank, get_world_size
from workbench.distributed.progress import in_phase
from workbench.features.memory_rows import MemoryRows, as_store
from workbench.features.protocols import FeatureStore, WrappedStore, check_rows, check_store
from workbench.features.stage import StagedRows, stage_ids
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import IdIndex
from workbench.placement.placement import Placement

ByDevice = list[Tensor | None]
"""Rows of each device's buffer; None for a buffer that can't be read."""


class PlacedRows(WrappedStore):
    """Feature store of one of several devices whose buffers a placement fills.

    `read` is local: a row comes from the device's own buffer, from the cheapest of the peers that hold it, or from the
    host. If this process can't read that peer's buffer (`peers`), such as another process's, the row is read from the
    host; `stage` fetches such rows from their devices in one exchange. The rows must not change. Thread-safe.

    Args:
        placement: which rows each device holds.
        rank: number of this device.
        host: store, tensor or array of all rows. The constructor fetches from it the rows that this device holds, in a
            collective call if the `stage` of `host` is one.
        peers: rows of each device's buffer, [len(placement.buffers[j]), *row_shape] in the order of its slots, for
            devices of one process; None where this process can't read device j, and for `rank`, whose rows are then
            fetched from the host. `of_all` passes them.
        group: the ranks, one per device, between which `stage` exchanges rows; None: all. With `peers`, `stage`
            exchanges nothing.
        device: of the buffer, and so of the rows that are read; None: that of `host`.
        traffic: counts rows of the own buffer as "device" and of peers as "peer", on the CPU too, and the ids that
            `stage` receives from peers. The host counts its own; a host that is a tensor counts here.

    Raises:
        ValueError: a rank that is not a device, or not this process's in the group; another number of ranks than
            devices, or of rows than the placement places; a buffer of another shape; rows that require a gradient.
        TypeError: a buffer of another dtype.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs".

    >>> import torch
    >>> from workbench.placement.placement import place_rows
    >>> x, p = torch.arange(6.0)[:, None], torch.tensor([0.0, 5, 4, 3, 2, 1])
    >>> placed = place_rows(p, num_devices=2, rows_per_device=2, peer_cost=0.3)  # holds [[1, 3], [4, 2]]
    >>> first, second = PlacedRows.of_all(placed, host=x)
    >>> first.read(torch.tensor([3, 2, 0])).flatten().tolist(), first.counts.tolist()
    ([3.0, 2.0, 0.0], [1, 1, 1])
    """

    def __init__(
        self,
        placement: Placement,
        rank: int,
        *,
        host: Any,
        peers: Sequence[Tensor | None] | None = None,
        group: Group = None,
        device: str | torch.device | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        check_type("placement", placement, Placement, "pass what place_rows returns")
        check_at_least("rank", rank, 0, most=placement.num_devices - 1)
        self._placement, self._rank, self._group, self._traffic = placement, int(rank), group, traffic
        self._store = MemoryRows(host, traffic=traffic) if isinstance(host, Tensor) else as_store(host, "host")
        check_store("host", self._store)
        if len(self._store) != placement.num_rows:
            raise ValueError(f"host has {len(self._store)} rows, but {placement.num_rows} are placed; pass all of them")
        self._device = self._store.device if device is None else check_device("device", device)
        self._collective = peers is None and get_world_size(group) > 1
        if self._collective:
            check_group(placement, self._rank, group)
        self._lookup = placement.lookup(self._rank)
        self._buffers = DeviceBuffers(placement, self._rank, self._store, peers, self._device)
        self._counts, self._lock = torch.zeros(placement.num_devices + 1, dtype=torch.int64), threading.Lock()
        self._count(self._counts)

    @staticmethod
    def of_all(
        placement: Placement,
        *,
        host: Any,
        devices: Sequence[str | torch.device] | None = None,
        traffics: Sequence[Traffic | None] | None = None,
    ) -> "list[PlacedRows]":
        """Make the store of every device in this process; each reads the others' buffers.

        Args:
            placement: which rows each device holds.
            host: store, tensor or array of all rows.
            devices: of each buffer; None: that of `host`. Devices must be able to copy from each other.
            traffics: of each store; None: nothing is counted.
        """
        n = placement.num_devices
        for name, values in (("devices", devices), ("traffics", traffics)):
            if values is not None and len(values) != n:
                raise ValueError(f"{name} has {len(values)} entries; pass one for each of {n} devices")
        rows, at = as_store(host, "host"), devices or [None] * n
        buffers = [fetched(rows, ids) for ids in placement.buffers]
        buffers = [rows if to is None else rows.to(to) for rows, to in zip(buffers, at, strict=True)]
        counters = traffics or [None] * n
        return [
            PlacedRows(placement, rank, host=host, peers=buffers, device=at[rank], traffic=counters[rank])
            for rank in range(n)
        ]

    @property
    def device(self) -> torch.device:
        """Device of the buffer."""
        return self._device

    @property
    def counts(self) -> Tensor:
        """int64 [num_devices + 1], rows read since the store was made: from each device's buffer, last from the host.

        `placement.problem.costs[rank] @ counts.double()` is what they cost.
        """
        with self._lock:
            return self._counts.clone()

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows from the buffers that this process can read, and all others from the host.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return, in the dtype and on the device of the store; None allocates it.

        Returns:
            [n, *row_shape], one row per id, on the device of the buffer.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or `out` of another dtype.
            ValueError: `out` of another shape or on another device; rows of the host that require a gradient.
        """
        wanted = check_ids("ids", ids, len(self)).cpu()
        if out is None:
            out = self._empty(len(wanted))
        else:
            check_rows("out", out, self, len(wanted), on_device=True)
        return self._assemble(wanted, out, self._buffers.read, lambda ids: self._store.read(ids) if len(ids) else None)

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Fetch rows, those of other processes' buffers in one exchange.

        Collective if the group has several ranks and `peers` was not given, or if the `stage` of the host is: then
        every rank calls it, possibly with no ids.

        Args:
            ids: int64 or int32 [n].
            traffic: counts the rows that are read from the result.

        Returns:
            A store of exactly these rows.
        """
        index = IdIndex([check_ids("ids", ids, len(self)).cpu()], len(self))
        with in_phase("features"):
            rows = self._assemble(index.ids, self._empty(len(index.ids)), self._staged, partial(fetched, self._store))
        return StagedRows(index, rows, traffic=traffic)

    def _assemble(
        self,
        ids: Tensor,
        out: Tensor,
        of_devices: Callable[[list[Tensor]], ByDevice],
        of_host: Callable[[Tensor], Tensor | None],
    ) -> Tensor:
        """Write rows to `out`.

        Args:
            ids: int64 [n].
            out: [n, *row_shape].
            of_devices: returns the rows in slots of each device's buffer, or None where the host is to be read instead.
            of_host: returns rows of the host by id.
        """
        holder, slot = self._lookup.holder[ids], self._lookup.slot[ids]
        positions = [(holder == device).nonzero()[:, 0] for device in range(self._placement.num_devices)]
        counts = torch.tensor([*map(len, positions), 0])
        for device, rows in enumerate(of_devices([slot[where] for where in positions])):
            if rows is None:
                holder[positions[device]] = -1
                counts[device] = 0
            else:
                self._put(out, positions[device], rows)
        missing = (holder < 0).nonzero()[:, 0]
        counts[-1] = len(missing)
        rows = of_host(ids[missing])
        if rows is not None:
            self._put(out, missing, rows)
        self._count(counts)
        return out

    def _empty(self, count: int) -> Tensor:
        return torch.empty(count, *self.row_shape, dtype=self.dtype, device=self.device)

    def _staged(self, slots: list[Tensor]) -> ByDevice:
        """Rows in slots of each device's buffer; a collective call between ranks."""
        if not self._collective:
            return self._buffers.read(slots)
        return self._buffers.exchange(slots, self._group, self._traffic)

    def _put(self, out: Tensor, positions: Tensor, rows: Tensor) -> None:
        rows = refuse_gradient(rows)
        out.index_copy_(0, positions.to(self.device), rows.to(self.device, non_blocking=True))

    def _count(self, counts: Tensor) -> None:
        with self._lock:
            self._counts += counts
        if self._traffic is not None:
            row_bytes, own = self._empty(1).nbytes, int(counts[self._rank])
            for link, rows in (("device", own), ("peer", int(counts[:-1].sum()) - own)):
                self._traffic.add(link, "rows", rows, rows * row_bytes)

    def __repr__(self) -> str:
        own = self._buffers.own
        size = f"{len(own):,} of {len(self):,} rows, {format_bytes(own.nbytes)} on {self.device}"
        return f"PlacedRows({size}, device {self._rank} of {self._placement.num_devices}, host={self._store!r})"


def check_group(placement: Placement, rank: int, group: Group) -> None:
    """Check that the ranks of a group are the devices of a placement."""
    size, own = get_world_size(group), get_rank(group)
    if size != placement.num_devices:
        raise ValueError(
            f"the placement is for {placement.num_devices} devices, but the group has {size} ranks; place rows with "
            f"num_devices={size}"
        )
    if rank != own:
        raise ValueError(f"rank is {rank}, but this process is rank {own} of the group; pass rank={own}")


class DeviceBuffers:
    """The buffers that one device can read.

    Args:
        placement: which rows each device holds.
        rank: number of this device.
        host: all rows, from which the own buffer is filled unless `peers` contains it.
        peers: as for `PlacedRows`.
        device: that the own buffer is copied to.
    """

    def __init__(
        self,
        placement: Placement,
        rank: int,
        host: FeatureStore,
        peers: Sequence[Tensor | None] | None,
        device: torch.device,
    ) -> None:
        if peers is not None and len(peers) != placement.num_devices:
            raise ValueError(f"peers has {len(peers)} entries; pass one for each of {placement.num_devices} devices")
        self._rank = rank
        self._buffers: ByDevice = [None] * placement.num_devices if peers is None else [*peers]
        for number, rows in enumerate(self._buffers):
            if rows is not None:
                check_rows(f"peers[{number}]", rows, host, len(placement.buffers[number]))
        own = self._buffers[rank]
        self.own = refuse_gradient(fetched(host, placement.buffers[rank]) if own is None else own).to(device)
        self._buffers[rank] = self.own

    def read(self, slots: Sequence[Tensor]) -> ByDevice:
        """Read the buffers of this process.

        Args:
            slots: int64 [any] for each device.
        """
        return [None if b is None else gather_rows(b, at) for b, at in zip(self._buffers, slots, strict=True)]

    def exchange(self, slots: Sequence[Tensor], group: Group, traffic: Traffic | None) -> ByDevice:
        """Read the buffers of all ranks; collective: they exchange slots, then rows. Own rows are not sent.

        Args:
            slots: int64 [any] for each rank.
            group: the ranks.
            traffic: counts the slots received from other ranks, as ids of "peer".
        """
        wanted = [at if rank != self._rank else at[:0] for rank, at in enumerate(slots)]
        asked = exchange_ids([at.to(self.own.device) for at in wanted], group)
        send, receive = ([len(at) for at in many] for many in (asked, wanted))
        rows: ByDevice = [*all_to_all(gather_rows(self.own, torch.cat(asked)), send, receive, group).split(receive)]
        rows[self._rank] = gather_rows(self.own, slots[self._rank])
        if traffic is not None:
            traffic.add("peer", "ids", sum(send), sum(at.nbytes for at in asked))
        return rows


def fetched(host: FeatureStore, ids: Tensor) -> Tensor:
    """Read rows of a store in bulk; collective if its `stage` is."""
    return stage_ids(host, ids).read(ids)


def refuse_gradient(rows: Tensor) -> Tensor:
    """Return rows after checking that none requires a gradient."""
    if rows.requires_grad:
        raise ValueError("rows that require a gradient can't be placed, as each read would need it; detach them")
    return rows

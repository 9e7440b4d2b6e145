"""`DeviceBuffers`: the rows that devices hold, and reading them by slot: in this process, or from all ranks at once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.core.traffic import Traffic
from workbench.distributed.group import Group, get_rank, get_world_size
from workbench.distributed.row_exchange import all_to_all, exchange_ids
from workbench.features.protocols import FeatureStore, check_rows
from workbench.features.stage import stage_ids
from workbench.kernels.gather import gather_rows
from workbench.placement.placement import Placement

ByDevice = list[Tensor | None]
"""Rows of each device's buffer; None for a buffer that can't be read."""


def check_group(placement: Placement, rank: int, group: Group) -> None:
    """Check that the ranks of a group are the devices of a placement.

    Raises:
        ValueError: another number of ranks, or another rank.
    """
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

    Raises:
        ValueError: another number of buffers or rows, or rows that require a gradient.
        TypeError: a buffer of another dtype.
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
    """Return rows after checking that none requires a gradient.

    Raises:
        ValueError: they do.
    """
    if rows.requires_grad:
        raise ValueError("rows that require a gradient can't be placed, as each read would need it; detach them")
    return rows

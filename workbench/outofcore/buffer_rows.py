"""`BufferRows`: the rows of the partitions in a buffer, read and written by the ids of the store."""

import math
import os

import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, check_ids
from workbench.core.traffic import Traffic
from workbench.features.protocols import check_rows
from workbench.kernels.gather import gather_rows
from workbench.kernels.jit import compiled
from workbench.outofcore.partition_file import block_aligned
from workbench.outofcore.store_layout import BLOCK, StoreLayout


class SlotMemory:
    """Memory for some partitions; a slot is a whole number of blocks and of rows, so that all rows are one tensor.

    Args:
        layout: sizes of the store.
        num_slots: number of partitions.
    """

    def __init__(self, layout: StoreLayout, num_slots: int) -> None:
        self.layout, self.num_slots = layout, num_slots
        unit = math.lcm(BLOCK, layout.row_bytes, layout.state_row_bytes if layout.learnt else 1)
        self.slot_bytes = -(-layout.slot_bytes // unit) * unit
        self._memory = block_aligned(self.slot_bytes * num_slots)

    def rows(self, *, state: bool) -> tuple[Tensor, int]:
        """The values of all slots as one tensor, or the states from the first on, and its rows per slot."""
        layout = self.layout
        dtype, row_bytes = (
            (layout.state_dtype, layout.state_row_bytes) if state else (layout.torch_dtype, layout.row_bytes)
        )
        rows = self._memory.view(dtype).view(-1, *layout.row_shape)
        return rows[layout.first_state_row if state else 0 :], self.slot_bytes // row_bytes

    def record(self, slot: int) -> Tensor:
        """The record of a slot, uint8, with its padding."""
        begin = slot * self.slot_bytes
        return self._memory[begin : begin + self.layout.slot_bytes]


class BufferRows:
    """Values, or optimizer state, of the nodes in one state of a buffer.

    A feature store for `workbench.train_step` while the state lasts; those of learnt rows can be written. Ids of other
    partitions are an error: what `state.sample` draws is in the buffer.

    Args:
        memory: of the buffer.
        slots: int64 [p], slot of every partition; −1: not in the buffer.
        changed: bool [p], set where a partition is written to; None: rows are only read.
        traffic: counts the rows that are read, as "host".
        state: the rows are the optimizer's state, not the values.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        memory: SlotMemory,
        slots: Tensor,
        changed: Tensor | None,
        *,
        traffic: Traffic | None = None,
        state: bool = False,
    ) -> None:
        self._memory, self._slots, self._changed, self._traffic = memory, slots, changed, traffic
        self._process, self._ended = os.getpid(), False
        self._rows, self._slot_rows = memory.rows(state=state)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._memory.layout.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    def __len__(self) -> int:
        """Number of nodes of the store: the exclusive upper bound of the ids."""
        return self._memory.layout.num_nodes

    def end(self) -> None:
        """Refuse further reads and writes: other partitions take the memory."""
        self._ended = True

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows. Arguments as for `FeatureStore.read`.

        Raises:
            IndexError: an id out of range, or of a partition that is not in the buffer.
            RuntimeError: the buffer has passed on to another state.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        positions, _ = self._positions(check_ids("ids", ids, len(self)))
        if self._traffic is not None:
            self._traffic.add("host", "rows", len(ids), len(ids) * self._rows[:1].nbytes)
        return gather_rows(self._rows, positions, out=out)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows; they are written to disk when their partition leaves the buffer.

        Args:
            ids: int64 or int32 [n], each once, on any device.
            rows: [n, *row_shape] in the dtype of the store, on any device.

        Raises:
            IndexError: an id out of range, or of a partition that is not in the buffer.
            TypeError: rows of another dtype.
            ValueError: an id that occurs twice, rows of another shape, or rows that are only read: features, or a store
                that is not writable.
            RuntimeError: the buffer has passed on to another state, or this is a forked child.
        """
        ids = check_ids("ids", ids, len(self), unique=True)
        check_rows("rows", rows, self, len(ids))
        memory, positions = self.in_place(ids)
        memory.index_copy_(0, positions, rows.detach().cpu())

    def in_place(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Find rows that the caller is about to change: they will be written to disk.

        Args:
            ids: int64 or int32 [n], each once, on any device.

        Returns:
            The memory of the buffer, [any, *row_shape], and int64 [n], where the rows of the ids are in it.

        Raises:
            IndexError, ValueError, RuntimeError: as `write`.
        """
        if self._changed is None:
            if self._memory.layout.learnt:
                raise ValueError("the store is not writable, so its rows are only read; make it writable, or copy it")
            raise ValueError("these rows are features, which are only read; build the store with rows=LearntInit(…)")
        if os.getpid() != self._process:
            raise RuntimeError(
                f"rows are written by process {self._process}, which forked this one ({os.getpid()}), alone; write "
                "there, as what is written here would be lost"
            )
        positions, partitions = self._positions(check_ids("ids", ids, len(self)))
        self._changed[partitions] = True
        return self._rows, positions

    def _positions(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the memory behind the first of this array, and partitions, of ids."""
        if self._ended:
            raise RuntimeError(
                "this state of the buffer has ended; use the rows of the state that the loop yielded last"
            )
        wanted = ids.cpu().long()
        positions, partitions = torch.empty_like(wanted), torch.empty_like(wanted)
        sizes = self._memory.layout.partition_rows, self._slot_rows
        at = _locate(wanted.numpy(), self._slots.numpy(), *sizes, positions.numpy(), partitions.numpy())
        if at >= 0:
            held = (self._slots >= 0).nonzero()[:, 0].tolist()
            raise IndexError(
                f"row {int(wanted[at])} is in partition {int(partitions[at])}, but the buffer has the partitions "
                f"{held}; sample by state.sample, which draws edges in the buffer"
            )
        return positions, partitions


@compiled
def _locate(ids, slots, partition_rows, slot_rows, positions, partitions):
    """Positions and partitions of ids; the place of the first one that is not in the buffer, or -1."""
    for k in range(len(ids)):
        partition = ids[k] // partition_rows
        partitions[k] = partition
        if slots[partition] < 0:
            return k
        positions[k] = slots[partition] * slot_rows + ids[k] - partition * partition_rows
    return -1

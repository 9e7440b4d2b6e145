"""`MemoryRows`: rows of a tensor in the memory of the host or of a device."""

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.core.traffic import Traffic
from workbench.features.protocols import check_rows
from workbench.features.tensor_rows import TensorRows


class MemoryRows(TensorRows):
    """Rows of a tensor in memory; `write` changes the tensor.

    Args:
        tensor: [n, …], on any device; shared, not copied.
        pin: allocate the rows that `read` returns in page-locked memory, from which copies to a GPU are faster and
            asynchronous. Requires CUDA, and a tensor on the CPU without a gradient.
        traffic: counts the rows that are read or written, as "host" or, on a device, as "device".

    Raises:
        ValueError: a tensor without dimensions, or `pin` where it is not possible.
    """

    def __init__(self, tensor: Tensor, *, pin: bool = False, traffic: Traffic | None = None) -> None:
        super().__init__(tensor, traffic=traffic)
        self._pin = pin
        if pin and (self.device.type != "cpu" or tensor.requires_grad or not torch.cuda.is_available()):
            raise ValueError("pin=True requires CUDA and a tensor on the CPU without a gradient; pass pin=False")

    def _allocate(self, count: int) -> Tensor | None:
        return torch.empty(count, *self.row_shape, dtype=self.dtype, pin_memory=True) if self._pin else None

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows.

        Args:
            ids: int64 or int32 [n], each id once, on any device.
            rows: [n, *row_shape] in the dtype of the store, on any device.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or rows of another dtype.
            ValueError: an id that occurs twice, or rows of another shape.
        """
        ids = check_ids("ids", ids, len(self), unique=True)
        check_rows("rows", rows, self, len(ids))
        self._rows.detach().index_copy_(0, ids.to(self.device), rows.detach().to(self.device))
        self._count(len(ids))

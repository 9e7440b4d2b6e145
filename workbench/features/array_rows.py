"""`ArrayRows`: rows of a NumPy array, which may be memory-mapped."""

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_id_vector
from workbench.features.protocols import check_rows
from workbench.kernels.buffers import uninitialised
from workbench.kernels.gather import gather_array


class ArrayRows:
    """Rows of a NumPy array that are read only.

    Args:
        array: [n, …], of any layout; shared, not copied.

    Raises:
        TypeError: an array of a dtype that torch does not have.
        ValueError: an array without dimensions, or of another byte order.
    """

    device = torch.device("cpu")

    def __init__(self, array: np.ndarray) -> None:
        if not array.ndim:
            raise ValueError("array is a single number; pass one row per id")
        self._array, self._no_rows = array, torch.from_numpy(np.empty(0, array.dtype))

    @property
    def dtype(self) -> torch.dtype:
        return self._no_rows.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._array.shape[1:]

    def __len__(self) -> int:
        return len(self._array)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows. Arguments and errors as for `TensorRows.read`."""
        check_id_vector("ids", ids)
        if out is None:
            out = uninitialised(self._no_rows, len(ids), *self.row_shape)
        else:
            check_rows("out", out, self, len(ids), on_device=True)
        return gather_array(self._array, ids, out)

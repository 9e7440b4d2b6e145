"""`TensorRows`: reads the rows of a tensor, for stores whose rows are one."""

import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, check_type
from workbench.core.traffic import Traffic
from workbench.core.units import format_bytes
from workbench.features.protocols import check_rows
from workbench.kernels.gather import gather_rows


class TensorRows:
    """Rows of a tensor that are read only.

    Args:
        rows: [n, …], on any device; shared, not copied.
        link: where the rows come from, a name of `workbench.core.traffic.LINKS`; None: this process's memory ("host")
            or its device ("device").
        traffic: counts the rows that are read.
    """

    def __init__(self, rows: Tensor, *, link: str | None = None, traffic: Traffic | None = None) -> None:
        check_type("rows", rows, Tensor, "pass torch.as_tensor(rows)")
        if not rows.dim():
            raise ValueError("rows is a single number; pass one row per id")
        if rows.layout != torch.strided:
            raise ValueError(f"rows is sparse ({rows.layout}); pass rows.to_dense()")
        self._rows, self._traffic = rows, traffic
        self._link = link or ("host" if rows.device.type == "cpu" else "device")
        self._count(0)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self._rows.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    @property
    def device(self) -> torch.device:
        return self._rows.device

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows; differentiable without `out` if the tensor requires a gradient.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return, in the dtype and on the device of the store; None allocates it.

        Returns:
            [n, *row_shape], one row per id.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or `out` of another dtype.
            ValueError: `out` of another shape or on another device.
        """
        check_id_vector("ids", ids)
        count = ids.numel()
        if out is not None:
            check_rows("out", out, self, count, on_device=True)
        else:
            out = self._allocate(count)
        rows = gather_rows(self._rows, ids, out=out)
        self._count(count)
        return rows

    def _allocate(self, count: int) -> Tensor | None:
        """Return a buffer for that many rows, or None for ordinary memory."""
        return None

    def _count(self, rows: int) -> None:
        if self._traffic is not None:
            self._traffic.add(self._link, "rows", rows, rows * self._rows[:1].nbytes)

    def __repr__(self) -> str:
        kind = f"{len(self):,} × {list(self.row_shape)} {str(self.dtype).removeprefix('torch.')}"
        return f"{type(self).__name__}({kind}, {format_bytes(self._rows.nbytes)} on {self.device})"

"""`LearnedRows`: rows that are trained, with sparse Adagrad steps on the rows that a batch touched."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_ids, check_type, deferred_interrupt
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import MemoryRows
from workbench.features.protocols import InPlace, WritableStore, check_rows
from workbench.kernels.buffers import to_device
from workbench.kernels.csr import first_repeat
from workbench.kernels.gather import add_rows
from workbench.kernels.jit import compiled
from workbench.kernels.relabel import relabeler
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows


class LearnedRows:
    """Trainable rows by raw-graph id; values and Adagrad state are in writable stores, in memory or in a buffer.

    The gradients of a row are summed over the micro-batches of a batch, then `step` makes one update:
    `s += g²`, `value −= lr · g / (√s + eps)`. Only rows with a gradient are read and written, and sums are made in the
    order of the micro-batches, so a step gives the same bits again.

        rows = wb.LearnedRows(torch.randn(num_nodes, 50) * 1e-3, lr=0.1)
        wb.accumulate(model, micro, lambda mb: rows.read(mb.node_ids), loss_of, after=rows.add)
        rows.step()

    `workbench.link_step` does this. Gradients have the dtype of the rows: in float16 those below 6e-8 are 0, and change
    nothing; bfloat16 has the range of float32.

    Args:
        values: floating [num_nodes, …], or a `WritableStore` of such rows, which steps change.
        state: sums of squared gradients, of the same shape and dtype, but float32 for values in half precision, whose
            steps are computed in float32 and rounded once; None: zeros in memory.
        lr: learning rate, above 0.
        eps: added to the square root, above 0.

    Raises:
        TypeError: values that are not floating, or that can't be written to.
        ValueError: a number out of range, rows that require a gradient, or a state of another shape, dtype or device.

    Source: Duchi et al., "Adaptive subgradient methods" (JMLR 2011), with a diagonal matrix, as in MariusGNN
    (EuroSys 2023) and `torch.optim.Adagrad`.
    """

    def __init__(self, values: Any, state: Any = None, *, lr: float = 0.1, eps: float = 1e-10) -> None:
        self.values = _writable("values", values)
        if state is None:
            shape = len(self.values), *self.values.row_shape
            state = torch.zeros(shape, dtype=state_dtype(self.values.dtype), device=self.values.device)
        if not self.values.dtype.is_floating_point:
            raise TypeError(f"values are {self.values.dtype}; learnt rows must be floating, such as values.float()")
        self.state = _writable("state", state)
        _check_alike(self.values, self.state)
        self.lr, self.eps = _number("lr", lr), _number("eps", eps)
        self._pending: list[tuple[Tensor, Tensor]] = []
        both_tensors = isinstance(values, Tensor) and isinstance(state, Tensor)
        self._tensors = (values, state) if both_tensors else None  # which are updated in place

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.values.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __len__(self) -> int:
        return len(self.values)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows, as a leaf that requires a gradient; without gradients under `torch.no_grad` or with `out`.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return; None allocates it.

        Returns:
            [n, *row_shape], one row per id.

        Raises:
            IndexError: an id out of range.
        """
        rows = self.values.read(ids, out=out)
        return rows.requires_grad_() if out is None and torch.is_grad_enabled() else rows

    def add(self, mb: MiniBatch, inputs: Any) -> None:
        """Add the gradients of a micro-batch's rows: the `after` of `accumulate` and `train_step`.

        Args:
            mb: the micro-batch.
            inputs: its `Inputs`, of which `x` is what `read` returned for `mb.node_ids`.

        Raises:
            ValueError: `x` was computed from the rows, whose gradient it does not have.
        """
        if inputs.x.requires_grad and not inputs.x.is_leaf:
            raise ValueError(
                "x was computed from the rows; return rows.read(…) itself and convert it in the model or in forward="
            )
        if inputs.x.grad is not None:
            self.add_gradients(mb.node_ids, inputs.x.grad)

    def add_gradients(self, ids: Tensor, gradients: Tensor) -> None:
        """Add gradients of rows, to those of earlier calls since the last step.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            gradients: [n, *row_shape] in the dtype of the rows; shared until the step, not copied.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or gradients of another dtype.
            ValueError: gradients of another shape.
        """
        ids = check_ids("ids", ids, len(self))
        check_rows("gradients", gradients, self.values, len(ids))
        self._pending.append((to_device(ids, self.device), gradients.detach().to(self.device)))

    def zero_grad(self) -> None:
        """Discard gradients that no step has used."""
        self._pending.clear()

    def step(self) -> None:
        """Update the rows that have gradients: after an error none of them, after an interrupt all or none."""
        update = self.prepare_step()
        with deferred_interrupt():
            update()
            self.zero_grad()

    def prepare_step(self) -> Callable[[], None]:
        """Return a function that updates the rows, so that it can run together with an optimizer's step.

        Until `zero_grad`, the gradients stay.
        """
        ids, gradients = self._summed()
        options: Any = {"lr": self.lr, "eps": self.eps}
        if (places := self._places(ids)) is not None:
            values, state, at, state_at = places
            return partial(adagrad_rows, values, state, at, gradients, state_ids=state_at, **options)
        old, state = self.values.read(ids), self.state.read(ids)
        adagrad_rows(values := old.clone(), state, torch.arange(len(ids), device=self.device), gradients, **options)
        return partial(self._write, ids, old, values, state)

    def _places(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Tensors of values and state that are updated in place, and where rows are in each; None: there are none."""
        if self._tensors is not None:
            return *self._tensors, ids, ids
        if not isinstance(self.values, InPlace) or not isinstance(self.state, InPlace):
            return None
        (values, positions), (state, others) = self.values.in_place(ids), self.state.in_place(ids)
        return values, state, positions, others

    def _write(self, ids: Tensor, old_values: Tensor, values: Tensor, state: Tensor) -> None:
        """Write values and state; if the state can't be written, the values are restored."""
        self.values.write(ids, values)
        try:
            self.state.write(ids, state)
        except BaseException:
            self.values.write(ids, old_values)
            raise

    def _summed(self) -> tuple[Tensor, Tensor]:
        """Return the distinct ids, and each one's sum of gradients in the state's dtype, in the order of additions."""
        if not self._pending:
            none = torch.empty(0, dtype=torch.int64, device=self.device)
            return none, torch.empty(0, *self.row_shape, dtype=self.state.dtype, device=self.device)
        ids, gradients = (
            column[0] if len(column) == 1 else torch.cat(column) for column in zip(*self._pending, strict=True)
        )
        gradients = gradients.to(self.state.dtype)
        if first_repeat(ids) is None:  # usual without micro-batches, and in memory as small as the batch
            return ids, gradients
        with relabeler(len(self), ids[:0]) as label:
            position = label(ids)
            distinct = label.node_ids
        sums = gradients.new_zeros(len(distinct), *self.row_shape)
        add_rows(sums.unsqueeze(-1).flatten(1), position, gradients.unsqueeze(-1).flatten(1))
        return distinct, sums

    def __repr__(self) -> str:
        return f"LearnedRows({self.values!r}, lr={self.lr}, eps={self.eps})"


def _writable(name: str, rows: Any) -> WritableStore:
    if isinstance(rows, Tensor):
        if rows.requires_grad:
            raise ValueError(f"{name} requires a gradient; rows are updated by step(), pass {name}.detach()")
        if any(stride == 0 and size > 1 for stride, size in zip(rows.stride(), rows.shape, strict=True)):
            raise ValueError(f"{name} is expanded, so that rows share memory, and would be updated as one; clone it")
        return MemoryRows(rows)
    required = ("row_shape", "dtype", "device", "__len__", "read", "write")
    if isinstance(rows, type) or any(not hasattr(rows, member) for member in required):
        check_type(name, rows, Tensor, "pass a tensor [num_nodes, …], or a store with read and write")
    if isinstance(rows, MemoryRows) and rows._rows.requires_grad:
        raise ValueError(f"{name} requires a gradient; rows are updated by step(), pass a store of its rows, detached")
    return cast(WritableStore, rows)


def _check_alike(values: WritableStore, state: WritableStore) -> None:
    dtype = state_dtype(values.dtype)
    remedy = f"pass torch.zeros_like(values, dtype={dtype})"
    for name in ("row_shape", "device"):
        ours, theirs = getattr(values, name), getattr(state, name)
        if ours != theirs:
            raise ValueError(f"state has {name} {theirs}, but values have {ours}; {remedy}")
    if state.dtype != dtype:
        raise ValueError(f"state has dtype {state.dtype}, but that of {values.dtype} values is {dtype}; {remedy}")
    if len(values) != len(state):
        raise ValueError(f"state has {len(state)} rows, but values have {len(values)}; {remedy}")


def _number(name: str, value: float) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {value!r}; it must be above 0 and finite")
    return number


_COMPILED = (torch.float32, torch.float64)

_MIN_BYTES_PER_THREAD = 1 << 19


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the sums of squared gradients of values: float32 for half precision, otherwise theirs."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def adagrad_rows(
    values: Tensor,
    state: Tensor,
    ids: Tensor,
    gradients: Tensor,
    *,
    lr: float,
    eps: float,
    state_ids: Tensor | None = None,
) -> None:
    """Update rows in place: `s += g²`, `value −= lr · g / (√s + eps)`.

    Args:
        values: floating [num_rows, …].
        state: like `values`, in its `state_dtype`.
        ids: int64 [n], distinct and in range, which is not checked.
        gradients: [n, …], in the dtype of the state.
        state_ids: int64 [n], where the rows of the state are; None: `ids`.
    """
    others = ids if state_ids is None else state_ids
    contiguous = values.is_contiguous() and state.is_contiguous()
    if not (use_compiled(values) and values.dtype in _COMPILED and contiguous):
        adagrad_rows_torch(values, state, ids, gradients, lr=lr, eps=eps, state_ids=others)
        return
    rows = [x.unsqueeze(1).flatten(1).numpy() for x in (values, state, gradients.contiguous())]
    number = rows[0].dtype.type
    args = *rows, ids.numpy(), others.numpy(), number(lr), number(eps)
    min_rows = _MIN_BYTES_PER_THREAD // max(1, values[:1].nbytes)
    parallel_rows(lambda lo, hi: _adagrad_rows(*args, lo, hi), len(ids), min_rows)


def adagrad_rows_torch(
    values: Tensor,
    state: Tensor,
    ids: Tensor,
    gradients: Tensor,
    *,
    lr: float,
    eps: float,
    state_ids: Tensor | None = None,
) -> None:
    """Compute `adagrad_rows` in plain torch, on any device; its square root may differ in the last bit."""
    others = ids if state_ids is None else state_ids
    sums = state[others] + gradients * gradients
    updated = values[ids].to(sums.dtype) - lr * gradients / (sums.sqrt() + eps)
    values[ids] = updated.to(values.dtype)
    state[others] = sums


@compiled(error_model="numpy")  # no test for a division by zero, which would keep the loop from being vectorised
def _adagrad_rows(values, state, gradients, ids, state_ids, lr, eps, lo, hi):
    for row in range(lo, hi):
        value, total, gradient = values[ids[row]], state[state_ids[row]], gradients[row]
        for c in range(len(gradient)):
            g = gradient[c]
            total[c] += g * g
            value[c] -= lr * g / (np.sqrt(total[c]) + eps)

"""`fetch_rows`: features and labels read with their batch, so that `workbench.prefetch` reads and copies them ahead."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_type
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import as_store, check_covers
from workbench.features.protocols import FeatureStore
from workbench.kernels.buffers import to_device
from workbench.nn.losses import Inputs
from workbench.training.aggregated_rows import AggregateOnRead, sources_of


def fetch_rows(batches: Iterable[Any], x: Any, y: Any, *, pin: bool | None = None) -> Iterator[Any]:
    """Read the features and labels of each batch when it is produced, instead of in its training step.

        loader = wb.prefetch(wb.training.fetch_rows(batches, x, y), device="cuda")
        for step, fetched in loader:
            wb.train_step(model, fetched.batch, fetched.x, fetched.y, loss_fn, optimizer)

    With `prefetch`, batches are sampled, rows gathered and all of it copied to the GPU in the background, in three
    copies per batch: blocks, features, labels. The step then copies nothing.

    Args:
        batches: yields batches, or tuples that end with one, such as (step, batch) of `workbench.batches`.
        x: features [num_nodes, …] by raw-graph id: a tensor, an array, an object with `.read(ids)`, `AggregatedRows`,
            or `Inputs` of two such sources. Rows must not change during the loop.
        y: labels by raw-graph id: a tensor, an array or an object with `.read(ids)`.
        pin: gather rows of the host into page-locked memory, from which they are copied to a GPU; None: if there is a
            GPU.

    Yields:
        The items, in place of each batch a `FetchedBatch`.

    Raises:
        TypeError: an item does not end with a batch, or rows can't be read from a source.
        IndexError: a batch reads a row that a source does not have.
    """
    check_type("batches", batches, Iterable, "pass wb.batches(…)")
    if isinstance(x, AggregateOnRead):
        raise TypeError("AggregateOnRead reads no rows ahead of a step; pass its features x, or AggregateOnRead there")
    pin = torch.cuda.is_available() if pin is None else pin
    features, labels = sources_of(x), as_store(y, "y")
    stores = {"x": as_store(features.x, "x")}
    if features.aggregated is not None:
        stores["aggregated"] = as_store(features.aggregated, "aggregated")

    def generate() -> Iterator[Any]:
        for item in batches:
            *others, mb = item if isinstance(item, tuple) else (item,)
            check_type("a batch", mb, MiniBatch, "pass wb.batches(…), which yields (step, batch)")
            rows = {name: _read(name, store, mb.node_ids, pin) for name, store in stores.items()}
            inputs = Inputs(**rows) if "aggregated" in rows else rows["x"]
            fetched = FetchedBatch(mb, inputs, _read("y", labels, mb.seeds, pin))
            yield (*others, fetched) if isinstance(item, tuple) else fetched

    return generate()


def _read(name: str, store: FeatureStore, ids: Tensor, pin: bool) -> "BatchRows":
    check_covers(name, store, ids)
    out, on_host = None, getattr(store, "device", torch.device("cuda")).type == "cpu"
    if pin and on_host and hasattr(store, "row_shape"):
        out = torch.empty(len(ids), *store.row_shape, dtype=store.dtype, pin_memory=True)
    rows = store.read(ids) if out is None else store.read(ids, out=out)
    is_classes = name == "y" and rows.dim() == 1 and not rows.is_floating_point()
    return BatchRows(ids, rows, store, rows if is_classes else None)


@dataclass(frozen=True, eq=False)
class BatchRows:
    """A store of the rows of a batch, which were read already; rows of other ids are read from their store.

    Args:
        ids: int64 [n], node ids of the batch, or its seeds.
        rows: [n, …], their rows.
        store: where they were read.
        on_host: int64 [n], of classes: the rows on the host, where a loss counts and checks them without waiting for a
            GPU. `read` then returns these. None for other rows.
    """

    ids: Tensor
    rows: Tensor
    store: FeatureStore
    on_host: Tensor | None = None

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.rows.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    @property
    def device(self) -> torch.device:
        """Device of the rows that `read` returns."""
        return (self.rows if self.on_host is None else self.on_host).device

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return the rows of the batch's ids, or of the first of them, without a copy. Arguments as for stores."""
        rows = self.rows if self.on_host is None else self.on_host
        if not self._begins_with(ids):
            return self.store.read(ids, out=out)
        return rows[: len(ids)] if out is None else out.copy_(rows[: len(ids)])

    def copy_of(self, ids: Tensor) -> Tensor | None:
        """Return the rows where they were copied to, if `ids` are the batch's or the first of them; else None."""
        return self.rows[: len(ids)] if self._begins_with(ids) else None

    def to(self, device: Any, ids: Tensor, *, non_blocking: bool = False) -> "BatchRows":
        """Copy the rows to a device.

        Args:
            device: target device.
            ids: int64 [n], the ids on that device.
            non_blocking: copy asynchronously from pinned memory.
        """
        return BatchRows(ids, to_device(self.rows, device, non_blocking=non_blocking), self.store, self.on_host)

    def _begins_with(self, ids: Tensor) -> bool:
        """Whether these are the batch's ids or the first of them, by their place in memory."""
        theirs, ours = ((t.untyped_storage()._cdata, t.storage_offset(), t.dtype) for t in (ids, self.ids))
        return theirs == ours and len(ids) <= len(self.ids) and ids.stride() == self.ids.stride()


@dataclass(frozen=True, eq=False)
class FetchedBatch:
    """A batch and its rows, as `workbench.train_step` receives them.

    Args:
        batch: the batch.
        x: store of the features of its nodes; `Inputs` of two if there are aggregates.
        y: store of the labels of its seeds.
    """

    batch: MiniBatch
    x: Any
    y: BatchRows

    def to(self, device: Any, *, non_blocking: bool = False) -> "FetchedBatch":
        """Copy batch and rows to a device."""
        batch = self.batch.to(device, non_blocking=non_blocking)
        x: Any = Inputs(*(rows.to(device, batch.node_ids, non_blocking=non_blocking) for rows in self._features()))
        y = self.y.to(device, batch.seeds, non_blocking=non_blocking)
        return FetchedBatch(batch, x if isinstance(self.x, Inputs) else x.x, y)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory from being reused before a stream of a GPU, which reads it, has come this far."""
        self.batch.record_stream(stream)
        for rows in (*self._features(), self.y):
            rows.rows.record_stream(stream)

    def _features(self) -> list[BatchRows]:
        return [self.x.x, self.x.aggregated] if isinstance(self.x, Inputs) else [self.x]

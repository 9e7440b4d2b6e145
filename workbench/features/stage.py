"""Macrobatches: fetch the rows of a window of batches once, then serve them from memory."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from torch import Tensor

from workbench.core.errors import check_at_least, check_id_vector, check_ids, check_type
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import TensorRows, as_store
from workbench.features.protocols import FeatureStore, Stageable, WrappedStore, check_rows, check_store
from workbench.kernels.relabel import IdIndex

T = TypeVar("T")


def windows(iterable: Iterable[T], *, size: int) -> Iterator[list[T]]:
    """Group the items of an iterable, such as the batches of an epoch, into windows.

    Args:
        iterable: the items; one window of them is in memory at a time.
        size: items per window, at least 1; the last window may have fewer.

    Yields:
        Lists of items, in order.

    Raises:
        ValueError: `size` below 1; raised by the call.
    """
    check_at_least("size", size, 1)
    iterator = iter(iterable)
    return iter(lambda: list(islice(iterator, size)), [])


def stage(
    store: FeatureStore | Tensor,
    window: Iterable[MiniBatch | tuple[int, MiniBatch]],
    *,
    traffic: Traffic | None = None,
) -> FeatureStore:
    """Fetch the input rows of a window of batches, each row once.

    A store with a `stage` of its own (`Stageable`) fetches them its own way, possibly in a collective call; of any
    other store, the rows are read into one array in memory.

    Args:
        store: a store, tensor or array.
        window: batches, or pairs (step, batch) as `workbench.batches` yields them.
        traffic: counts the rows that are read from the result; fetching them is counted by the store.

    Returns:
        A store of exactly these rows (`StagedRows`, unless the store stages its own way); ids are still raw-graph ids.

    Raises:
        TypeError: `window` contains something else.
        IndexError: a node that the store has no row for.

    Source: cooperative minibatching with macrobatches: the union of the inputs of several minibatches is fetched once.
    """
    store = as_store(store, "store")
    check_store("store", store)
    node_ids = [check_ids("node_ids", batch.node_ids, len(store)) for batch in map(_as_batch, window)]
    return _staged(store, IdIndex(node_ids, len(store)), traffic)


def stage_ids(store: FeatureStore, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
    """Fetch rows by id, as `stage` does.

    Args:
        ids: int64 or int32 [n].
        traffic: counts the rows that are read from the staged array.
    """
    return _staged(store, IdIndex([check_ids("ids", ids, len(store))], len(store)), traffic)


def _staged(store: FeatureStore, index: IdIndex, traffic: Traffic | None) -> FeatureStore:
    if isinstance(store, Stageable):
        return store.stage(index.ids, traffic=traffic)
    return StagedRows(index, store.read(index.ids), traffic=traffic)


def _as_batch(item: MiniBatch | tuple[int, MiniBatch]) -> MiniBatch:
    batch = item[1] if isinstance(item, tuple) and len(item) == 2 else item
    check_type("an item of window", batch, MiniBatch, "pass batches or pairs (step, batch)")
    return batch


class StagedRows(WrappedStore):
    """Some rows of a store in one array, by raw-graph id; reading any other row is an error.

    Args:
        index: the ids of the rows.
        rows: [number of ids, …], in the order of `index.ids`.
        traffic: counts the rows that are read, as "host" or, on a device, as "device".

    Raises:
        ValueError: another number of rows, or rows that require a gradient.
    """

    def __init__(self, index: IdIndex, rows: Tensor, *, traffic: Traffic | None = None) -> None:
        if len(rows) != len(index.ids):
            raise ValueError(f"{len(rows)} rows for {len(index.ids)} ids; pass one row per id")
        if rows.requires_grad:
            raise ValueError("rows that require a gradient can't be staged, as each read would need it; detach them")
        self._index, self._store = index, TensorRows(rows, traffic=traffic)

    @property
    def ids(self) -> Tensor:
        """Ids of the staged rows, int64, ascending."""
        return self._index.ids

    def __len__(self) -> int:
        """Exclusive upper bound of the ids: that of the store they come from."""
        return self._index.limit

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read staged rows. Arguments as for `FeatureStore.read`.

        Raises:
            IndexError: an id that is out of range or was not staged.
        """
        check_id_vector("ids", ids)
        if out is not None:
            check_rows("out", out, self, len(ids), on_device=True)
        positions = self._index.positions(ids)
        try:
            return self._store.read(positions, out=out)
        except IndexError:
            raise self._missing(ids, positions) from None

    def _missing(self, ids: Tensor, positions: Tensor) -> IndexError:
        check_ids("ids", ids, len(self))
        missing = int(ids[(positions < 0).to(ids.device)][0])
        return IndexError(
            f"row {missing} is not among the {len(self.ids)} staged rows; stage the window that the batch is in"
        )

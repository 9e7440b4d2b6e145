"""`RecordedRows`: records which rows of a store are read."""

import torch
from torch import Tensor

from workbench.core.trace import AccessTrace
from workbench.core.traffic import Traffic
from workbench.features.protocols import FeatureStore, check_store
from workbench.features.sources import as_store
from workbench.features.stage import stage_ids


class RecordedRows:
    """Wraps a store and records the ids of every `read` and `stage`, in order; it moves nothing itself.

    Args:
        store: a store, tensor or array.
    """

    def __init__(self, store: FeatureStore | Tensor) -> None:
        self._store = as_store(store, "store")
        check_store("store", self._store)
        self._reads: list[Tensor] = []

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._store.row_shape

    @property
    def dtype(self) -> torch.dtype:
        return self._store.dtype

    @property
    def device(self) -> torch.device:
        return self._store.device

    def __len__(self) -> int:
        return len(self._store)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows from the store; recorded if that succeeds. Arguments as for `FeatureStore.read`."""
        rows = self._store.read(ids, out=out)
        self._reads.append(ids.detach().cpu().clone())
        return rows

    def stage(self, ids: Tensor, *, traffic: Traffic | None = None) -> FeatureStore:
        """Stage rows of the store, recorded as one read; reads of the staged rows are not recorded."""
        staged = stage_ids(self._store, ids, traffic=traffic)
        self._reads.append(ids.detach().cpu().clone())
        return staged

    @property
    def trace(self) -> AccessTrace:
        """Everything recorded since the start or the last `clear`."""
        return AccessTrace.of(list(self._reads))

    def clear(self) -> None:
        """Forget everything recorded."""
        self._reads.clear()

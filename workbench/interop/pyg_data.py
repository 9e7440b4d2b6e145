"""PyG's `Data` for batches that exist in one form only: reading the other form is an error that names the remedy."""

from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from workbench.interop.edge_lists import ABSENT


class SampledData(Data):
    """A `Data` in which `edge_index` and `adjs` are missing, not None, if the batch can't be expressed by them."""

    @property
    def edge_index(self) -> Tensor:
        if "edge_index" not in self._store:
            raise AttributeError(ABSENT["edge_index"])
        return self._store["edge_index"]

    @edge_index.setter
    def edge_index(self, edge_index: Tensor | None) -> None:
        self._store.edge_index = edge_index

    def __getattr__(self, key: str) -> Any:
        if key in ABSENT and "_store" in self.__dict__ and key not in self._store:
            raise AttributeError(ABSENT[key])
        return super().__getattr__(key)

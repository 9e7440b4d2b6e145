"""`HopLoader`: stands for PyG's NeighborLoader, which needs a compiled library that has no wheel for this torch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import workbench as wb


class HopLoader:
    """Stands for PyG's NeighborLoader: its arguments, its batches, of all in-neighbours, with the data's attributes."""

    def __init__(
        self, data: Any, num_neighbors: list[int], input_nodes: Tensor, batch_size: int, shuffle: bool
    ) -> None:
        assert shuffle and min(num_neighbors) >= int(torch.bincount(data.edge_index[1]).max())
        self.data, self.seeds, self.batch_size = data, input_nodes, batch_size
        self.graph = wb.Graph.from_edges(*data.edge_index, num_nodes=data.num_nodes)
        self.sampler = wb.FullNeighborSampler(len(num_neighbors), edge_ids=True)

    def __len__(self) -> int:
        return -(-len(self.seeds) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        for seeds in self.seeds[torch.randperm(len(self.seeds))].split(self.batch_size):
            batch = self.sampler.sample(self.graph, seeds).to_pyg()
            for name in ("adjs", "adj_weights", "adj_types"):
                delattr(batch, name)
            for name, value in self.data:
                if name != "edge_index" and isinstance(value, Tensor):
                    batch[name] = value[batch.e_id if self.data.is_edge_attr(name) else batch.n_id]
            yield batch

"""`HopLoader`: stands for PyG's NeighborLoader, which needs a compiled library that has no wheel for this torch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import workbench as wb


class HopLoader:
    """Stands for PyG's NeighborLoader, which needs a compiled library: its arguments, its batches."""

    def __init__(
        self, data: Any, num_neighbors: list[int], input_nodes: Tensor, batch_size: int, shuffle: bool
    ) -> None:
        assert shuffle and min(num_neighbors) >= int(torch.bincount(data.edge_index[1]).max())
        self.data, self.seeds, self.batch_size = data, input_nodes, batch_size
        self.graph, self.sampler = wb.Graph.from_pyg(data), wb.FullNeighborSampler(len(num_neighbors))

    def __len__(self) -> int:
        return -(-len(self.seeds) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        for seeds in self.seeds[torch.randperm(len(self.seeds))].split(self.batch_size):
            batch = self.sampler.sample(self.graph, seeds).to_pyg()
            for name in ("adjs", "adj_weights", "adj_types"):
                delattr(batch, name)
            batch.x, batch.y = self.data.x[batch.n_id], self.data.y[batch.n_id]
            yield batch

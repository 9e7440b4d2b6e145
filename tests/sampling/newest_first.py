"""DENSE as the paper writes it, newest nodes first: the oracle of `DenseSampler`."""

from collections.abc import Callable

import torch
from torch import Tensor


class NewestFirst:
    """A DENSE sample as in the paper: Algorithm 1 builds it, Algorithm 2 shifts it, Algorithm 3 is a layer.

    Source: Waleffe et al., "MariusGNN", EuroSys 2023, Algorithms 1 to 3.
    """

    def __init__(self, targets: Tensor, num_hops: int, one_hop: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> None:
        self.node_id_offsets, self.node_ids = torch.tensor([0]), targets
        self.nbr_offsets, self.nbrs = targets[:0], targets[:0]
        delta = targets
        for hop in range(num_hops, 0, -1):
            nbrs, offsets = one_hop(delta, hop - 1)
            self.nbr_offsets = torch.cat([offsets, self.nbr_offsets + len(nbrs)])
            self.nbrs = torch.cat([nbrs, self.nbrs])
            known = set(self.node_ids.tolist())
            delta = torch.tensor(list(dict.fromkeys(n for n in nbrs.tolist() if n not in known)), dtype=torch.int64)
            self.node_id_offsets = torch.cat([torch.tensor([0]), self.node_id_offsets + len(delta)])
            self.node_ids = torch.cat([delta, self.node_ids])
        position = {node: i for i, node in enumerate(self.node_ids.tolist())}
        self.repr_map = torch.tensor([position[n] for n in self.nbrs.tolist()], dtype=torch.int64)

    def shift(self) -> None:
        """Algorithm 2."""
        delta_before, delta = self.node_id_offsets[1], self.node_id_offsets[2] - self.node_id_offsets[1]
        dropped = self.nbr_offsets[delta] if delta < len(self.nbr_offsets) else torch.tensor(len(self.nbrs))
        self.nbrs = self.nbrs[dropped:]
        self.repr_map = self.repr_map[dropped:] - delta_before
        self.nbr_offsets = self.nbr_offsets[delta:] - dropped
        self.node_ids = self.node_ids[delta_before:]
        self.node_id_offsets = self.node_id_offsets[1:] - delta_before

    def layer(self, h: Tensor) -> Tensor:
        """Algorithm 3."""
        nbr_repr = h.index_select(0, self.repr_map)
        ends = torch.cat([self.nbr_offsets[1:], torch.tensor([len(self.nbrs)])])
        nbr_aggr = torch.stack([nbr_repr[a:b].sum(0) for a, b in zip(self.nbr_offsets, ends, strict=True)])
        return nbr_aggr + h[self.node_id_offsets[1] :]

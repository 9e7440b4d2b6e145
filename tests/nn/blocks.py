"""Random blocks for tests of layers: hubs, duplicate edges, rows without edges."""

import torch

from workbench.core.block import Block

NUM_TYPES = 3


def random_block(
    num_src: int = 14,
    num_dst: int = 9,
    num_edges: int = 40,
    seed: int = 0,
    *,
    weight: torch.dtype | None = None,
    learn_weight: bool = False,
) -> Block:
    """Build a random block of 3 edge types whose last destination has no in-edge and whose first edge is duplicated.

    Args:
        num_src: number of sources.
        num_dst: number of destinations.
        num_edges: number of edges; ignored without destinations.
        seed: seed of torch's generator.
        weight: dtype of edge weights in (0.5, 1.5); None: no weights.
        learn_weight: whether the weights require a gradient.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = max(1, num_dst - 1)
    count = num_edges if num_dst else 0
    dst = (rows * torch.rand(count, generator=generator) ** 2).long().sort().values
    src = (num_src * torch.rand(count, generator=generator) ** 1.5).to(torch.int32)
    if count > 1:
        src[1], dst[1] = src[0], dst[0]
    indptr = torch.zeros(num_dst + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(dst, minlength=num_dst), 0, out=indptr[1:])
    values = None
    if weight is not None:
        values = (torch.rand(count, generator=generator, dtype=torch.float64) + 0.5).to(weight)
        values.requires_grad_(learn_weight)
    types = torch.randint(0, NUM_TYPES, (count,), generator=generator)
    return Block(indptr, src, num_src, num_dst, edge_weight=values, edge_type=types).validate()


def random_rows(count: int, channels: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Draw normal values that require a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, channels, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

"""Batches to convert, and exact comparison."""

from dataclasses import replace

import torch

from tests.strategies import random_graph, random_minibatch
from workbench.core.minibatch import MiniBatch


def assert_fields_equal(left, right) -> None:
    for name, tensor in left._tensors().items():
        other = right._tensors()[name]
        assert (tensor is None) == (other is None), name
        assert tensor is None or (tensor.dtype == other.dtype and torch.equal(tensor, other)), name


def assert_batches_equal(left: MiniBatch, right: MiniBatch) -> None:
    assert left.step == right.step
    assert [(b.num_src, b.num_dst) for b in left.blocks] == [(b.num_src, b.num_dst) for b in right.blocks]
    assert_fields_equal(left, right)


def shuffled(mb: MiniBatch, seed: int) -> MiniBatch:
    """Shuffle the edges of each block, so that nothing is in ascending order by accident."""
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for block in mb.blocks:
        order = torch.randperm(block.num_edges, generator=generator)
        moved = {name: t[order] for name, t in block._tensors().items() if t is not None and name != "indptr"}
        blocks.append(replace(block, **moved))
    return replace(mb, blocks=tuple(blocks))


def full_batch(**kind) -> MiniBatch:
    return random_minibatch(random_graph(15, 60, **kind), num_seeds=4, fanouts=(-1, -1, -1))

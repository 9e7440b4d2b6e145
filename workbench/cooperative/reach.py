"""How many seeds reach each input node of a batch, counted by bit sets that pass through the blocks.

Every node has a set of one bit per item of a group of 512 (one cache line). A layer unites the sets of its destinations
into those of their sources, so a pass over the batch's edges counts 512 items at once.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import check_id_vector, find_out_of_range
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import get_num_threads, run_tasks

_WORDS = 8  # of 64 bits: a cache line
_TORCH_ITEMS = 64  # columns of the dense matrix of the torch implementation


def reach_counts(batch: MiniBatch, *, items: Tensor | None = None) -> Tensor:
    """Count for every input node the seeds whose own sample contains it.

    The sample of a seed is the seed and all that the blocks' edges lead to from it, layer by layer. If the sampler's
    rows are independent, it is the batch that sampling this seed alone gives.

    Args:
        batch: without exchanges.
        items: int64 or int32 [num_items, width], positions of seeds: count the items that have a seed that reaches the
            node, such as the pairs of link prediction with their negatives. None: every seed is an item.

    Returns:
        int64 [num_inputs].

    Raises:
        TypeError: items of another dtype.
        ValueError: the batch has exchanges, or items are not a matrix.
        IndexError: an item's position is out of range.

    Source: Cooperative Minibatching, section 3: the sets that theorems 3.1 and 3.2 count.
    """
    refuse_halo(batch.exchanges, "counted")
    if items is None:
        items = torch.arange(batch.num_seeds, device=batch.device)[:, None]
    items = _checked(items, batch.num_seeds).to(batch.device)
    if batch.device.type != "cpu":
        return reach_counts_torch(batch, items)
    groups = items.split(_WORDS * 64)
    threads = max(1, min(get_num_threads(), len(groups)))
    counts = torch.zeros(threads, batch.num_inputs, dtype=torch.int64)
    blocks = [(b.indptr.numpy(), b.indices.numpy(), b.num_dst, b.num_src) for b in reversed(batch.blocks)]

    def count(thread: int) -> None:
        sets = torch.zeros(batch.num_inputs, _WORDS, dtype=torch.int64).numpy().view(np.uint64)
        before = torch.empty(max((b.num_dst for b in batch.blocks), default=0), _WORDS, dtype=torch.int64)
        for group in groups[thread::threads]:
            _mark(group.numpy(), sets)
            for block in blocks:
                _pass_on(*block, before.numpy().view(np.uint64), sets)
            _count_and_clear(sets, counts[thread].numpy())

    run_tasks([lambda thread=thread: count(thread) for thread in range(threads)])
    return counts.sum(0)


def reach_counts_torch(batch: MiniBatch, items: Tensor) -> Tensor:
    """Count as `reach_counts` does, in plain torch for any device; the oracle of the compiled kernels.

    Args:
        batch: without exchanges.
        items: int64 [num_items, width], positions of seeds.
    """
    counts = torch.zeros(batch.num_inputs, dtype=torch.int64, device=batch.device)
    for group in items.split(_TORCH_ITEMS):
        reached = torch.zeros(batch.num_seeds, len(group), dtype=torch.int32, device=batch.device)
        reached[group, torch.arange(len(group), device=batch.device)[:, None]] = 1
        for block in reversed(batch.blocks):
            sources = reached.new_zeros(block.num_src, len(group))
            sources[: block.num_dst] = reached
            reached = sources.index_add_(0, block.indices, reached[block.destinations]).clamp_(max=1)
        counts += reached.sum(1)
    return counts


def _checked(items: Tensor, num_seeds: int) -> Tensor:
    check_id_vector("items", items.reshape(-1) if isinstance(items, Tensor) else items)
    if items.dim() != 2:
        raise ValueError(f"items have shape {tuple(items.shape)}; pass [num_items, positions per item]")
    if (bad := find_out_of_range(items, 0, num_seeds)) is not None:
        raise IndexError(f"items contain {bad}; they are positions of the batch's {num_seeds} seeds")
    return items.to(torch.int64).contiguous()


@compiled
def _mark(items, sets):
    for i in range(len(items)):
        for seed in items[i]:
            sets[seed, i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@compiled
def _pass_on(indptr, indices, num_dst, num_src, before, sets):
    """Unite each destination's set, as it was before this layer, into the sets of its sources."""
    for row in range(num_dst):
        for word in range(_WORDS):
            before[row, word] = sets[row, word]
    for row in range(num_dst):
        any_bit = np.uint64(0)
        for word in range(_WORDS):
            any_bit |= before[row, word]
        if any_bit:
            for edge in range(indptr[row], indptr[row + 1]):
                for word in range(_WORDS):
                    sets[indices[edge], word] |= before[row, word]


@compiled
def _count_and_clear(sets, counts):
    for node in range(len(sets)):
        for word in range(_WORDS):
            counts[node] += _num_bits(sets[node, word])
            sets[node, word] = 0


@compiled
def _num_bits(word):
    """Number of ones of a 64-bit word: sums of pairs, of four, of eight bits, then of the bytes by a product."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))

"""The work of a batch as a function of its size: how many nodes it reads, before any training.

Both theorems are about a uniform random subset of b of n seeds. A node that r of the n seeds reach is missing from its
batch with probability C(n - r, b) / C(n, b), so the counts r of one sampled batch of all n seeds give the expected
number of inputs for every b at once. This requires samples that do not depend on the batch.

Balın, LaSalle, Çatalyürek: "Cooperative Minibatching in Graph Neural Networks", theorems 3.1 and 3.2.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_at_least, check_seed, check_vector, find_out_of_range
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, permutation, stream
from workbench.sampling.reach import reach_counts
from workbench.sampling.sampler import Sampler, check_graph, check_sampler, require_row_independence


def expected_inputs(reach: Tensor, num_seeds: int, batch_sizes: Sequence[int]) -> Tensor:
    """Compute the expected number of input nodes of batches of b seeds, drawn uniformly without replacement.

    E|S_b| = Σ_v 1 − C(n − r_v, b) / C(n, b).

    Args:
        reach: int64 or int32 [num_inputs], the number r of seeds that reach each node, as `reach_counts` returns it.
        num_seeds: number n of seeds (or items) that batches are drawn from.
        batch_sizes: numbers b of seeds per batch, from 0 to n.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        TypeError: counts of another dtype.
        ValueError: a count or a batch size is out of range.

    Source: Cooperative Minibatching, theorem 3.2: E|S_b| = Σ_{i ≤ b} E|T_i| / i.

    >>> expected_inputs(torch.tensor([2, 1, 1]), 2, [1, 2])  # two seeds that share one of their two nodes each
    tensor([2., 3.], dtype=torch.float64)
    """
    nodes, sizes = _nodes_by_reach(reach, num_seeds), _checked_sizes(batch_sizes, num_seeds, least=0)
    return torch.stack([(nodes * (1 - _missed(len(nodes), num_seeds, b))).sum() for b in sizes])


def marginal_inputs(reach: Tensor, num_seeds: int, batch_sizes: Sequence[int]) -> Tensor:
    """Compute the expected number of input nodes that the b-th seed of a batch adds to those of the others.

    It is E|T_b| / b, with T_b the nodes that exactly one of b seeds reaches, and never increases with b.

    Args:
        reach: int64 or int32 [num_inputs], the number r of seeds that reach each node, as `reach_counts` returns it.
        num_seeds: number n of seeds (or items) that batches are drawn from.
        batch_sizes: numbers b of seeds per batch, from 1 to n.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        TypeError: counts of another dtype.
        ValueError: a count or a batch size is out of range.

    Source: Cooperative Minibatching, equations 5 to 7.

    >>> marginal_inputs(torch.tensor([2, 1, 1]), 2, [1, 2])
    tensor([2., 1.], dtype=torch.float64)
    """
    nodes, sizes = _nodes_by_reach(reach, num_seeds), _checked_sizes(batch_sizes, num_seeds, least=1)
    r = torch.arange(len(nodes), dtype=torch.float64)
    # The b-th seed is one of the node's r, with probability r / n, and the b − 1 others are among the n − r.
    others = [_missed(len(nodes), num_seeds - 1, b - 1, shift=1) for b in sizes]
    return torch.stack([(nodes * r / num_seeds * missed).sum() for missed in others])


def work_curve(graph: Graph, seeds: Tensor, *, sampler: Sampler, batch_sizes: Sequence[int], step: int = 0) -> Tensor:
    """Compute the expected number of input nodes for every batch size from one sampled batch of all seeds.

    The expectation is over the seeds of a batch; the random variates are those of `step`.

    Args:
        graph: the graph to sample from.
        seeds: int64 or int32 node ids, each once: the training nodes that batches are drawn from. For batches much
            smaller than these, a random subset of them gives an unbiased estimate at less cost.
        sampler: draws every row independently of the others.
        batch_sizes: numbers of seeds per batch.
        step: number of the batch, which selects the random variates.

    Returns:
        float64 [len(batch_sizes)].

    Raises:
        ValueError: a sampler whose rows depend on each other (`measure_work` measures it), duplicate seeds, or a batch
            size out of range.

    Source: Cooperative Minibatching, theorems 3.1 and 3.2.
    """
    check_graph(graph)
    check_sampler(sampler)
    require_row_independence(sampler, "the expected work of all batch sizes from one sample")
    sizes = _checked_sizes(batch_sizes, len(seeds), least=0)
    return expected_inputs(reach_counts(sampler.sample(graph, seeds, step=step)), len(seeds), sizes)


class Work(NamedTuple):
    """What one sampled batch counts.

    Args:
        batch_size: number of items that the batch was drawn from.
        repetition: number of the permutation that they are a prefix of.
        nodes: |S⁰|, |S¹|, …: numbers of nodes, from the seeds to the inputs.
        edges: numbers of edges per layer, in the same order.
    """

    batch_size: int
    repetition: int
    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    @property
    def num_seeds(self) -> int:
        """Number of seeds."""
        return self.nodes[0]

    @property
    def num_inputs(self) -> int:
        """Number of nodes whose features the batch reads."""
        return self.nodes[-1]


def measure_work(
    graph: Graph,
    items: Tensor,
    *,
    sampler: Sampler,
    batch_sizes: Sequence[int],
    repetitions: int = 5,
    seeds_of: Callable[[Tensor, int], Tensor] | None = None,
    seed: int = 0,
) -> Iterator[Work]:
    """Sample batches of several sizes and count their nodes and edges, for any sampler.

    The batches of a repetition are prefixes of one permutation and share their step, so that differences between sizes
    vary less than the sizes themselves; repetitions are independent of each other.

    Args:
        graph: the graph to sample from.
        items: what batches are drawn from: int64 or int32 node ids, or with `seeds_of` any tensor, by its first
            dimension.
        sampler: any sampler.
        batch_sizes: numbers of items per batch, from 1 to all.
        repetitions: number of permutations.
        seeds_of: maps the items of a batch and its step to the ids of its seeds, each once; None: items are seeds.
        seed: of the permutations.

    Yields:
        The counts of each batch, repetition by repetition.

    Raises:
        ValueError: a batch size or the number of repetitions is out of range, or seeds occur twice.

    Source: Cooperative Minibatching, section 4.1.
    """
    check_graph(graph)
    check_sampler(sampler)
    check_at_least("repetitions", repetitions, 1)
    check_seed(seed)
    sizes = _checked_sizes(batch_sizes, len(items), least=1)

    def batches() -> Iterator[Work]:
        for step in range(repetitions):
            order = permutation(stream(seed, Purpose.SHUFFLE, step), len(items)).to(items.device)
            for size in sizes:
                drawn = items[order[:size]]
                seeds = drawn if seeds_of is None else seeds_of(drawn, step)
                yield _count(size, step, sampler.sample(graph, seeds, step=step))

    return batches()


def _count(size: int, repetition: int, batch: MiniBatch) -> Work:
    nodes = (batch.num_seeds, *(block.num_src for block in reversed(batch.blocks)))
    return Work(size, repetition, nodes, tuple(block.num_edges for block in reversed(batch.blocks)))


def _nodes_by_reach(reach: Tensor, num_seeds: int) -> Tensor:
    """Number of nodes by the number of seeds that reach them, float64 [at least 2]."""
    check_at_least("num_seeds", num_seeds, 1)
    check_vector("reach", reach, None, ID_DTYPES)
    if (bad := find_out_of_range(reach, 0, num_seeds + 1)) is not None:
        raise ValueError(f"reach contains {bad}; counts must be from 0 to the {num_seeds} seeds")
    return torch.bincount(reach.cpu(), minlength=2).to(torch.float64)


def _checked_sizes(batch_sizes: Sequence[int], count: int, *, least: int) -> list[int]:
    sizes = [int(size) for size in batch_sizes]
    for size in sizes:
        check_at_least("a batch size", size, least, most=count)
    return sizes


def _missed(length: int, num_seeds: int, batch_size: int, *, shift: int = 0) -> Tensor:
    """Probability, for r = 0, 1, …, that a batch has none of r seeds: C(n − r, b) / C(n, b), a running product."""
    j = torch.arange(length - 1 - shift, dtype=torch.float64)
    steps = ((num_seeds - batch_size - j) / (num_seeds - j)).clamp(min=0)
    return torch.cat([torch.ones(1 + shift, dtype=torch.float64), steps.cumprod(0)])

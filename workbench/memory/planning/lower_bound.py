"""`Budget`, and a lower bound on the memory of any partition: the most expensive seeds alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.planning.search import Candidate, CandidateBuilder

_FIRST_CHUNK, _MAX_CHUNK, _MAX_SEEDS = 32, 512, 4096

_MAX_CHUNK_EDGES, _MAX_EDGES = 2**24, 2**27  # edges read for single-seed batches: per chunk, in total


@dataclass(frozen=True)
class Budget:
    """The capacity that estimates must fit into, with a safety margin.

    Args:
        capacity_bytes: memory of the device.
        margin: fraction of an estimate by which it may be too low.
        error: relative error, in [0, 1), of the estimated bytes that a step adds to the fixed bytes.
    """

    capacity_bytes: int
    margin: float
    error: float = 0.0

    def required_bytes(self, peak_bytes: int, fixed_bytes: int) -> int:
        """Capacity required by an estimated peak: the measured step may need estimate / (1 − error)."""
        worst_step_bytes = math.ceil((peak_bytes - fixed_bytes) / (1 - self.error))
        return max(math.ceil(peak_bytes * (1 + self.margin)), fixed_bytes + worst_step_bytes)

    def required(self, estimate: MemoryEstimate) -> int:
        """Capacity in bytes required by an estimate."""
        return self.required_bytes(estimate.peak_bytes, estimate.fixed_bytes)

    def fits(self, estimate: MemoryEstimate) -> bool:
        return self.required(estimate) <= self.capacity_bytes

    def utilization(self, estimate: MemoryEstimate) -> float:
        """Required bytes over available bytes, both without the fixed bytes: the step fits if it is at most 1."""
        fixed = self.required_bytes(estimate.fixed_bytes, estimate.fixed_bytes)
        return (self.required(estimate) - fixed) / (self.capacity_bytes - fixed)

    def capacity_error(
        self, subject: str, peak_bytes: int, fixed_bytes: int, remedy: str, sufficient: MemoryEstimate
    ) -> CapacityError:
        """Build the error for a peak that exceeds the capacity.

        Args:
            subject: start of the message, up to and including the verb ("one seed alone needs").
            remedy: what to change other than the capacity.
            sufficient: the estimate whose required capacity is the smallest for which a plan exists.
        """
        required = self.required_bytes(peak_bytes, fixed_bytes)
        with_margin = f", or {required:,} with {self._reserve()}" if required > peak_bytes else ""
        return CapacityError(
            f"{subject} {_exact(peak_bytes)}{with_margin}, more than the capacity of {_exact(self.capacity_bytes)}: "
            f"{remedy}, or a capacity of {_exact(self.required(sufficient))}"
        )

    def _reserve(self) -> str:
        margin = f"a margin of {self.margin:.1%}"
        return f"{margin} and an error of up to {self.error:.0%} of the traced estimate" if self.error else margin


def lower_bound_exceeds(builder: CandidateBuilder, budget: Budget) -> bool:
    """Return whether the most expensive seeds of a batch that does not fit prove that no partition fits.

    All parts but the first find gradients of earlier parts, so seeds that do not fit after them must all be in the
    first part. If that part does not fit either, no partition does.
    """
    if builder.mb.num_seeds == 1:
        return True
    _, largest_trees = next(_by_computation_tree(builder.mb))
    unfit = _unfit_alone(builder, largest_trees, budget)
    return bool(unfit) and not budget.fits(builder.groups([torch.cat(unfit)], after=[0]).estimates[0])


def _unfit_alone(builder: CandidateBuilder, seeds: Tensor, budget: Budget) -> list[Tensor]:
    """The seeds that do not fit as micro-batches of their own after other parts, by bisection.

    A group that fits contains none, because its seeds need at most as much as the group.
    """
    groups, unfit = [seeds], []
    while groups:
        estimates = builder.groups(groups, after=[1] * len(groups)).estimates
        large = [group for group, estimate in zip(groups, estimates, strict=True) if not budget.fits(estimate)]
        unfit += [group for group in large if len(group) == 1]
        groups = [half for group in large if len(group) > 1 for half in group.tensor_split(2)]
    return unfit


def most_expensive_seed(builder: CandidateBuilder) -> Candidate:
    """Find the seed that needs the most memory as a micro-batch of its own after other parts.

    Of far more than 4,096 seeds, only those with the largest computation trees are estimated, unless a bound proves
    earlier that no other seed has more nodes.
    """
    if builder.mb.num_seeds == 1:
        return builder.unpartitioned()
    best: list[Candidate] = []
    for largest_tree, seeds in _by_computation_tree(builder.mb):
        if best and largest_tree < best[0].micro[0].num_inputs:
            break
        singletons = builder.groups(seeds.split(1), after=[1] * len(seeds))
        if not best or singletons.peak_bytes > best[0].peak_bytes:
            best = [Candidate((singletons.micro[singletons.largest],), (singletons.estimates[singletons.largest],))]
    return best[0]


def _by_computation_tree(mb: MiniBatch) -> Iterator[tuple[int, Tensor]]:
    """Chunks of seed positions by decreasing tree size, each with the edges of its largest tree."""
    trees, order = tree_edges(mb).sort(descending=True, stable=True)
    max_reads = trees.clamp(max=mb.num_edges).clamp_(min=1)
    begin, chunk, edges_read = 0, _FIRST_CHUNK, 0
    while begin < min(mb.num_seeds, _MAX_SEEDS) and edges_read < _MAX_EDGES:
        end = begin + max(1, min(chunk, int(_MAX_CHUNK_EDGES // max_reads[begin])))
        yield int(trees[begin]), order[begin:end]
        edges_read += int(max_reads[begin:end].sum())
        begin, chunk = end, min(2 * chunk, _MAX_CHUNK)


def tree_edges(mb: MiniBatch) -> Tensor:
    """float64 [num_seeds]: edges of each seed's computation tree over all blocks, counted once per path.

    >>> from workbench.core.block import Block
    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32), num_src=2, num_dst=2)
    >>> tree_edges(MiniBatch(torch.tensor([7, 8]), (block, block))).tolist()
    [7.0, 3.0]
    """
    below = torch.zeros(mb.num_inputs, dtype=torch.float64)
    for block in mb.blocks:
        ends = torch.zeros(block.num_edges + 1, dtype=torch.float64)
        torch.cumsum(1 + below[block.indices.cpu().long()], 0, out=ends[1:])
        below = below[: block.num_dst] + ends[block.indptr.cpu()].diff()  # a destination is also its own source
    return below


def _exact(nbytes: int) -> str:
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})"

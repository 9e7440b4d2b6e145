"""The paper's samplers by the names of its figures."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import workbench as wb

SamplerName = Literal["RW", "NS", "LABOR-0", "LABOR-*"]

SAMPLERS: Mapping[SamplerName, Callable[..., wb.Sampler]] = {
    "RW": wb.RandomWalkSampler,
    "NS": wb.NeighborSampler,
    "LABOR-0": wb.LaborSampler,
    "LABOR-*": partial(wb.LaborSampler, importance="*"),
}


def build_sampler(
    name: SamplerName, fanouts: Sequence[int], *, seed: int, dependence: wb.Smoothed | None = None
) -> wb.Sampler:
    """Build a sampler of the paper.

    Args:
        name: as in the paper's figures.
        fanouts: neighbours per layer, input layer first.
        seed: of its variates.
        dependence: of consecutive batches; None: independent.
    """
    return SAMPLERS[name](fanouts, seed=seed, dependence=dependence)

"""The paper's samplers by the names of its figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import workbench as wb

SamplerName = Literal["RW", "NS", "LABOR-0", "LABOR-*"]

SAMPLERS: Mapping[SamplerName, Callable[[Sequence[int], int], wb.Sampler]] = {
    "RW": lambda fanouts, seed: wb.RandomWalkSampler(fanouts, seed=seed),
    "NS": lambda fanouts, seed: wb.NeighborSampler(fanouts, seed=seed),
    "LABOR-0": lambda fanouts, seed: wb.LaborSampler(fanouts, seed=seed),
    "LABOR-*": lambda fanouts, seed: wb.LaborSampler(fanouts, importance="*", seed=seed),
}


def build_sampler(name: SamplerName, fanouts: Sequence[int], *, seed: int) -> wb.Sampler:
    """Build a sampler of the paper.

    Args:
        name: as in the paper's figures.
        fanouts: neighbours per layer, input layer first.
        seed: of its variates.
    """
    return SAMPLERS[name](fanouts, seed)

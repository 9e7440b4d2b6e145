"""A toy estimator that counts inputs and edges, and invariants of plans made with it."""

import re
from typing import Any

import pytest
import torch

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import Plan, plan_with

FIXED = 1000


def count(mb: MiniBatch, /, *, accumulating: bool = False, error: float | None = None) -> MemoryEstimate:
    """An estimate that grows linearly with inputs and edges."""
    terms = {
        "parameters": FIXED,
        "inputs": 64 * mb.num_inputs,
        "blocks": 8 * mb.num_edges,
        "gradients": 100 * accumulating,
    }
    phases = {"forward": sum(terms.values()), "backward": FIXED, "step": FIXED + 20}
    return MemoryEstimate(terms=terms, phase_bytes=phases, fixed_bytes=FIXED, backend="none", error=error)


def alone(mb: MiniBatch) -> list[int]:
    """Peak bytes of every seed as a part of its own, after other parts."""
    return [count(m, accumulating=True).peak_bytes for m in mb.split(torch.arange(mb.num_seeds))]


def batch(num_nodes: int = 400, num_seeds: int = 120, fanouts: tuple[int, ...] = (4, 4), seed: int = 0) -> MiniBatch:
    return random_minibatch(
        random_graph(num_nodes, 8 * num_nodes, seed), fanouts=fanouts, seed=seed, num_seeds=num_seeds
    )


def equal(a: MiniBatch, b: MiniBatch) -> bool:
    pairs = zip(a._tensors().values(), b._tensors().values(), strict=True)
    return all((s is None and t is None) or (s is not None and t is not None and torch.equal(s, t)) for s, t in pairs)


def check(made: Plan, mb: MiniBatch, margin: float) -> None:
    """Assert the invariants of plans."""
    assert made.assignment.dtype == torch.int64 and made.assignment.shape == (mb.num_seeds,)
    assert made.assignment.unique().tolist() == list(range(made.num_parts))
    assert made.num_parts == len(made.micro) == len(made.estimates)
    if made.num_parts > 1:
        assert all(equal(a, b) for a, b in zip(made.micro, mb.split(made.assignment), strict=True))
    for position, (micro, estimate) in enumerate(zip(made.micro, made.estimates, strict=True)):
        assert estimate == count(micro, accumulating=position > 0)
        assert estimate.peak_bytes * (1 + margin) <= made.memory_bytes
    assert made.peak_bytes == max((estimate.peak_bytes for estimate in made.estimates), default=0)
    assert made.redundancy == wb.redundancy(made.micro, mb)


def refuse(*_: object, **__: object) -> torch.Tensor:
    raise AssertionError("partitioned")


def refusal(mb: MiniBatch, estimator: Any = count, **options: Any) -> str:
    with pytest.raises(CapacityError) as error:
        plan_with(estimator, mb, **options)
    return str(error.value)


def suggested(message: str) -> int:
    """The capacity that an error suggests."""
    return int(re.findall(r"or a capacity of ([\d,]+) bytes", message)[0].replace(",", ""))

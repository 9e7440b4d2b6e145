"""A plan drawn: heights by term, the capacity, the tries."""

from typing import Any

import pytest
import torch

from workbench.memory.plan import Plan
from workbench.memory.record import MemoryEstimate
from workbench.partition.redundancy import Redundancy
from workbench.plots.plan import plan_bars, plan_search

MIB = 2**20


def estimate(inputs: int) -> MemoryEstimate:
    terms = {"parameters": MIB, "inputs": inputs * MIB, "loss": 0}
    return MemoryEstimate(terms=terms, phase_bytes={"forward": 1}, fixed_bytes=MIB, kernels="none")


def plan(inputs: list[int], tried: tuple[tuple[int, int], ...] = ((1, 40 * MIB),), capacity: int = 10 * MIB) -> Plan:
    return Plan(
        assignment=torch.zeros(0, dtype=torch.int64),
        micro=(None,) * len(inputs),  # pyright: ignore[reportArgumentType]
        estimates=tuple(estimate(size) for size in inputs),
        method="reg",
        strategy="even",
        capacity_bytes=capacity,
        redundancy=Redundancy(1300, 1000, 1.3, 400),
        seconds={"estimate": 0.5, "partition": 1.0, "split": 0.25},
        tried=tried,
    )


def test_bars_by_term_below_the_capacity() -> None:
    figure: Any = plan_bars(plan([3, 5]))
    assert [(bars.name, bars.y) for bars in figure.data] == [("parameters", (1, 1)), ("input features", (3, 5))]
    assert figure.layout.barmode == "stack"
    assert figure.layout.yaxis.title.text == "expected peak memory (MiB)" and figure.layout.yaxis.range[1] > 10
    (line,) = figure.layout.shapes
    assert line.y0 == line.y1 == 10 and figure.layout.annotations[0].text == "capacity 10.00 MiB"


def test_title_and_what_is_said_below_it() -> None:
    title = plan_bars(plan([3, 5])).layout.title.text  # pyright: ignore[reportAttributeAccessIssue]
    assert title.startswith("The batch fits as 2 micro-batches: the largest is expected to need 6.00 MiB<br>")
    assert "method reg · input nodes 1.30 × the batch's, largest part's 40% · planned in 1.75 s" in title
    whole: Any = plan_bars(plan([3]))
    assert whole.layout.title.text.startswith("The batch fits whole: its step is expected to need 4.00 MiB")
    own: Any = plan_bars(plan([3]), title="Mine")
    assert own.layout.title.text.startswith("Mine<br>")


@pytest.mark.parametrize(("parts", "first"), [(64, 1), (65, 65)])
def test_many_bars_are_ordered(parts: int, first: int) -> None:
    figure: Any = plan_bars(plan([*range(1, parts + 1)], capacity=100 * MIB))
    assert figure.data[1].y[0] == first


def test_tries_and_which_fit() -> None:
    tried = ((1, 40 * MIB), (5, 9 * MIB), (3, 11 * MIB), (4, 10 * MIB), (2, 10 * MIB))  # 2: within the margin
    figure: Any = plan_search(plan([3, 3, 3, 3], tried))
    fits, too_large = figure.data
    assert (fits.x, fits.y) == ((2, 4), (5, 4))
    assert (too_large.x, too_large.y) == ((1, 3, 5), (1, 3, 2))
    assert figure.layout.title.text == "4 found in 5 tries, none of them a training step"
    whole: Any = plan_search(plan([3], ((1, MIB),)))
    assert whole.layout.title.text.startswith("The whole batch fits")


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no micro-batches"):
        plan_bars(plan([]))
    with pytest.raises(ValueError, match="tried no number"):
        plan_search(plan([], ()))

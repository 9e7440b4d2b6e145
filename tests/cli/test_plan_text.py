"""The sentence that answers `workbench plan`."""

from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from workbench.cli.plan_batch import answer


def planned(method: str, num_parts: int, peak_bytes: int) -> Any:
    """The attributes of a `Plan` that the sentence uses."""
    return SimpleNamespace(
        method_name=method,
        num_parts=num_parts,
        peak_bytes=peak_bytes,
        capacity_bytes=2**20,
        redundancy=wb.partition.Redundancy(13, 10, 1.3, 4),
    )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            [("range", 4, 9), ("reg", 3, 10)],
            "3 micro-batches (reg needs the fewest): the largest needs an estimated 10 B",
        ),
        ([("range", 4, 9), ("reg", 4, 8)], "(the same for all methods; reg has the smallest peak): the largest"),
        ([("range", 4, 9), ("reg", 4, 9)], "(the same for all methods; shown is range)"),
        (
            [("range", 5, 9), ("reg", 4, 9), ("metis", 4, 7)],
            "(2 methods need the fewest; metis has the smallest peak)",
        ),
    ],
)
def test_the_sentence_names_the_best_partitioner_and_why(made, why):
    assert why in answer({name: planned(name, *numbers) for name, *numbers in made})

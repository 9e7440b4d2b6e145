"""`ByteCosts`: what they accept."""

import pytest

from workbench.partition.balance import ByteCosts


def test_default_costs() -> None:
    assert ByteCosts.default(2) == ByteCosts((512, 0, 0), (16, 16))


@pytest.mark.parametrize(
    ("per_node", "per_edge", "message"),
    [
        ((1, -1), (1,), r"per_node contains -1; bytes must be finite and non-negative"),
        ((1, 0), (float("inf"),), r"per_edge contains inf"),
        ((float("nan"), 0), (1,), r"per_node contains nan"),
        ((1e308, 0), (1,), r"per_node contains 1e\+308.*at most 1e\+15"),  # the sum of two is infinite
        ((0, 1), (1,), r"per_node\[0\] is 0; the bytes per input node must be 1 or more"),
        ((0.4, 0), (16,), r"per_node\[0\] is 0\.4; the bytes per input node must be 1 or more"),  # rounds to none
        ((1, 1), (1, 1), r"per_node has 2 numbers and per_edge 2"),
    ],
)
def test_bad_costs_are_refused(per_node: tuple[float, ...], per_edge: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ByteCosts(per_node, per_edge)

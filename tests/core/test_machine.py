"""Machines: the published ones, and speeds that are refused."""

import pytest

from workbench.core.machine import MACHINES, Machine


def test_published_bandwidths_are_in_bytes_per_second():
    assert {name: (m.gamma, m.alpha, m.beta) for name, m in MACHINES.items()} == {
        "A100": (2e12, 6e11, 6.4e10),
        "V100": (9e11, 3e11, 3.2e10),
    }
    assert all(m.gamma > m.alpha > m.beta for m in MACHINES.values())


@pytest.mark.parametrize("name", ["gamma", "alpha", "beta", "flops"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "64e9", True, None])
def test_a_speed_that_is_not_positive_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"{name} is {value!r}; it must be a positive number of .* such as 64e9"):
        Machine(**({"gamma": 1.0, "alpha": 1.0, "beta": 1.0} | {name: value}))

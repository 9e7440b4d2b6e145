"""What cuDNN's LSTM allocates: measured once, since only a GPU tells; there, `tests/on_cuda` compares whole steps."""

import pytest

from workbench.memory.analytic.layers import CudnnBytes


@pytest.mark.parametrize(
    ("width", "hidden", "itemsize", "sizes", "workspace", "reserve"),
    [
        (100, 100, 4, [1000] * 10, 27_108_864, 20_000_256),
        (64, 64, 4, [1000] * 10, 20_295_936, 12_800_256),
        (16, 16, 4, [1000] * 10, 11_341_056, 3_200_256),
        (256, 256, 4, [1000] * 10, 57_590_016, 51_200_256),
        (100, 100, 4, [1000] * 5 + [400] * 5, 22_308_864, 14_000_256),
        (100, 100, 4, [40_000] * 10, 744_708_864, 800_000_256),
        (100, 100, 4, [1000] * 25, 51_108_864, 50_000_256),
        (100, 100, 4, [1], 8_712_864, 2256),
        (100, 100, 4, [3] * 10, 8_764_064, 60_256),
        (100, 100, 2, [1000] * 10, 17_748_864, 10_000_256),
    ],
)
def test_bytes_are_those_of_an_h200(
    width: int, hidden: int, itemsize: int, sizes: list[int], workspace: int, reserve: int
) -> None:
    """Of cuDNN 9.19; sequences of different lengths take what their steps need."""
    found = CudnnBytes.of(width, hidden, itemsize, rows=sizes[0], edges=sum(sizes))
    assert (found.workspace, found.reserve) == (workspace, pytest.approx(reserve, abs=16))

"""The dropout mask: the compiled and the torch implementation are bit-equal."""

import pytest
import torch

from workbench.kernels.dropout_mask import apply_mask, drop_threshold, keep_mask_torch
from workbench.kernels.hash import derive_key

KEY = derive_key(5, 2)


@pytest.mark.parametrize("channels", [1, 3, 4, 130])
@pytest.mark.parametrize("threshold", [1, 20_000, 65_535])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_equals_torch(channels: int, threshold: int, dtype: torch.dtype, num_threads: int) -> None:
    ids = torch.cat([torch.arange(5000), torch.tensor([2**31, 2**40, 2**62])])
    x = torch.randn(len(ids), channels, dtype=dtype)
    kept = keep_mask_torch(ids, channels, KEY, threshold)
    expected = torch.where(kept, x * (2**16 / (2**16 - threshold)), 0)
    assert torch.equal(apply_mask(x, ids, KEY, threshold), expected)


def test_half_precision_has_the_same_mask() -> None:
    x = torch.ones(300, 12)
    wide = apply_mask(x, torch.arange(300), KEY, 30_000)
    half = apply_mask(x.bfloat16(), torch.arange(300), KEY, 30_000)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half != 0, wide != 0)


def test_strided_rows() -> None:
    x = torch.randn(40, 20)
    ids = torch.arange(20)
    assert torch.equal(apply_mask(x[::2, 5:9], ids, KEY, 9), apply_mask(x[::2, 5:9].clone(), ids, KEY, 9))


def test_threshold_rounds_to_the_nearest_level() -> None:
    assert [drop_threshold(p) for p in (0.0, 2**-16, 0.5, 1 - 2**-16)] == [0, 1, 2**15, 2**16 - 1]

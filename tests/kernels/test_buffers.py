"""Large buffers behave like torch's, whether or not the system supports the advice."""

import pytest
import torch

from workbench.kernels import buffers
from workbench.kernels.buffers import uninitialised


@pytest.mark.parametrize("values", [0, 5, (1 << 20) + 3])
@pytest.mark.parametrize("available", [True, False])
def test_shape_dtype_and_use(values: int, available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not available:
        monkeypatch.setattr(buffers, "_madvise", lambda: None)
    out = uninitialised(torch.empty(0, dtype=torch.float64), values, 2)
    assert (out.shape, out.dtype) == ((values, 2), torch.float64)
    assert out.fill_(3).sum() == 6 * values
    assert uninitialised(out, 4, dtype=torch.int32).dtype == torch.int32


def test_advice_covers_only_whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(buffers, "_madvise", lambda: lambda *args: calls.append(args))
    out = uninitialised(torch.empty(0), (1 << 20) + 1000)
    ((start, length, _),) = calls
    assert start % 4096 == 0
    assert length % 4096 == 0
    assert out.data_ptr() <= start < start + length <= out.data_ptr() + out.nbytes

"""Row gathers: the compiled and the torch implementation compared with plain indexing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from workbench.kernels import gather
from workbench.kernels.gather import gather_rows, gather_rows_torch

IDS = torch.tensor([5, 0, 5, 3])


def gather_compiled(x: Tensor, ids: Tensor, **options: Tensor) -> Tensor:
    """Gather by the compiled kernel, which a few rows are otherwise not worth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "MAX_SERIAL", -1)
        return gather_rows(x, ids, **options)


IMPLEMENTATIONS = [gather_compiled, gather_rows, gather_rows_torch]


def rows(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.arange(6 * torch.Size(shape).numel()).view(6, *shape).to(dtype)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "x",
    [
        *(rows(dtype, 3) for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float64, torch.complex64)),
        rows(torch.float32),
        rows(torch.int64, 2, 5),
        rows(torch.float32, 0),
        rows(torch.int32, 4)[:, 1:3],  # not contiguous
        rows(torch.int32, 4).T,
    ],
)
def test_equals_indexing(implementation: Callable, x: Tensor) -> None:
    for ids in (IDS % len(x), IDS[:0], (IDS % len(x))[::2]):
        assert torch.equal(implementation(x, ids), x[ids])
        out = x.new_empty(len(ids), *x.shape[1:])
        assert implementation(x, ids, out=out) is out and torch.equal(out, x[ids])


def test_an_out_buffer_may_have_gaps() -> None:
    x, wide = rows(torch.float32, 3), torch.zeros(4, 5)
    gather_rows(x, IDS, out=wide[:, 1:4])
    assert torch.equal(wide[:, 1:4], x[IDS]) and wide[:, 0].sum() + wide[:, 4].sum() == 0


def test_many_rows(num_threads: int) -> None:
    x = torch.arange(64 * 100).view(100, 64)
    ids = torch.arange(7 * 2048 + 5) * 37 % 100
    assert torch.equal(gather_rows(x, ids), x[ids])
    ids[-1] = 100
    with pytest.raises(IndexError, match="ids contains 100"):
        gather_rows(x, ids)


def test_gradients_add_up_over_repeated_ids() -> None:
    x = rows(torch.float64, 2).requires_grad_()
    gather_rows(x, IDS).sum().backward()
    assert x.grad is not None and x.grad[:, 0].tolist() == [1, 0, 0, 1, 0, 2]
    with torch.no_grad():
        assert torch.equal(gather_rows(x, IDS), x[IDS])


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(("ids", "bad"), [([0, 6, 8, 3], 8), ([8, -2, -1], -2)])
def test_ids_out_of_range_are_refused(implementation: Callable, ids: list[int], bad: int) -> None:
    with pytest.raises(IndexError, match=rf"ids contains {bad}; ids must be in \[0, 6\)"):
        implementation(rows(torch.float32, 2), torch.tensor(ids))

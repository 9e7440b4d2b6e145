"""Fused segment reductions are those of the torch forms.

On a machine without a GPU, Triton's interpreter runs them on CPU tensors:
`pip install --no-deps --target FOLDER triton`, then
`TRITON_INTERPRET=1 PYTHONPATH=FOLDER python -m pytest tests/kernels/test_triton_rows.py`.
"""

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.kernels.segment import edge_dots_torch, max_rows_torch, scatter_sum_torch

pytest.importorskip("triton", reason="Triton is not installed; CUDA builds of torch bring it")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("Triton's kernels need a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from workbench.kernels import triton_rows  # noqa: E402

pytestmark = pytest.mark.cuda
DEVICE = "cpu" if INTERPRETED else "cuda"
WIDTHS = (1, 3, 16, 100, 128, 300)


def block(seed: int, *, longest: int = 40) -> Block:
    """Rows of 0 to `longest` edges, the first of them empty."""
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.randint(longest + 1, (23,), generator=generator)
    degrees[0] = 0
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    indices = torch.randint(31, (int(indptr[-1]),), generator=generator, dtype=torch.int32)
    return Block(indptr, indices, 31, 23).to(DEVICE)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def options(b: Block, heads: int, *, weighted: bool, scaled: bool) -> tuple[Tensor | None, Tensor | None]:
    shape = (b.num_edges, heads) if heads > 1 else (b.num_edges,)
    return normal(*shape) if weighted else None, normal(b.num_dst) if scaled else None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("shape", [(1,), (100,), (3, 200), (0,)])
def test_gathering(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = (3 * normal(31, *shape)).to(dtype)
    ids = torch.randint(31, (77,), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    for some in (ids, ids.int()[::2], ids[:0]):
        ours = triton_rows.gather_rows(x, some)
        assert ours.dtype == dtype and torch.equal(ours, x[some.long()])
    out = torch.zeros(77, *shape, dtype=dtype, device=DEVICE)
    assert triton_rows.gather_rows(x, ids, out) is out and torch.equal(out, x[ids])


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_sums(width: int, heads: int, weighted: bool, scaled: bool) -> None:
    b = block(width)
    shape = (heads, width) if heads > 1 else (width,)
    x, (weight, scale) = normal(b.num_src, *shape), options(b, heads, weighted=weighted, scaled=scaled)
    ours = triton_rows.sum_rows(b.indptr, b.indices, x, weight=weight, row_scale=scale)
    theirs = scatter_sum_torch(b.destinations, b.indices, x, b.num_dst, weight=weight)
    if scale is not None:
        theirs *= scale.view(-1, *[1] * len(shape))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_gradients(width: int, heads: int, weighted: bool, scaled: bool) -> None:
    b = block(width)
    shape = (heads, width) if heads > 1 else (width,)
    grad, (weight, scale) = normal(b.num_dst, *shape), options(b, heads, weighted=weighted, scaled=scaled)
    ours = triton_rows.scatter_rows(b.indptr, b.indices, grad, b.num_src, weight=weight, row_scale=scale)
    theirs = scatter_sum_torch(b.indices, b.destinations, grad, b.num_src, weight=weight, scale=scale)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_of_weights(width: int, heads: int, scaled: bool) -> None:
    b = block(width)
    shape = (heads, width) if heads > 1 else (width,)
    grad, x, scale = normal(b.num_dst, *shape), normal(b.num_src, *shape), normal(b.num_dst) if scaled else None
    ours = triton_rows.edge_dots(b.indptr, b.indices, grad, x, row_scale=scale)
    factors = 1 if scale is None else scale[b.destinations.long()].view(-1, *[1] * (len(shape) - 1))
    torch.testing.assert_close(ours, edge_dots_torch(b, grad, x) * factors, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("values", ["distinct", "equal", "unknown"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_maxima(width: int, weighted: bool, values: str) -> None:
    """The first of equal edges wins, and a NaN, whatever comes after it."""
    b = block(width)
    x = normal(b.num_src, width)
    x = x if values == "distinct" else x.sign() if values == "equal" else x.masked_fill(x > 1, float("nan"))
    weight = normal(b.num_edges).abs() if weighted else None
    ours: Any = triton_rows.max_rows(b.indptr, b.indices, x, weight, torch.int32)
    for mine, theirs in zip(ours, max_rows_torch(b, x, weight), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_of_many_edges(dtype: torch.dtype) -> None:
    """Compared in float64: a sum of thousands of float32 values in the order of the edges is farther off."""
    b = block(5, longest=5000)
    x = normal(b.num_src, 7, dtype=dtype)
    ours = triton_rows.sum_rows(b.indptr, b.indices, x)
    exact = scatter_sum_torch(b.destinations, b.indices, x.double(), b.num_dst)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-9)
    mine, theirs = triton_rows.max_rows(b.indptr, b.indices, x, None, torch.int32), max_rows_torch(b, x, None)
    assert torch.equal(mine[0], theirs[0]) and torch.equal(mine[1], theirs[1])


def test_no_rows_and_no_channels() -> None:
    b = block(1)
    assert triton_rows.sum_rows(b.indptr[:1], b.indices[:0], normal(31, 4)).shape == (0, 4)
    assert triton_rows.sum_rows(b.indptr, b.indices, normal(31, 0)).shape == (23, 0)
    assert triton_rows.max_rows(b.indptr, b.indices, normal(31, 0), None, torch.int32)[1].shape == (23, 0)

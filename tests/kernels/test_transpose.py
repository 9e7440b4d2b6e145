"""Transposition: numba, torch and a loop over edges agree, including the order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.kernels.transpose import Transposed, transpose, transpose_torch


@st.composite
def csrs(draw):
    num_src = draw(st.integers(1, 9))
    rows = draw(st.lists(st.lists(st.integers(0, num_src - 1), max_size=6), max_size=9))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    indptr = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    return indptr, torch.tensor([s for row in rows for s in row], dtype=dtype), num_src


def by_loop(indptr: torch.Tensor, indices: torch.Tensor, num_src: int) -> Transposed:
    bounds = indptr.tolist()
    edges = [
        (s, d, e)
        for d in range(len(bounds) - 1)
        for e, s in enumerate(indices.tolist())
        if bounds[d] <= e < bounds[d + 1]
    ]
    edges.sort(key=lambda edge: edge[0])
    counts = [sum(s == source for s, _, _ in edges) for source in range(num_src)]
    return Transposed(
        torch.tensor([0, *counts]).cumsum(0),
        torch.tensor([d for _, d, _ in edges], dtype=indices.dtype),
        torch.tensor([e for _, _, e in edges], dtype=torch.int64),
    )


@pytest.mark.parametrize("form", [transpose, transpose_torch])
@given(csr=csrs())
def test_equals_a_loop_over_edges(form, csr):
    for got, expected in zip(form(*csr), by_loop(*csr), strict=True):
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)


@given(csr=csrs())
def test_transposing_twice_sorts_rows(csr):
    indptr, indices, num_src = csr
    there = transpose(indptr, indices, num_src)
    back = transpose(there.indptr, there.rows, len(indptr) - 1)
    rows = indices.split(indptr.diff().tolist())
    assert torch.equal(back.indptr, indptr)
    assert back.rows.tolist() == [source for row in rows for source in sorted(row.tolist())]
    assert torch.equal(indices[there.edges[back.edges]], back.rows)


def test_no_edges():
    result = transpose(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 3)
    assert result.indptr.tolist() == [0, 0, 0, 0]
    assert result.rows.dtype == torch.int32

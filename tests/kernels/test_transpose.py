"""Transposition: numba, torch and a loop over edges agree, including the order."""

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.kernels.transpose import (
    Transposed,
    transpose,
    transpose_prefixes,
    transpose_prefixes_torch,
    transpose_torch,
)


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
        None,
        torch.tensor([d for _, d, _ in edges], dtype=indices.dtype),
        torch.tensor([e for _, _, e in edges], dtype=torch.int64),
    )


@pytest.mark.parametrize("form", [transpose, transpose_torch])
@given(csr=csrs())
def test_equals_a_loop_over_edges(form, csr):
    for got, expected in zip(form(*csr), by_loop(*csr), strict=True):
        if expected is None:
            assert got is None
            continue
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


@pytest.mark.parametrize("form", [transpose_prefixes, transpose_prefixes_torch])
@given(csr=csrs(), data=st.data())
def test_prefixes_are_transposed_as_if_alone(form, csr, data):
    indptr, indices, num_src = csr
    num_rows = len(indptr) - 1
    rows = sorted(data.draw(st.lists(st.integers(0, num_rows), max_size=3)))
    sources = [1 + int(indices[: indptr[count]].max()) if indptr[count] else 0 for count in rows]
    *found, whole = form(indptr, indices, num_src, list(zip(rows, sources, strict=True)))
    assert whole.ends is None
    every = by_loop(indptr, indices, num_src)
    assert torch.equal(whole.rows, every.rows) and torch.equal(whole.edges, every.edges)
    for count, known, prefix in zip(rows, sources, found, strict=True):
        alone = by_loop(indptr[: count + 1], indices[: indptr[count]], known)
        assert prefix.rows is whole.rows and prefix.edges is whole.edges
        for source in range(known):
            mine = slice(int(prefix.indptr[source]), int(prefix.ends[source]))
            theirs = slice(*alone.indptr[source : source + 2].tolist())
            assert torch.equal(prefix.rows[mine], alone.rows[theirs])
            assert torch.equal(prefix.edges[mine], alone.edges[theirs])

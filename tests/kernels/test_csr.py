import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tests.strategies import graphs, random_edges
from workbench.kernels.csr import (
    Csr,
    find_pairs,
    find_pairs_torch,
    group_rows,
    group_rows_torch,
    index_dtype,
    offsets,
    sort_by_row,
)
from workbench.kernels.transpose import (
    symmetric_rows,
    symmetric_rows_torch,
    typed_symmetric_rows,
    typed_symmetric_rows_torch,
)


def assert_equal(left: Csr, right: Csr) -> None:
    for name, a, b in zip(Csr._fields, left, right, strict=True):
        if a is None or b is None:
            assert a is b, name
        else:
            assert a.dtype == b.dtype, name
            assert torch.equal(a, b), name


def tensors(sizes: tuple[int, int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    col, row = (torch.tensor(ids, dtype=dtype) for ids in random_edges(*sizes))
    return row, col


lists = st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(0, 2**16))
dtypes = st.sampled_from((torch.int32, torch.int64))


@given(lists, dtypes, st.booleans())
def test_group_rows_equals_torch(sizes, dtype, in_order):
    row, col = tensors(sizes, dtype)
    row = row.sort().values if in_order else row
    result = group_rows(row, col, sizes[0], sizes[0])
    assert_equal(result, group_rows_torch(row, col, sizes[0], sizes[0]))
    assert (result.order is None) == bool((row.diff() >= 0).all())


@pytest.mark.parametrize("num_rows", [1, 255, 256, 257, 5000, 2**16, 2**17 + 1, 2**24 + 1])
@pytest.mark.parametrize("num_edges", [0, 1, 1000, 300_000])
@pytest.mark.parametrize("values", ["positions", "given", None])
@pytest.mark.parametrize("both", [False, True])
def test_sorting_in_buckets_keeps_the_order_of_rows(num_rows, num_edges, values, both):
    """Of one bucket or many, the last one partly filled or empty, of one range of edges or several."""
    row, col = tensors((num_rows, num_edges, 5), torch.int32)
    weight = torch.arange(num_edges, dtype=torch.float32)
    found = sort_by_row(row, col, num_rows, torch.int64, values=weight if values == "given" else values, both=both)
    kept = torch.stack([torch.ones(num_edges, dtype=torch.bool), row != col], 1)[:, : 1 + both]  # loops have no reverse
    rows, cols = (torch.stack(ends, 1)[:, : 1 + both][kept] for ends in ((row, col), (col, row)))
    entries = torch.arange(num_edges)[:, None].expand(-1, 1 + both)[kept]
    order = torch.argsort(rows, stable=True)
    expected = {"positions": entries[order], "given": weight[entries[order]], None: None}[values]
    assert_equal(Csr(*found), Csr(offsets(torch.bincount(rows, minlength=num_rows)), cols[order].long(), expected))


@given(lists, dtypes, st.sampled_from((None, torch.float32, torch.float64, torch.bfloat16)))
def test_symmetric_rows_equals_torch(sizes, dtype, weight_dtype):
    row, col = tensors(sizes, dtype)
    weight = None if weight_dtype is None else (torch.arange(sizes[1]) / 64 - 0.25).to(weight_dtype)  # sums are exact
    assert_equal(symmetric_rows(row, col, weight, sizes[0]), symmetric_rows_torch(row, col, weight, sizes[0]))


@given(lists, st.sampled_from((None, torch.float32, torch.bfloat16)))
def test_typed_symmetric_rows_equals_torch(sizes, weight_dtype):
    row, col = tensors(sizes, torch.int64)
    weight = None if weight_dtype is None else (torch.arange(sizes[1]) / 64 - 0.25).to(weight_dtype)
    args = row, col, row % 2, weight, sizes[0], 3
    (ours, types), (theirs, their_types) = typed_symmetric_rows(*args), typed_symmetric_rows_torch(*args)
    assert_equal(ours, theirs)
    assert torch.equal(types, their_types)


@given(graphs(), st.integers(0, 2**16))
def test_find_pairs_equals_torch(graph, seed):
    generator = torch.Generator().manual_seed(seed)
    row, col = torch.randint(0, graph.num_nodes, (2, 7), generator=generator)
    args = graph.indptr, graph.indices, row, col
    assert torch.equal(find_pairs(*args), find_pairs_torch(*args))


@pytest.mark.parametrize(("nodes", "dtype"), [(2**31 - 1, torch.int32), (2**31, torch.int64)])
def test_index_dtype(nodes, dtype):
    assert index_dtype(nodes) == dtype

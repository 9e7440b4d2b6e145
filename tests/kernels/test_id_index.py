"""Distinct ids and their positions, compared with plain Python; the compiled and the torch form with each other."""

import torch
from hypothesis import given, strategies as st

from workbench.kernels.relabel import IdIndex, positions_torch
from workbench.kernels.threads import MIN_ROWS_PER_THREAD

LISTS = st.lists(st.lists(st.one_of(st.integers(0, 199), st.sampled_from([63, 64, 127, 128])), max_size=20), max_size=4)


@given(lists=LISTS)
def test_ids_and_positions(lists: list[list[int]]) -> None:
    index = IdIndex([torch.tensor(ids, dtype=torch.int64) for ids in lists], 200)
    distinct = sorted({i for ids in lists for i in ids})
    assert index.ids.tolist() == distinct
    expected = [distinct.index(i) if i in distinct else -1 for i in range(-70, 270)]
    every = torch.arange(-70, 270)
    assert index.positions(every).tolist() == expected
    assert positions_torch(index.ids, every).tolist() == expected


def test_many_ids(num_threads: int) -> None:
    limit = 300 * MIN_ROWS_PER_THREAD
    ids = torch.arange(limit)[3 :: 7 * 64 + 5]
    index = IdIndex([ids.flip(0), ids[::2]], limit)
    assert torch.equal(index.ids, ids)
    assert torch.equal(index.positions(ids.flip(0)), torch.arange(len(ids)).flip(0))
    assert index.positions(ids + 1).eq(-1).all()

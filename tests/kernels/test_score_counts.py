import torch
from hypothesis import given, strategies as st

from workbench.kernels.score_counts import count_scores, count_scores_torch


@given(st.integers(0, 40), st.integers(0, 9), st.integers(0, 99))
def test_compiled_and_plain_counts_agree_with_the_definition(n, k, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-3, 4, (n, k), generator=generator).float()
    scores[scores == -3] = -torch.inf
    low = torch.randint(-2, 2, (n,), generator=generator).float()
    high = low + torch.randint(0, 2, (n,), generator=generator)
    wanted = [(i, j) for i in range(n) for j in range(k) if float(low[i]) <= float(scores[i, j]) <= float(high[i])]
    for found in (count_scores(scores, low, high), count_scores_torch(scores, low, high)):
        above, row, column = found
        assert above.tolist() == [sum(s > float(high[i]) for s in scores[i].tolist()) for i in range(n)]
        assert list(zip(row.tolist(), column.tolist(), strict=True)) == wanted

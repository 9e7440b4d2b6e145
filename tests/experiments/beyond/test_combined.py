"""Combined ideas: fetched rows against a plain simulation, gains by hand, the explorer, invalid windows."""

from itertools import product

import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st

from experiments.beyond.combined import IDEAS, Config, alone_and_together, fetched, gains, together
from workbench.experiment.config import DataConfig

NODES = 12
READS = st.lists(
    st.lists(st.sets(st.integers(0, NODES - 1), min_size=1, max_size=5), min_size=1, max_size=3), min_size=8
)


def simulated(reads, remote, window, capacity):
    """Rows that cross in the second half of the batches, and the largest window's; one set at a time."""
    asked = [(number, part) for number, parts in enumerate(reads) for part in parts]
    if window > 1:
        asked = [(n, set().union(*(p for b in reads[n : n + window] for p in b))) for n in range(0, len(reads), window)]
    recent, crossing, staged = [], 0, 0
    for number, part in asked:
        wanted = sorted(part & remote)
        staged = max(staged, len(wanted))
        missing = [node for node in wanted if node not in recent]
        crossing += len(missing) * (number >= len(reads) // 2)
        if capacity:
            recent = [n for n in recent if n not in wanted] + [n for n in wanted if n in recent] + missing
            recent = recent[-capacity:]
    return crossing / (len(reads) - len(reads) // 2), capacity + staged * (window > 1)


@given(READS, st.sets(st.integers(0, NODES - 1)), st.sampled_from([1, 2, 4]), st.sampled_from([0, NODES]))
def test_rows_are_those_of_a_plain_simulation(reads, remote, window, capacity):
    reads = reads[: len(reads) // (2 * window) * 2 * window]
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[sorted(remote)] = True
    tensors = [[torch.tensor(sorted(part)) for part in parts] for parts in reads]
    found = fetched(tensors, mask, window=window, capacity=capacity)
    assert (found["fetched_rows"], found["held_rows"]) == simulated(reads, remote, window, capacity)


def table_of(rows_of):
    """A row per combination of ideas, off at 0 and on at 1."""
    on = [dict(zip(IDEAS.values(), bits, strict=True)) for bits in product((0, 1), repeat=len(IDEAS))]
    return pd.DataFrame([{"dataset": "a", "seed": 0, "run": 0, **bits, "fetched_rows": rows_of(bits)} for bits in on])


def test_gains_are_relative_to_no_idea_and_multiply_if_rows_do():
    table = table_of(
        lambda on: 100 * 0.5 ** on["kappa"] * 0.25 ** on["window"] * (0.8 if on["kappa"] and on["window"] else 1)
    )
    found = together(gains(table), ("dependence", "macrobatch")).iloc[0]
    assert (found.alone, found.together) == pytest.approx((8, 10))
    assert found.beyond_product == pytest.approx(0.25)
    assert together(gains(table), ("LABOR", "cache")).iloc[0].beyond_product == pytest.approx(0)


def test_the_explorer_shows_rows_of_the_chosen_ideas():
    table = table_of(lambda on: 100 - 20 * on["kappa"] - 50 * on["window"])
    figure = alone_and_together(table, dataset="a", kappa=1, window=1, labor=0)
    assert dict(zip(figure.data[0].x, figure.data[0].y, strict=True)) == pytest.approx(
        {"none": 100, "dependence": 80, "macrobatch": 50, "product": 40, "together": 30}
    )


def test_windows_that_are_not_whole_are_refused():
    levels = {"kappas": (1, 2), "parts": (1, 2), "cache_shares": (0, 0.1), "placed_shares": (0, 0.1), "runs": 2}
    with pytest.raises(ValueError, match="num_batches is 8; set a multiple of 3"):
        Config(
            dataset=DataConfig(name="x"),
            fanouts=(5,),
            batch_size=4,
            num_ranks=2,
            num_batches=8,
            windows=(1, 3),
            **levels,
        )

"""The cost model of cooperative minibatching: by hand, its limits, and what more bandwidth does."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import random_graph
from workbench.cooperative.cost_model import PeCounts, StageSeconds, StepSeconds, step_seconds
from workbench.core.machine import MACHINES, Machine

# Two layers: 2 seeds, 3 and 7 nodes of the PE; its blocks read 4 and 8 nodes, of which 1 and 5 are of others.
COUNTS = PeCounts(owned=(2, 3, 7), needed=(4, 8), halo=(1, 5), edges=(6, 9))
MACHINE = Machine(gamma=1000, alpha=100, beta=10, flops=50)
SIZES: dict[str, Any] = {"row_bytes": 4, "hidden_bytes": 3, "work_bytes": 2000, "work_flops": 100}


def test_the_stages_by_hand():
    found = step_seconds(COUNTS, MACHINE, miss_rate=0.5, **SIZES)
    ids = 2 * (2 + 3) + 6 + 9  # two offsets per node whose row is sampled, and the sampled edges
    assert found.sampling == StageSeconds(8 * ids / 10, 8 * (1 + 5) / 100)
    assert found.features == StageSeconds(0.5 * 4 * 7 / 10, 4 * 5 / 100)
    assert found.forward_backward == StageSeconds(2000 / 1000 + 100 / 50, 2 * 3 * 1 / 100)
    assert found.total == pytest.approx(8 * ids / 10 + 0.48 + 1.4 + 0.2 + 4 + 0.06)


def test_rows_of_any_width_are_exchanged_and_products_replace_features():
    def priced(*widths: float) -> StepSeconds:
        sizes: dict[str, Any] = SIZES | {"hidden_bytes": widths}
        return step_seconds(COUNTS, MACHINE, **sizes)

    assert priced(3, 0) == step_seconds(COUNTS, MACHINE, **SIZES)
    found = priced(2, 6)
    assert found.features == StageSeconds(4 * 7 / 10, 0)
    assert found.forward_backward.exchange == 2 * (2 * 1 + 6 * 5) / 100
    with pytest.raises(ValueError, match="hidden_bytes has 3 sizes for 2 layers"):
        priced(1, 2, 3)


def test_a_row_has_the_stages_their_exchanges_and_the_total():
    found = step_seconds(COUNTS, MACHINE, **SIZES)
    row = found.row()
    assert row["features_seconds"] == found.features.total and row["features_exchange_seconds"] == 0.2
    assert row["total_seconds"] == row["sampling_seconds"] + row["features_seconds"] + row["forward_backward_seconds"]


def test_independent_minibatching_exchanges_nothing():
    counts = PeCounts.independent((2, 3, 7), (6, 9))
    assert (counts.needed, counts.halo, counts.cross_ratios) == ((3, 7), (0, 0), (0, 0))
    slow = step_seconds(counts, replace(MACHINE, alpha=1e-9), **SIZES)
    assert slow == step_seconds(counts, MACHINE, **SIZES)


def test_the_cross_ratio_is_the_share_of_the_halo():
    assert COUNTS.cross_ratios == (0.25, 0.625)
    assert PeCounts((1, 0), (0,), (0,), (0,)).cross_ratios == (0.0,)


def test_the_mean_is_over_every_count():
    other = PeCounts(owned=(4, 5, 9), needed=(6, 10), halo=(3, 7), edges=(8, 11))
    assert PeCounts.mean([COUNTS, other]) == PeCounts((3, 4, 8), (5, 9), (2, 6), (7, 10))


def test_counts_of_ranks_are_those_of_the_batch_that_one_process_samples():
    graph, owner, seeds, ranks = random_graph(60, 500), torch.arange(60) % 3, torch.arange(0, 60, 4), range(3)
    sampler = wb.NeighborSampler([3, 4])
    options = {"sampler": sampler, "owner": owner, "num_ranks": 3}
    batch = sampler.sample(graph, seeds)
    hops = [set(batch.node_ids[:n].tolist()) for n in (batch.num_seeds, *(b.num_src for b in batch.blocks[::-1]))]
    found = PeCounts.of(wb.cooperative.cooperative_work(wb.cooperative.batches(graph, seeds, **options)))
    for rank, counts in enumerate(found):
        assert counts.owned == tuple(sum(owner[node] == rank for node in hop) for hop in hops)
        for hop, block in enumerate(batch.blocks[::-1]):
            rows = [node for node in hops[hop] if owner[node] == rank]
            edges = [
                (int(batch.node_ids[s]), int(batch.node_ids[d]))
                for s, d in zip(block.indices, block.destinations, strict=True)
                if owner[batch.node_ids[d]] == rank
            ]
            needed = {source for source, _ in edges} | set(rows)
            assert (counts.edges[hop], counts.needed[hop]) == (len(edges), len(needed))
            assert counts.halo[hop] == sum(int(owner[node]) != rank for node in needed)
    alone = PeCounts.of(wb.cooperative.cooperative_work(wb.cooperative.independent_batches(graph, seeds, **options)))
    for rank in ranks:
        mb = sampler.sample(graph, seeds[owner[seeds] == rank])
        sizes = (mb.num_seeds, *(block.num_src for block in mb.blocks[::-1]))
        assert alone[rank] == PeCounts.independent(sizes, [block.num_edges for block in mb.blocks[::-1]])


def test_scaled_counts_take_as_many_times_as_long():
    sizes = {name: 10 * size if name.startswith("work") else size for name, size in SIZES.items()}
    once, tenfold = step_seconds(COUNTS, MACHINE, **SIZES), step_seconds(COUNTS.scaled(10), MACHINE, **sizes)
    assert tenfold.row() == pytest.approx({name: 10 * seconds for name, seconds in once.row().items()})


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4),
    st.sampled_from([field.name for field in fields(Machine)]),
    st.floats(1, 1e6),
    st.floats(0, 1),
)
def test_more_speed_is_never_slower(speeds, name, factor, miss_rate):
    machine = Machine(*speeds)
    faster = replace(machine, **{name: factor * getattr(machine, name)})
    before, after = (step_seconds(COUNTS, m, miss_rate=miss_rate, **SIZES).row() for m in (machine, faster))
    assert all(after[stage] <= before[stage] for stage in before)


@given(st.floats(0, 1), st.floats(0, 1))
def test_fewer_misses_are_never_slower_and_cost_features_alone(one, other):
    fewer, more = (step_seconds(COUNTS, MACHINE, miss_rate=rate, **SIZES) for rate in sorted((one, other)))
    assert fewer.features.local <= more.features.local
    assert replace(fewer, features=more.features) == more and fewer.features.exchange == more.features.exchange


def test_without_misses_features_cost_their_exchange_and_without_a_cache_all_rows():
    none, full = (step_seconds(COUNTS, MACHINE, miss_rate=rate, **SIZES).features for rate in (0, 1))
    assert none == StageSeconds(0, 0.2) and full == StageSeconds(4 * 7 / 10, 0.2)


def test_infinite_speeds_cost_nothing():
    inf = float("inf")
    assert step_seconds(COUNTS, Machine(inf, inf, inf), **SIZES).total == 0


def test_arithmetic_is_free_unless_a_machine_has_a_speed_for_it():
    for machine in MACHINES.values():
        found = step_seconds(COUNTS, machine, **SIZES).forward_backward
        assert found.local == 2000 / machine.gamma


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"owned": (2, 3)}, "owned has 2 counts and .*'needed': 2.*one more in owned"),
        ({"edges": (6,)}, "owned has 3 counts and .*'edges': 1"),
        ({"edges": (6, -9)}, "a count is -9; counts are at least 0"),
        ({"halo": (1, 9)}, "a halo of 9 nodes is larger than the 8 needed"),
        ({"owned": (2,), "needed": (), "halo": (), "edges": ()}, "owned has 1 counts"),
    ],
)
def test_counts_that_do_not_match_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        replace(COUNTS, **changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"miss_rate": 1.1}, "miss_rate is 1.1; it must be from 0"),
        ({"miss_rate": float("nan")}, "miss_rate is nan"),
        ({"row_bytes": -1}, "row_bytes is -1; it must be finite and at least 0"),
        ({"work_bytes": float("inf")}, "work_bytes is inf"),
    ],
)
def test_sizes_out_of_range_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        step_seconds(COUNTS, MACHINE, **(SIZES | changed))


def test_a_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no counts to average"):
        PeCounts.mean([])

"""Plans of macrobatches: their counts are those of real reads, and they never move more bytes than separate batches."""

import dataclasses
import random
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.strategies import random_graph
from workbench.macrobatch.plan import WindowUnions, _plans, choose_macrobatch

NODES, WIDTH = 60, 5
GRAPH = random_graph(NODES, 300, seed=2)
X = torch.arange(NODES * WIDTH, dtype=torch.float32).view(NODES, WIDTH)
ROW = X[0].nbytes
SAMPLER = wb.NeighborSampler([4, 3], seed=1)
SEEDS = torch.arange(44)
OWNER = torch.arange(NODES) * 7 % 11 % 3


def epoch(sampler: wb.Sampler = SAMPLER, seeds: Tensor = SEEDS) -> list[tuple[int, wb.MiniBatch]]:
    return list(wb.batches(GRAPH, seeds, sampler=sampler, batch_size=6, epoch=0))


def test_distinct_rows_of_every_window() -> None:
    reads = [mb.node_ids for _, mb in epoch()] + [torch.empty(0, dtype=torch.int64)]
    unions = WindowUnions.of(reads)
    for size in range(1, len(reads) + 2):
        expected = [len(torch.cat(reads[at : at + size]).unique()) for at in range(0, len(reads), size)]
        assert unions.counts(size).tolist() == expected
    assert unions.counts(4, num_batches=15).tolist() == [*unions.counts(4).tolist(), 0]
    assert WindowUnions.of([]).counts(2, num_batches=3).tolist() == [0, 0]


@pytest.mark.parametrize("aggregates", [False, True])
@pytest.mark.parametrize(("size", "group_size"), [(1, 1), (4, 2), (6, 3), (8, 8)])
def test_predicted_rows_are_those_that_stores_count(size: int, group_size: int, aggregates: bool) -> None:
    batches, traffic = epoch(), wb.Traffic()
    store: Any = wb.MemoryRows(X, traffic=traffic)
    store = wb.training.AggregatedRows(store, wb.MemoryRows(X, traffic=traffic)) if aggregates else store
    sampler = wb.macrobatch.WithoutInputLayer(SAMPLER) if aggregates else SAMPLER
    for window in wb.windows(epoch(sampler), size=size):
        for group in wb.windows(window, size=group_size):
            wb.stage(store, group)
    plans = {(p.size, p.group_size): p for p in all_plans([wb.macrobatch.count_macrobatches(batches)], aggregates)}
    plan = plans[size, group_size]
    row = traffic.row()
    assert (plan.fetched_rows, plan.moved_bytes) == (row["host_rows"], row["host_rows_bytes"])


def all_plans(
    ranks: list[wb.macrobatch.MacrobatchCounts], use: bool, row_bytes: int = ROW
) -> list[wb.macrobatch.MacrobatchPlan]:
    return list(_plans(ranks, use, row_bytes, 0, 0))


def by_hand(
    ranks: list[list[wb.MiniBatch]], owner: Tensor | None, use: bool, size: int, group: int, row_bytes: int = ROW
) -> tuple[int, int]:
    """Bytes that are moved, and held by the fullest rank, from the batches themselves."""
    moved = held = 0
    total = max(map(len, ranks))
    for rank, batches in enumerate(ranks):
        foreign = torch.ones(NODES, dtype=torch.bool) if owner is None else owner != rank
        kept = [mb.blocks[use:] for mb in batches]
        reads = [mb.node_ids[: mb.blocks[0].num_dst] if use else mb.node_ids for mb in batches]
        for blocks, mb in zip(kept, batches, strict=True):
            for block in blocks if owner is not None else ():
                asked = foreign[mb.node_ids[: block.num_dst]]
                moved += 12 * int(asked.sum()) + 4 * int(block.in_degrees()[asked].sum())
        largest, groups = [], list[list[int]]()
        for first in range(0, total, size):
            window = range(first, min(first + size, total))
            bytes_of_batches = sum(
                8 * len(reads[i]) + sum(b.nbytes for b in kept[i]) for i in window if i < len(batches)
            )
            largest.append(bytes_of_batches)
            groups.append([])
            for at in range(first, window.stop, group):
                ids = [reads[i] for i in range(at, min(at + group, window.stop)) if i < len(batches)]
                union = torch.cat([torch.empty(0, dtype=torch.int64), *ids]).unique()
                groups[-1].append(len(union) * row_bytes * (1 + use))
                moved += int(foreign[union].sum()) * (1 + use) * (row_bytes + 8 * (owner is not None))
        before = groups[-1][-1]  # of the epoch before
        for batches_bytes, staged in zip(largest, groups, strict=True):
            for rows in staged:
                held, before = max(held, batches_bytes + rows + before), rows
    return moved, held


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_a_loop_holds_what_its_plan_says(share: float) -> None:
    x = torch.randn(NODES, 4096)
    every = wb.macrobatch.plan_macrobatch(epoch(), row_bytes=x[0].nbytes, memory=10**9, aggregates=False)
    least = min(plan.held_bytes for plan in all_plans([wb.macrobatch.count_macrobatches(epoch())], False, x[0].nbytes))
    memory = round(least + share * (every.held_bytes - least))
    plan = wb.macrobatch.plan_macrobatch(epoch(), row_bytes=x[0].nbytes, memory=memory, aggregates=False)
    sizes: dict[str, Any] = {"batch_size": 6, "size": plan.size, "group_size": plan.group_size}
    loader = wb.macrobatch.batches(GRAPH, SEEDS, sampler=SAMPLER, store=x, **sizes)

    def loop() -> None:
        for _ in range(2):
            for _, mb, rows in loader.epoch(0):  # whose batches the plan has counted
                rows.read(mb.node_ids[:1])

    assert 0.95 * plan.held_bytes < wb.measure_peak(loop) < 1.03 * plan.held_bytes <= 1.03 * memory


@pytest.mark.parametrize("owner", [None, OWNER], ids=["one process", "three ranks"])
def test_every_candidate_is_counted_exactly(owner: Tensor | None) -> None:
    shares = (
        [torch.arange(44)] if owner is None else [(owner == rank).nonzero()[:, 0][: 21 - 7 * rank] for rank in range(3)]
    )
    batches = [[mb for _, mb in epoch(seeds=share)] for share in shares]
    counts = [wb.macrobatch.count_macrobatches(mbs, owner=owner, rank=rank) for rank, mbs in enumerate(batches)]
    assert len({len(mbs) for mbs in batches}) == len(shares), "ranks with different numbers of batches"
    for use in (False, True):
        for plan in all_plans(counts, use):
            expected = by_hand(batches, owner, use, plan.size, plan.group_size)
            assert (plan.moved_bytes, plan.held_bytes) == expected, plan


def test_topology_bytes_are_those_of_relays() -> None:
    shares = [OWNER.eq(rank).nonzero()[:, 0] for rank in range(3)]
    deep = wb.NeighborSampler([4, 3, 2], seed=1, edge_ids=True)
    batches = [epoch(deep, share) for share in shares]
    counts = [wb.macrobatch.count_macrobatches(mbs, owner=OWNER, rank=rank) for rank, mbs in enumerate(batches)]
    for sampler, reads in ((deep, "sampled"), (wb.macrobatch.WithoutInputLayer(deep), "aggregated")):
        links = [wb.Traffic() for _ in range(3)]
        seeds, steps = [[mb.seeds for _, mb in mbs] for mbs in batches], [[step for step, _ in mbs] for mbs in batches]
        options = {"sampler": sampler, "owner": OWNER, "num_ranks": 3, "steps": steps}
        wb.macrobatch.relay_windows(GRAPH, seeds, traffic=links, **options)
        counted = sum(t.row()["rank_ids_bytes"] + t.row()["rank_edges_bytes"] for t in links)
        assert counted == sum(int(getattr(one, reads).topology_bytes.sum()) for one in counts) > 0


GRAPHS = [random_graph(NODES, edges, seed=edges) for edges in (30, 150, 600)]


def random_case(draw: random.Random) -> tuple[list[list[wb.MiniBatch]], Tensor | None]:
    """The batches of each rank, and the owners of the nodes."""
    num_ranks = draw.choice([1, 1, 2, 3])
    owner = None if num_ranks == 1 else torch.tensor([draw.randrange(num_ranks) for _ in range(NODES)])
    fanouts = [draw.choice([1, 2, 4, -1]) for _ in range(draw.choice([1, 2, 3]))]
    graph, options = draw.choice(GRAPHS), {"seed": draw.randrange(99), "replace": draw.random() < 0.5}
    sampler = wb.NeighborSampler(fanouts, **options)
    steps = [range(draw.randrange(1, 7)) for _ in range(num_ranks)]
    seeds = partial(draw.sample, range(NODES), 4)
    return [[sampler.sample(graph, torch.tensor(seeds()), step=step) for step in some] for some in steps], owner


def planned(counts: Any, **options: Any) -> tuple[wb.macrobatch.MacrobatchPlan | None, str]:
    try:
        return wb.macrobatch.plan_macrobatch(counts, **options), ""
    except wb.CapacityError as error:
        return None, str(error)


@pytest.mark.slow
def test_no_random_case_moves_more_bytes_than_separate_batches() -> None:
    draw, chosen, refused = random.Random(0), [], 0
    while len(chosen) < 320:
        row_bytes, capacity = draw.choice([4, 40, 400]), int(10 ** draw.uniform(2, 6))
        ranks, owner = random_case(draw)
        counts = [wb.macrobatch.count_macrobatches(mbs, owner=owner, rank=rank) for rank, mbs in enumerate(ranks)]
        plan, text = planned(counts, row_bytes=row_bytes, memory=capacity)
        without, least = by_hand(ranks, owner, False, 1, 1, row_bytes)
        if plan is None:
            refused += 1
            assert least > capacity and "the smallest macrobatch (size " in text
            continue
        moved, held = by_hand(ranks, owner, plan.use_aggregates, plan.size, plan.group_size, row_bytes)
        assert (moved, held, without) == (plan.moved_bytes, plan.held_bytes, plan.unplanned_bytes)
        assert moved <= without and held <= capacity and plan.group_size <= plan.size
        chosen.append(plan)
    assert refused > 30 and len({plan.use_aggregates for plan in chosen}) == 2
    assert len({plan.group_size for plan in chosen}) > 3 and any(plan.size > plan.group_size for plan in chosen)
    assert sum(plan.moved_bytes < plan.unplanned_bytes for plan in chosen) > 100


def test_it_is_the_best_of_all_that_fit() -> None:
    draw = random.Random(1)
    for _ in range(20):
        ranks, owner = random_case(draw)
        counts = [wb.macrobatch.count_macrobatches(mbs, owner=owner, rank=rank) for rank, mbs in enumerate(ranks)]
        found = [*all_plans(counts, False), *all_plans(counts, True)]
        for capacity in (sorted(plan.held_bytes for plan in found)[len(found) // 2], 10**7):
            plan, _ = planned(counts, row_bytes=ROW, memory=capacity)
            allowed = [p for p in found if not p.use_aggregates or p.moved_bytes <= found[0].moved_bytes]
            fitting = [_rank(p) for p in allowed if p.held_bytes <= capacity]
            assert (plan is None and not fitting) or (plan is not None and _rank(plan) == min(fitting))


def _rank(plan: Any) -> tuple[int, bool, int, int]:
    """Fewest bytes moved; of equals without aggregates, then with the fewest windows, then with the least held."""
    return plan.moved_bytes, plan.use_aggregates, -plan.size, plan.held_bytes


def test_the_caller_may_decide_on_aggregates_and_price_them() -> None:
    counts = wb.macrobatch.count_macrobatches(epoch())
    options: dict[str, Any] = {"row_bytes": ROW, "memory": "1MiB"}
    forced = [wb.macrobatch.plan_macrobatch(counts, **options, aggregates=use) for use in (False, True)]
    assert [plan.use_aggregates for plan in forced] == [False, True]
    free = wb.macrobatch.plan_macrobatch(epoch(), **options)
    assert free == min(forced, key=lambda plan: plan.moved_bytes)
    with pytest.raises(wb.CapacityError, match="with aggregates"):
        wb.macrobatch.plan_macrobatch(counts, **options, aggregates=True, aggregates_bytes="1MiB")
    with pytest.raises(dataclasses.FrozenInstanceError):
        free.use_aggregates = not free.use_aggregates  # pyright: ignore[reportAttributeAccessIssue]


def test_equations_4_and_5() -> None:
    (_, mb), *_ = epoch()
    hop = wb.macrobatch.InputHop.of(mb)
    block = mb.blocks[0]
    assert hop == (block.num_dst, block.num_src - block.num_dst, block.num_edges)
    S, v, e = 100, 8, 12
    assert hop.sampled_bytes(row_bytes=S, edge_bytes=e) == (hop[0] + hop[1]) * S + v * hop[0] + v * hop[1] + e * hop[2]
    assert hop.aggregated_bytes(row_bytes=S) == hop[0] * S + hop[0] * S + v * hop[0]
    for expanded, new in pairwise(range(1, 9)):
        some = wb.macrobatch.InputHop(expanded * new % 7, new, new)
        pays = some.new * S + v * some.new + e * some.edges > some.expanded * S
        assert some.aggregates_pay(row_bytes=S, edge_bytes=e) == pays


def test_bad_arguments_are_refused() -> None:
    batches = epoch()
    options: dict[str, Any] = {"row_bytes": ROW, "memory": 10**6}
    wrong: Any = 3
    short = [wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([2])).sample(GRAPH, torch.arange(4))]
    for error, text, call in (
        (ValueError, "row_bytes is 0", lambda: wb.macrobatch.plan_macrobatch(batches, row_bytes=0, memory=9)),
        (
            ValueError,
            "memory: 'much' is not a number",
            lambda: wb.macrobatch.plan_macrobatch(batches, row_bytes=1, memory="much"),
        ),
        (ValueError, "no batches were counted", lambda: wb.macrobatch.plan_macrobatch([], **options)),
        (ValueError, "sample all layers of the model", lambda: wb.macrobatch.count_macrobatches(short)),
        (
            TypeError,
            "pass batches, or what workbench.macrobatch.count_macrobatches returns",
            lambda: wb.macrobatch.plan_macrobatch(wrong, **options),
        ),
        (TypeError, "an item of batches is an int", lambda: wb.macrobatch.count_macrobatches([wrong])),
        (IndexError, "node_ids contains", lambda: wb.macrobatch.count_macrobatches(batches, owner=OWNER[:5])),
        (
            wb.CapacityError,
            r"memory is 10 \(10 B\), but the smallest macrobatch \(size 1, group_size 1",
            lambda: wb.macrobatch.plan_macrobatch(batches, row_bytes=4, memory=10),
        ),
    ):
        with pytest.raises(error, match=text):
            call()
    empty = choose_macrobatch(
        [
            wb.macrobatch.count_macrobatches([], owner=OWNER),
            wb.macrobatch.count_macrobatches(batches, owner=OWNER, rank=1),
        ],
        ROW,
        10**6,
    )
    assert empty.held_bytes > 0 and np.isscalar(empty.held_bytes)

"""Orders of partitions and edge buckets through a buffer: oracles, and what holds for all."""

import re
from itertools import combinations, pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from workbench.outofcore.bucket_order import balanced_pairs, beta_states, fewest_swaps, num_beta_swaps

ORDERS = {
    "BETA": lambda p, c, groups, **_: wb.outofcore.beta_order(p, c),
    "BETA, reshuffled": lambda p, c, groups, seed=0: wb.outofcore.beta_order(p, c, seed=seed, reshuffle=True),
    "COMET": wb.outofcore.comet_order,
    "COMET, reshuffled": lambda *sizes, seed=0: wb.outofcore.comet_order(*sizes, seed=seed, reshuffle=True),
    "balanced": wb.outofcore.balanced_order,
}


@st.composite
def settings_of_groups(draw):
    groups, size = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    return groups * size, 2 * size, groups


def trained(order: wb.outofcore.BucketOrder) -> list[tuple[int, int]]:
    return [tuple(bucket) for state in range(order.num_states) for bucket in order.buckets(state).tolist()]


@pytest.mark.parametrize("method", ORDERS)
@given(settings_of_groups(), st.integers(0, 3))
def test_every_bucket_is_trained_once_while_both_partitions_are_in_the_buffer(method, setting, seed):
    p, c, groups = setting
    order = ORDERS[method](p, c, groups, seed=seed)
    assert sorted(trained(order)) == [(i, j) for i in range(p) for j in range(p)]
    for state, held in enumerate(order.states):
        assert len(held.unique()) == c
        assert torch.isin(order.buckets(state), held).all()


@pytest.mark.parametrize("method", ORDERS)
@given(settings_of_groups())
def test_loads_are_the_partitions_that_the_state_before_lacked(method, setting):
    order = ORDERS[method](*setting)
    loads = [set(order.loaded(state).tolist()) for state in range(order.num_states)]
    held = set()
    for state, new in zip(order.states.tolist(), loads, strict=True):
        assert new == set(state) - held
        held = set(state)
    assert order.num_loads == sum(map(len, loads))


@given(st.integers(1, 25), st.data())
def test_swaps_of_beta(p, data):
    c = data.draw(st.integers(min(2, p), p))
    states = beta_states(p, c)
    assert {pair for state in states for pair in combinations(sorted(state), 2)} == set(combinations(range(p), 2))
    assert all(len(set(b) - set(a)) == 1 for a, b in pairwise(states))
    simulated = sum(max(0, p - c - i * (c - 1)) for i in range(p)) + (p - c) if p > c else 0  # of Marius' simulator
    assert len(states) - 1 == num_beta_swaps(p, c) == simulated >= fewest_swaps(p, c)
    if c == 2:
        assert len(states) - 1 == fewest_swaps(p, c) == (p - 2) * (p + 1) // 2


@given(st.integers(1, 25), st.data())
def test_beta_trains_a_bucket_in_the_first_state_that_holds_it(p, data):
    c = data.draw(st.integers(min(2, p), p))
    order = wb.outofcore.beta_order(p, c)
    first = {}
    for number, held in enumerate(order.states.tolist()):
        for i in held:
            for j in held:
                first.setdefault((i, j), number)
    assert {(i, j): int(order.state_of_bucket[i, j]) for i, j in first} == first


def test_beta_permutes_the_partitions_of_every_epoch():
    plain, first, second = (
        wb.outofcore.beta_order(8, 3),
        *(wb.outofcore.beta_order(8, 3, seed=0, epoch=epoch) for epoch in (0, 1)),
    )
    assert not torch.equal(first.states, second.states) and not torch.equal(first.states, plain.states)
    assert torch.equal(first.states, wb.outofcore.beta_order(8, 3, seed=0).states)
    for order in (first, second):
        assert order.num_swaps == plain.num_swaps
        assert sorted(order.state_of_bucket.flatten().tolist()) == sorted(plain.state_of_bucket.flatten().tolist())
        for state, held in enumerate(order.states):
            trained = (order.state_of_bucket == state).nonzero()
            assert torch.isin(trained, held).all()


@given(st.integers(2, 12), st.data(), st.integers(0, 3))
def test_reshuffled_cycles_swap_as_often_and_are_others_in_every_epoch(p, data, seed):
    c = data.draw(st.integers(2, p))
    plain, shuffled = (wb.outofcore.beta_order(p, c, seed=seed, reshuffle=given) for given in (False, True))
    assert shuffled.num_swaps == plain.num_swaps
    assert all(len(shuffled.loaded(state)) == 1 for state in range(1, shuffled.num_states))
    assert torch.equal(shuffled.states, wb.outofcore.beta_order(p, c, seed=seed, reshuffle=True).states)


@pytest.mark.parametrize("order", [wb.outofcore.beta_order, wb.outofcore.comet_order])
@pytest.mark.parametrize("reshuffle", [False, True])
def test_every_epoch_has_an_order_of_its_own(order: Any, reshuffle: bool) -> None:
    """Of five epochs no two have the same states, which by chance they would once in 12! times."""
    states = [order(12, 4, seed=0, epoch=epoch, reshuffle=reshuffle).states for epoch in range(5)]
    assert not any(torch.equal(one, other) for one, other in combinations(states, 2))


def test_only_reshuffled_epochs_are_more_than_renamed_partitions():
    """How many states hold a partition: BETA's epochs have the same numbers, reshuffled ones others."""
    visits = {
        reshuffle: {
            tuple(
                wb.outofcore.beta_order(12, 4, seed=0, epoch=e, reshuffle=reshuffle)
                .states.flatten()
                .bincount()
                .sort()
                .values.tolist()
            )
            for e in range(20)
        }
        for reshuffle in (False, True)
    }
    assert len(visits[False]) == 1 < len(visits[True])
    with pytest.raises(ValueError, match="reshuffle is True, but seed is None"):
        wb.outofcore.beta_order(12, 4, reshuffle=True)


@pytest.mark.parametrize("groups", [*range(1, 34), 64])
def test_balanced_pairs_share_a_group_and_keep_pace(groups):
    pairs, counts = balanced_pairs(groups), [0] * groups
    assert sorted(pairs) == (list(combinations(range(groups), 2)) or [(0,)])
    assert all(set(a) & set(b) for a, b in pairwise(pairs))
    for pair in pairs:
        for group in pair:
            counts[group] += 1
        assert max(counts) - min(counts) <= (2 if groups % 2 or groups <= 8 else 3)


@pytest.mark.parametrize(("p", "c", "groups", "most"), [(28, 8, 7, 0.40), (7, 2, 7, 0.40), (32, 8, 8, 0.35)])
def test_balanced_orders_have_little_bias_at_the_loads_of_comet(p, c, groups, most):
    for seed in range(5):
        order, comet = (
            wb.outofcore.balanced_order(p, c, groups, seed=seed),
            wb.outofcore.comet_order(p, c, groups, seed=seed),
        )
        assert wb.outofcore.partition_bias(order) <= most < 0.84 <= wb.outofcore.partition_bias(comet)
        assert order.num_loads == comet.num_loads


def brute_force_bias(order, edges, count):
    """Shares of trained edges, of those at each of `count` ends, recounted after every state."""
    worst = 0.0
    state = [int(order.state_of_bucket[i, j]) for i, j, *_ in edges]
    at = [{a, b} for *_, a, b in edges]
    total = [sum(v in ends for ends in at) for v in range(count)]
    for now in range(order.num_states):
        done = [sum(v in ends for ends, s in zip(at, state, strict=True) if s <= now) for v in range(count)]
        shares = [d / t for d, t in zip(done, total, strict=True) if t]
        worst = max(worst, max(shares) - min(shares))
    return worst


def test_bias_equals_a_recount():
    order = wb.outofcore.comet_order(6, 2, 6, seed=3)
    buckets = [(i, j, i, j) for i in range(6) for j in range(6)]
    assert wb.outofcore.partition_bias(order) == pytest.approx(brute_force_bias(order, buckets, 6))
    edges = torch.randint(0, 30, (2, 80), generator=torch.Generator().manual_seed(0))
    graph, partition = wb.Graph.from_edges(*edges, num_nodes=30), torch.arange(30) % 6
    named = [(int(partition[a]), int(partition[b]), int(a), int(b)) for a, b in edges.T]
    assert wb.outofcore.node_bias(order, graph, partition) == pytest.approx(brute_force_bias(order, named, 30))
    counts = torch.zeros(6, 6, dtype=torch.int64).index_put_(tuple(partition[edges]), torch.tensor(1), accumulate=True)
    by_partition = [(int(i), int(j), int(i), int(j)) for i, j in partition[edges].T]
    expected = brute_force_bias(order, by_partition, 6)
    assert wb.outofcore.partition_bias(order, bucket_edges=counts) == pytest.approx(expected)


def test_epochs_and_seeds_differ_and_repeat():
    orders = [
        wb.outofcore.comet_order(8, 4, 4, seed=s, epoch=e).state_of_bucket for s, e in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    assert torch.equal(orders[0], orders[3])
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_comet_draws_states_uniformly():
    """A group of one partition is in three states of four groups: its inner bucket falls into each equally often."""
    drawn = [wb.outofcore.comet_order(4, 2, seed=seed) for seed in range(900)]
    numbers = []
    for order in drawn:
        held = (order.states == 0).any(1).nonzero()[:, 0].tolist()
        numbers.append((len(held), held.index(int(order.state_of_bucket[0, 0]))))
    for visits in {count for count, _ in numbers}:
        found = [number for count, number in numbers if count == visits]
        expected = len(found) / visits
        deviations = [(found.count(number) - expected) ** 2 / expected for number in range(visits)]
        assert sum(deviations) < 25  # chi², at most 3 degrees of freedom: 1e-5


@given(st.integers(1, 30), st.data())
def test_node_orders(p, data):
    c = data.draw(st.integers(min(2, p), p))
    train = data.draw(st.integers(1, p))
    order = wb.outofcore.node_order(p, c, train, seed=data.draw(st.integers(0, 3)))
    assert order.num_loads == c + max(0, train - c)
    for partition in range(train):
        held = (order.states == partition).any(1).nonzero()[:, 0].tolist()
        assert held == list(range(int(order.first[partition]), int(order.last[partition]) + 1))
    if train <= c:
        assert torch.equal(order.states[0, :train], torch.arange(train))
        assert len(order.states.unique()) == c


def test_nodes_are_trained_while_their_partition_is_in_the_buffer():
    order, ids = wb.outofcore.node_order(10, 3, 8, seed=1), torch.arange(4000)
    state = order.states_of(ids, ids % 8, seed=1)
    assert (order.states[state] == (ids % 8)[:, None]).any(1).all()
    longest = int((order.last - order.first).argmax())
    counts = state[ids % 8 == longest].bincount(minlength=order.num_states)
    lo, hi = int(order.first[longest]), int(order.last[longest])
    assert counts[lo : hi + 1].min() > 0.6 * counts[lo : hi + 1].float().mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wb.outofcore.beta_order(8, 1), "capacity.*1.*2"),
        (lambda: wb.outofcore.beta_order(8, 9), "capacity.*9.*8"),
        (lambda: wb.outofcore.comet_order(32, 8, 7), "32 partitions.*7 groups.*28 or 35"),
        (lambda: wb.outofcore.comet_order(32, 8, 4), "holds 1 of 4 groups of 8.*num_groups to 8"),
        (lambda: wb.outofcore.balanced_order(32, 16, 8), "4 of 8 groups.*num_groups to 4"),
        (lambda: wb.outofcore.node_order(8, 4, 9), "num_train_partitions.*9.*8"),
        (
            lambda: wb.outofcore.partition_bias(wb.outofcore.beta_order(3, 2), bucket_edges=torch.ones(2, 3)),
            r"\[2, 3\].*\[3, 3\]",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def refusal(order: Any, *sizes: Any) -> str:
    try:
        order(*sizes)
    except ValueError as error:
        return str(error)
    return ""


def test_the_remedies_that_refusals_name_are_accepted():
    balanced, comet = wb.outofcore.balanced_order, wb.outofcore.comet_order
    three, too_few = 0, 0
    for p in range(2, 17):
        divisors = [groups for groups in range(1, p + 1) if p % groups == 0]
        for c, groups in product(range(2, p + 1), [None, *divisors]):
            twos = [fitting for fitting in divisors if c * fitting // p == 2]
            if match := re.search(
                r"takes two: set (?:capacity to (\d+) and )?num_groups to (\d+)", refusal(balanced, p, c, groups)
            ):
                three += 1
                capacity, num_groups = int(match[1] or c), int(match[2])
                assert balanced(p, capacity, num_groups).capacity == 2 * p // num_groups <= capacity <= c
                assert num_groups == twos[0] if twos else capacity < c
            if match := re.search(r"set capacity to (\d+), or num_groups to (\d+)", refusal(comet, p, c, groups)):
                too_few += 1
                assert balanced(p, int(match[1]), groups).capacity == comet(p, int(match[1]), groups).capacity > c
                assert comet(p, c, int(match[2])).capacity <= c
    assert three > 50 and too_few > 50
    with pytest.raises(ValueError, match="set capacity to 2 and num_groups to 6, or use comet_order"):
        balanced(6, 3)


def test_the_whole_graph_in_the_buffer_is_one_state():
    for order in (wb.outofcore.beta_order(4, 4), wb.outofcore.comet_order(4, 4), wb.outofcore.balanced_order(4, 4)):
        assert (order.num_states, order.num_swaps, wb.outofcore.partition_bias(order)) == (1, 0, 0.0)


def test_bias_over_nodes_with_many_edges_leaves_the_others_out():
    src, dst = torch.tensor([0, 0, 0, 0, 1, 2]), torch.tensor([1, 2, 3, 4, 2, 1])
    graph = wb.Graph.from_edges(src, dst, num_nodes=5)
    order, partition = wb.outofcore.beta_order(4, 2), torch.tensor([0, 1, 1, 2, 3])
    assert wb.outofcore.node_bias(order, graph, partition) == 1.0, (
        "node 4 has one edge, trained in the last state of node 0"
    )
    # After state 0 node 0 has two of four edges trained, nodes 1 and 2 all three.
    assert wb.outofcore.node_bias(order, graph, partition, min_edges=3) == 0.5
    assert (
        wb.outofcore.node_bias(order, graph, partition, min_edges=4)
        == wb.outofcore.node_bias(order, graph, partition, min_edges=9)
        == 0.0
    )
    with pytest.raises(ValueError, match="min_edges is 0"):
        wb.outofcore.node_bias(order, graph, partition, min_edges=0)

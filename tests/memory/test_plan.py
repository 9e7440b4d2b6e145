"""`plan_micro_batches` against brute force with a toy estimator, and against measured peaks."""

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.memory.counting import FIXED, alone, batch, check, count, refusal, refuse
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import estimator_for, marginal_costs
from workbench.memory.plan import plan_micro_batches, plan_with
from workbench.memory.training_setup import TrainingSetup
from workbench.partition.batch import partition_batch
from workbench.partition.batch.partitioner import PreparedPartition
from workbench.training.profile import profile_epoch


@given(
    minibatches(max_nodes=12),
    st.integers(FIXED, 8 * FIXED),
    st.sampled_from(("range", "random")),
    st.sampled_from(("even", "split")),
    st.sampled_from((0.0, 0.02, 0.3)),
)
def test_plans_fit_or_no_number_of_parts_does(mb, capacity, method, strategy, margin):
    whole = count(mb).peak_bytes
    try:
        made = plan_with(count, mb, memory=capacity, method=method, strategy=strategy, margin=margin)
    except CapacityError:
        for num_parts in range(1, mb.num_seeds + 1):
            parts = mb.split(partition_batch(mb, num_parts, method=method))
            assert max(count(m, accumulating=i > 0).peak_bytes for i, m in enumerate(parts)) * (1 + margin) > capacity
        return
    check(made, mb, margin)
    if mb.num_seeds and whole * (1 + margin) <= capacity:
        assert made.num_parts == 1 and torch.equal(made.assignment, torch.zeros(mb.num_seeds, dtype=torch.int64))
    if strategy == "even" and mb.num_seeds:
        assert torch.equal(made.assignment, partition_batch(mb, made.num_parts, method=method))
        assert (made.num_parts, made.peak_bytes) in made.tried
        assert made.num_parts == min(k for k, peak in made.tried if peak * (1 + margin) <= capacity)


@pytest.mark.parametrize("method", ["range", "random", "metis", "reg", "auto"])
@pytest.mark.parametrize("share", [0.5, 0.3, 0.2])
def test_the_number_of_parts_is_near_the_smallest(method, share):
    mb = batch()
    least = max(alone(mb))
    capacity = int(least + share * (count(mb).peak_bytes - least))
    made = plan_with(count, mb, memory=capacity, method=method, margin=0.0, seed=3)
    check(made, mb, 0.0)

    costs = marginal_costs(count, mb)

    def fits(num_parts: int) -> bool:
        parts = mb.split(partition_batch(mb, num_parts, method=method, seed=3, costs=costs))
        return max(count(m, accumulating=i > 0).peak_bytes for i, m in enumerate(parts)) <= capacity

    smallest = next(k for k in range(1, mb.num_seeds + 1) if fits(k))
    assert smallest <= made.num_parts <= smallest + max(1, 0.08 * smallest)
    assert len({k for k, _ in made.tried}) == len(made.tried) <= 15


def test_nothing_is_partitioned_if_the_batch_fits_or_no_partition_can(monkeypatch):
    monkeypatch.setattr(PreparedPartition, "cut", refuse)
    mb, one = batch(), batch(num_seeds=1)
    need = count(mb).peak_bytes
    made = plan_with(count, mb, memory=need, margin=0.0)
    assert made.num_parts == 1 and made.micro[0] is mb and made.tried == ((1, need),)
    assert made.redundancy.ratio == 1 and set(made.seconds) == {"estimate", "partition", "split"}
    assert plan_with(count, one, memory=need).num_parts == 1
    for capacity in (FIXED, FIXED + 10, max(alone(mb)) - 1):
        with pytest.raises(CapacityError):
            plan_with(count, mb, memory=capacity, margin=0.0)
    with pytest.raises(CapacityError, match=f"seed {int(one.seeds[0])} alone needs"):
        plan_with(count, one, memory=count(one).peak_bytes - 1, margin=0.0)


@pytest.mark.parametrize("strategy", ["even", "split"])
@pytest.mark.parametrize("method", ["auto", "cluster"])
def test_clusters(method, strategy):
    mb = batch()
    fine, coarse = torch.arange(400) % 100, torch.arange(400) % 3
    capacity = FIXED + (count(mb).peak_bytes - FIXED) // 2
    made = plan_with(count, mb, memory=capacity, method=method, node_parts=fine, strategy=strategy)
    check(made, mb, 0.02)
    labels = fine[mb.seeds]
    for cluster in labels.unique():
        assert len(made.assignment[labels == cluster].unique()) == 1
    with pytest.raises(CapacityError, match=r"one for each cluster of node_parts .* more clusters"):
        plan_with(count, mb, memory=max(alone(mb)) + 500, method=method, node_parts=coarse, strategy=strategy)
    with pytest.raises(IndexError, match="node_parts has 3 labels"):
        plan_with(count, mb, memory=capacity, method=method, node_parts=coarse[:3], strategy=strategy)


def test_an_empty_batch():
    made = plan_with(count, batch(num_seeds=0), memory=1)
    assert made.num_parts == made.peak_bytes == 0 and made.micro == made.estimates == made.tried == ()
    assert made.assignment.shape == (0,) and "0 parts" in repr(made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 0}, "memory is 0"),
        ({"memory": -5}, "memory is -5"),
        ({"memory": 1.5}, "whole number"),
        ({"memory": "much"}, "memory: 'much' is not a number of bytes; write 8GiB"),
        ({"seed": 1.5}, "seed is 1.5; it must be a whole number"),
        ({"method": "best"}, "method 'best' is not known; choose from auto"),
        ({"strategy": "odd"}, "strategy 'odd' is not known; choose from even, split"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"margin": float("nan")}, "margin is nan"),
        ({"margin": 5}, "margin is 5; it must be a fraction between 0 and 1, such as 0.02 for 2 %"),
        ({"max_parts": 0}, "max_parts is 0"),
        ({"method": "cluster"}, "requires node_parts"),
        ({"method": "reg", "node_parts": torch.zeros(400).long()}, "other methods don't use them"),
        ({"node_parts": torch.zeros(400)}, "node_parts must be a tensor of torch.int64"),
    ],
)
def test_invalid_options_are_refused_before_estimating(options, message):
    def never(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        raise AssertionError("estimated")

    with pytest.raises((ValueError, TypeError), match=message):
        plan_with(never, batch(), **{"memory": 10**6, **options})
    model = wb.build_model("gcn", in_dim=4, hidden_dim=4, out_dim=2)
    with pytest.raises((ValueError, TypeError), match=message):
        plan_micro_batches(model, batch(), **{"memory": 10**6, **options})


MEASURED = [
    ("sage-mean", "range", "adam", 0.35),
    ("gat", "metis", "sgd", 0.25),
    ("sage-pool", "reg", "adam", 0.3),
    ("sage-lstm", "random", "adamw", 0.4),
    ("gin", "auto", "sgd", 0.2),
]


def measured_peak(model: torch.nn.Module, micro: list[MiniBatch], optimizer: str) -> int:
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    num_nodes = 1 + max(int(mb.node_ids.max()) for mb in micro)
    x, y = torch.randn(num_nodes, 48), torch.arange(num_nodes) % 5
    made = kinds[optimizer](model.parameters(), lr=0.01)
    profile = profile_epoch(model, [micro], x, y, torch.nn.functional.cross_entropy, made)
    assert profile.peak_bytes is not None
    return profile.peak_bytes


@pytest.mark.parametrize(("kind", "method", "optimizer", "share"), MEASURED)
def test_plans_fit_when_measured_and_fewer_parts_do_not(kind, method, optimizer, share):
    mb = batch(600, 300, (4, 3))
    model = wb.build_model(kind, in_dim=48, hidden_dim=16, out_dim=5)
    whole = estimator_for(TrainingSetup(model, optimizer=optimizer), mb)(mb)
    capacity = whole.fixed_bytes + int(share * whole.step_bytes)
    made = plan_micro_batches(model, mb, memory=capacity, method=method, optimizer=optimizer)
    assert made.num_parts > 2 and made.asked == method and made.method != "auto"
    peak = measured_peak(model, list(made.micro), optimizer)
    assert peak <= capacity and abs(peak - made.peak_bytes) <= 0.05 * peak
    fewer = mb.split(partition_batch(mb, made.num_parts - 2, method=method))
    assert measured_peak(model, fewer, optimizer) > capacity / 1.02


def test_the_model_is_not_run(monkeypatch):
    mb = batch()
    model = wb.build_model("sage-mean", in_dim=16, hidden_dim=8, out_dim=2)
    whole = estimator_for(TrainingSetup(model), mb)(mb)
    monkeypatch.setattr(type(model), "forward", refuse)
    assert plan_micro_batches(model, mb, memory=whole.peak_bytes // 2).num_parts > 1


def test_split_does_not_change_parts_that_fit():
    mb = batch()
    least = max(alone(mb))
    capacity = int(least + 0.2 * (count(mb).peak_bytes - least))
    made = plan_with(count, mb, memory=capacity, method="range", strategy="split", margin=0.0)
    check(made, mb, 0.0)
    first = made.tried[1][0]
    coarse = partition_batch(mb, first, method="range")
    for label, part in enumerate(mb.split(coarse)):
        inside = made.assignment[coarse == label].unique()
        assert not torch.isin(made.assignment[coarse != label], inside).any()
        fits = count(part, accumulating=label > 0).peak_bytes <= capacity
        assert (len(inside) == 1) == fits
    assert made.num_parts > first and [k for k, _ in made.tried] == sorted(k for k, _ in made.tried)


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_an_expensive_seed_that_fits_only_in_the_first_part(strategy):
    """As a part of its own it finds gradients and does not fit; of nine numbers of parts, two fit."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        need = 50 * mb.num_seeds + 500 * int((mb.seeds == 3).sum()) + 300 * accumulating
        terms = {"parameters": FIXED, "hidden": need}
        phases = {"forward": FIXED + need, "backward": FIXED, "step": FIXED + 20}
        return MemoryEstimate(terms=terms, phase_bytes=phases, fixed_bytes=FIXED, backend="none")

    mb = random_minibatch(random_graph(40, 0), range(10))
    made = plan_with(estimator, mb, memory=FIXED + 750, margin=0.0, method="range", strategy=strategy)
    assert made.num_parts == 2 and made.estimates[0].peak_bytes == FIXED + 750
    refusal(mb, estimator, memory=FIXED + 699, margin=0.0, method="range", strategy=strategy)


def test_up_to_one_part_per_seed():
    """All seeds need equally many bytes and share no inputs."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb)

    mb = random_minibatch(random_graph(40, 0), num_seeds=30)
    for strategy in ("even", "split"):
        made = plan_with(estimator, mb, memory=FIXED + 64, margin=0.0, strategy=strategy)
        assert made.num_parts == 30


def test_max_parts():
    mb = batch()
    capacity = max(alone(mb)) + 1000
    made = plan_with(count, mb, memory=capacity, method="range")
    same = plan_with(count, mb, memory=capacity, method="range", max_parts=made.num_parts)
    assert same.num_parts == made.num_parts
    for strategy in ("even", "split"):
        with pytest.raises(CapacityError, match=r"with max_parts=2 the largest part needs .*raise max_parts"):
            plan_with(count, mb, memory=capacity, method="range", max_parts=2, strategy=strategy)


def test_inaccurate_estimates_are_refused():
    """A module with an error of 70 % on held-out sub-batches has measured at nine times its estimate."""

    def inaccurate(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=0.7)

    for capacity in (10**4, 10**9):
        with pytest.raises(ValueError, match=r"off by up to 70% .*more than the 25% .*recover=Recovery"):
            plan_with(inaccurate, batch(), memory=capacity)

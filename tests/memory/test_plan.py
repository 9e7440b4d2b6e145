"""`plan_micro_batches` against brute force with an estimator of the test's own, and against measured peaks."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.core.split import select_seeds
from workbench.memory.estimate import estimator_for
from workbench.memory.plan import Plan, plan_micro_batches, plan_with
from workbench.memory.planning import partitioner
from workbench.memory.record import MemoryEstimate
from workbench.partition import batch as batch_partitions
from workbench.partition.batch import partition_batch, reg
from workbench.training.profile import profile_epoch

FIXED = 1000


def count(mb: MiniBatch, /, *, accumulating: bool = False, error: float | None = None) -> MemoryEstimate:
    """An estimate that grows with inputs and edges."""
    terms = {
        "parameters": FIXED,
        "inputs": 64 * mb.num_inputs,
        "blocks": 8 * mb.num_edges,
        "gradients": 100 * accumulating,
    }
    phases = {"forward": sum(terms.values()), "backward": FIXED, "step": FIXED + 20}
    return MemoryEstimate(terms=terms, phase_bytes=phases, fixed_bytes=FIXED, kernels="none", error=error)


def alone(mb: MiniBatch) -> list[int]:
    """Bytes of every seed on its own, not being the first."""
    return [count(m, accumulating=True).peak_bytes for m in mb.split(torch.arange(mb.num_seeds))]


def batch(num_nodes: int = 400, num_seeds: int = 120, fanouts: tuple[int, ...] = (4, 4), seed: int = 0) -> MiniBatch:
    return random_minibatch(
        random_graph(num_nodes, 8 * num_nodes, seed), fanouts=fanouts, seed=seed, num_seeds=num_seeds
    )


def equal(a: MiniBatch, b: MiniBatch) -> bool:
    pairs = zip(a._tensors().values(), b._tensors().values(), strict=True)
    return all((s is None and t is None) or (s is not None and t is not None and torch.equal(s, t)) for s, t in pairs)


def check(made: Plan, mb: MiniBatch, margin: float) -> None:
    """What holds of any plan."""
    assert made.assignment.dtype == torch.int64 and made.assignment.shape == (mb.num_seeds,)
    assert made.assignment.unique().tolist() == list(range(made.num_parts))
    assert made.num_parts == len(made.micro) == len(made.estimates)
    if made.num_parts > 1:
        assert all(equal(a, b) for a, b in zip(made.micro, mb.split(made.assignment), strict=True))
    for position, (micro, estimate) in enumerate(zip(made.micro, made.estimates, strict=True)):
        assert estimate == count(micro, accumulating=position > 0)
        assert estimate.peak_bytes * (1 + margin) <= made.capacity_bytes
    assert made.peak_bytes == max((estimate.peak_bytes for estimate in made.estimates), default=0)
    assert made.redundancy == wb.redundancy(made.micro, mb)


@given(
    minibatches(max_nodes=12),
    st.integers(FIXED, 8 * FIXED),
    st.sampled_from(("range", "random")),
    st.sampled_from(("even", "split")),
    st.sampled_from((0.0, 0.02, 0.3)),
)
def test_fits_or_says_why_not(mb, capacity, method, strategy, margin):
    whole = count(mb).peak_bytes
    try:
        made = plan_with(count, mb, capacity_bytes=capacity, method=method, strategy=strategy, margin=margin)
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
def test_near_the_smallest_number(method, share):
    mb = batch()
    least = max(alone(mb))
    capacity = int(least + share * (count(mb).peak_bytes - least))
    made = plan_with(count, mb, capacity_bytes=capacity, method=method, margin=0.0, seed=3)
    check(made, mb, 0.0)

    def fits(num_parts: int) -> bool:
        parts = mb.split(partition_batch(mb, num_parts, method=method, seed=3))
        return max(count(m, accumulating=i > 0).peak_bytes for i, m in enumerate(parts)) <= capacity

    smallest = next(k for k in range(1, mb.num_seeds + 1) if fits(k))
    assert smallest <= made.num_parts <= smallest + max(1, 0.08 * smallest)
    assert len({k for k, _ in made.tried}) == len(made.tried) <= 15


def test_split_leaves_parts_that_fit_alone():
    mb = batch()
    least = max(alone(mb))
    capacity = int(least + 0.2 * (count(mb).peak_bytes - least))
    made = plan_with(count, mb, capacity_bytes=capacity, method="range", strategy="split", margin=0.0)
    check(made, mb, 0.0)
    first = made.tried[1][0]
    coarse = partition_batch(mb, first, method="range")
    for label, part in enumerate(mb.split(coarse)):
        inside = made.assignment[coarse == label].unique()
        assert not torch.isin(made.assignment[coarse != label], inside).any()
        fits = count(part, accumulating=label > 0).peak_bytes <= capacity
        assert (len(inside) == 1) == fits
    assert made.num_parts > first and [k for k, _ in made.tried] == sorted(k for k, _ in made.tried)


def refuse(*_: object, **__: object) -> torch.Tensor:
    raise AssertionError("partitioned")


def test_nothing_is_partitioned_where_the_batch_fits_or_nothing_would_help(monkeypatch):
    monkeypatch.setattr(partitioner, "partition_batch", refuse)
    mb, one = batch(), batch(num_seeds=1)
    need = count(mb).peak_bytes
    made = plan_with(count, mb, capacity_bytes=need, margin=0.0)
    assert made.num_parts == 1 and made.micro[0] is mb and made.tried == ((1, need),)
    assert made.redundancy.ratio == 1 and set(made.seconds) == {"estimate", "partition", "split"}
    assert plan_with(count, one, capacity_bytes=need).num_parts == 1
    for capacity in (FIXED, FIXED + 10, max(alone(mb)) - 1):
        with pytest.raises(CapacityError):
            plan_with(count, mb, capacity_bytes=capacity, margin=0.0)
    with pytest.raises(CapacityError, match=f"output node {int(one.seeds[0])} alone needs"):
        plan_with(count, one, capacity_bytes=count(one).peak_bytes - 1, margin=0.0)


def test_errors_give_what_is_needed_and_what_there_is():
    mb = batch()
    with pytest.raises(CapacityError, match=r"parameters and optimizer state alone take 1,000 bytes .* 900 bytes"):
        plan_with(count, mb, capacity_bytes=900)
    with pytest.raises(CapacityError, match=r"optimizer's step takes, into however many parts .* 1,020 bytes.*sgd"):
        plan_with(count, mb, capacity_bytes=1030)
    least = max(alone(mb))
    with pytest.raises(
        CapacityError, match=rf"output node \d+ alone, after other parts, needs {least:,} bytes"
    ) as error:
        plan_with(count, mb, capacity_bytes=least - 200)
    node = int(str(error.value).split()[2])
    assert alone(mb)[mb.seeds.tolist().index(node)] == least
    assert "1,020 with a margin of 2.0%" in refusal(mb, capacity_bytes=900)


def refusal(mb: MiniBatch, estimator: Any = count, **options: Any) -> str:
    with pytest.raises(CapacityError) as error:
        plan_with(estimator, mb, **options)
    return str(error.value)


def suggested(message: str) -> int:
    """The capacity that an error says would do."""
    return int(re.findall(r"or a capacity of ([\d,]+) bytes", message)[0].replace(",", ""))


def neediest_is_not_the_largest(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
    """Some nodes need far more than their trees say."""
    rare = 700 * int((mb.seeds % 7 == 3).sum())
    made = count(mb, accumulating=accumulating)
    return MemoryEstimate(
        terms={**made.terms, "hidden": rare},
        phase_bytes={**made.phase_bytes, "forward": made.peak_bytes + rare},
        fixed_bytes=FIXED,
        kernels="none",
    )


@pytest.mark.parametrize("strategy", ["even", "split"])
@pytest.mark.parametrize("margin", [0.0, 0.02, 0.1])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "range"},
        {"method": "reg"},
        {"method": "random", "max_parts": 3},
        {"method": "metis", "max_parts": 1},
        {"method": "cluster", "node_parts": torch.arange(400) % 5},
    ],
)
def test_what_an_error_suggests_is_enough(options, margin, strategy):
    mb, options = batch(), {"margin": margin, "strategy": strategy, **options}
    for estimator in (count, neediest_is_not_the_largest):
        enough = suggested(refusal(mb, estimator, capacity_bytes=1, **options))
        for capacity in (FIXED, int(FIXED * (1 + margin)) + 5, FIXED + 300, enough // 2, enough - 500):
            assert suggested(refusal(mb, estimator, capacity_bytes=capacity, **options)) <= enough
        made = plan_with(estimator, mb, capacity_bytes=enough, **options)
        assert all(estimate.peak_bytes * (1 + margin) <= enough for estimate in made.estimates)
        if "max_parts" not in options and "node_parts" not in options:
            needs = [estimator(m, accumulating=True).peak_bytes for m in mb.split(torch.arange(mb.num_seeds))]
            assert enough == -int(-max(needs) * (1 + margin) // 1)


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_the_first_part_finds_no_gradients(strategy):
    """The needier of two seeds fits first but not second."""
    everyone = batch(num_seeds=60)
    by_id = torch.argsort(everyone.seeds)  # the order of range
    need = torch.tensor([count(m).peak_bytes for m in everyone.split(torch.arange(60))])[by_id]
    needy = int(need[20:40].argmax()) + 20
    first, last = int(need[:20].argmin()), int(need[40:].argmin()) + 40
    (mb,) = select_seeds(everyone, [by_id[[needy, last]]])
    capacity = int(need[needy])
    assert need[last] + 100 < capacity < count(mb).peak_bytes
    made = plan_with(count, mb, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert made.num_parts == 2 and made.peak_bytes == capacity
    refusal(mb, capacity_bytes=capacity - 1, margin=0.0, method="range", strategy=strategy)
    (turned,) = select_seeds(everyone, [by_id[[first, needy]]])
    message = refusal(turned, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert suggested(message) == min(capacity + 100, count(turned).peak_bytes)


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_a_needy_node_that_fits_only_among_the_first(strategy):
    """On its own it finds gradients, with others before it it does not: of nine numbers of parts, two fit."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        need = 50 * mb.num_seeds + 500 * int((mb.seeds == 3).sum()) + 300 * accumulating
        terms = {"parameters": FIXED, "hidden": need}
        phases = {"forward": FIXED + need, "backward": FIXED, "step": FIXED + 20}
        return MemoryEstimate(terms=terms, phase_bytes=phases, fixed_bytes=FIXED, kernels="none")

    mb = random_minibatch(random_graph(40, 0), range(10))
    made = plan_with(estimator, mb, capacity_bytes=FIXED + 750, margin=0.0, method="range", strategy=strategy)
    assert made.num_parts == 2 and made.estimates[0].peak_bytes == FIXED + 750
    refusal(mb, estimator, capacity_bytes=FIXED + 699, margin=0.0, method="range", strategy=strategy)


def test_seeds_that_must_all_come_first_are_refused_before_partitioning(monkeypatch):
    monkeypatch.setattr(partitioner, "partition_batch", refuse)
    mb = batch()
    second_neediest = sorted(count(m).peak_bytes for m in mb.split(torch.arange(mb.num_seeds)))[-2]
    assert "after other parts" in refusal(mb, capacity_bytes=second_neediest + 50, margin=0.0)


def test_up_to_one_part_a_seed():
    """All seeds need the same and share nothing."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb)

    mb = random_minibatch(random_graph(40, 0), num_seeds=30)
    for strategy in ("even", "split"):
        made = plan_with(estimator, mb, capacity_bytes=FIXED + 64, margin=0.0, strategy=strategy)
        assert made.num_parts == 30


def test_max_parts():
    mb = batch()
    capacity = max(alone(mb)) + 1000
    made = plan_with(count, mb, capacity_bytes=capacity, method="range")
    same = plan_with(count, mb, capacity_bytes=capacity, method="range", max_parts=made.num_parts)
    assert same.num_parts == made.num_parts
    for strategy in ("even", "split"):
        with pytest.raises(CapacityError, match=r"with max_parts=2 the largest part needs .*allow more parts"):
            plan_with(count, mb, capacity_bytes=capacity, method="range", max_parts=2, strategy=strategy)


@pytest.mark.parametrize("strategy", ["even", "split"])
@pytest.mark.parametrize("method", ["auto", "cluster"])
def test_clusters(method, strategy):
    mb = batch()
    fine, coarse = torch.arange(400) % 100, torch.arange(400) % 3
    capacity = FIXED + (count(mb).peak_bytes - FIXED) // 2
    made = plan_with(count, mb, capacity_bytes=capacity, method=method, node_parts=fine, strategy=strategy)
    check(made, mb, 0.02)
    labels = fine[mb.seeds]
    for cluster in labels.unique():
        assert len(made.assignment[labels == cluster].unique()) == 1
    with pytest.raises(CapacityError, match=r"one for each cluster of node_parts .* more clusters"):
        plan_with(count, mb, capacity_bytes=max(alone(mb)) + 500, method=method, node_parts=coarse, strategy=strategy)
    with pytest.raises(IndexError, match="node_parts has 3 nodes"):
        plan_with(count, mb, capacity_bytes=capacity, method=method, node_parts=coarse[:3], strategy=strategy)


@pytest.mark.parametrize("error", [0.1, 0.25])
@pytest.mark.parametrize("strategy", ["even", "split"])
def test_what_a_traced_module_is_measured_at_fits(error, strategy):
    """An error of 25 % of what is measured: that is a third more than the estimate."""

    def unsure(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=error)

    def measured(estimate: MemoryEstimate) -> float:
        return FIXED + estimate.step_bytes / (1 - error)

    mb = batch()
    whole = measured(count(mb))
    assert plan_with(unsure, mb, capacity_bytes=int(whole) + 1, strategy=strategy).num_parts == 1
    for share in (0.99, 0.5, 0.3):
        made = plan_with(unsure, mb, capacity_bytes=int(whole * share), strategy=strategy)
        assert made.num_parts > 1 and all(measured(estimate) <= whole * share for estimate in made.estimates)
    assert plan_with(unsure, mb, capacity_bytes=int(whole), margin=0.6, strategy=strategy).num_parts > 1
    message = refusal(mb, unsure, capacity_bytes=FIXED + 100, strategy=strategy)
    assert f"an error of up to {error:.0%}" in message
    assert plan_with(unsure, mb, capacity_bytes=suggested(message), strategy=strategy).num_parts > 1


def test_no_plan_by_estimates_that_are_far_off():
    """A module that nothing fitted measured at nine times the estimate, with an error of 70 % on small parts."""

    def guess(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=0.7)

    for capacity in (10**4, 10**9):
        with pytest.raises(ValueError, match=r"off by up to 70%, more than the 25% .*recover=Recovery"):
            plan_with(guess, batch(), capacity_bytes=capacity)


def test_the_method_is_that_which_partitioned():
    among, apart = batch(200, 200), random_minibatch(random_graph(300, 1500), range(200, 260), (5,))
    for mb, method in ((among, "metis"), (apart, "reg")):
        capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
        made = plan_with(count, mb, capacity_bytes=capacity)
        assert (made.method, made.asked, made.method_name) == (method, "auto", f"auto ({method})")
        assert f"parts by auto ({method})" in repr(made)
        same = plan_with(count, mb, capacity_bytes=capacity, method=method)
        assert same.method_name == method and torch.equal(same.assignment, made.assignment)
        assert plan_with(count, mb, capacity_bytes=10**9).method_name == "auto"
        clusters = plan_with(count, mb, capacity_bytes=capacity, node_parts=torch.arange(400))
        assert clusters.method_name == "auto (cluster)"


def test_auto_is_settled_once(monkeypatch):
    """Whatever else takes the memory that reg's graph would need, all tries are by one method."""
    mb = random_minibatch(random_graph(300, 1500), range(200, 260), (5,))
    capacity = max(alone(mb)) + 1000
    expected = plan_with(count, mb, capacity_bytes=capacity, method="reg")
    left = iter([10**9])
    monkeypatch.setattr(partitioner, "available_bytes", lambda: next(left))
    for module in (batch_partitions, reg):
        monkeypatch.setattr(module, "available_bytes", lambda: 0)
    made = plan_with(count, mb, capacity_bytes=capacity)
    assert len(made.tried) > 2 and made.method == "reg" and torch.equal(made.assignment, expected.assignment)


def test_an_empty_batch():
    made = plan_with(count, batch(num_seeds=0), capacity_bytes=1)
    assert made.num_parts == made.peak_bytes == 0 and made.micro == made.estimates == made.tried == ()
    assert made.assignment.shape == (0,) and "0 parts" in repr(made)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity_bytes": 0}, "capacity_bytes is 0"),
        ({"capacity_bytes": -5}, "capacity_bytes is -5"),
        ({"capacity_bytes": 1.5}, "whole number"),
        ({"method": "best"}, "method 'best' is not known; choose from auto"),
        ({"strategy": "odd"}, "strategy 'odd' is not known; choose from even, split"),
        ({"margin": -0.1}, "margin is -0.1"),
        ({"margin": float("nan")}, "margin is nan"),
        ({"max_parts": 0}, "max_parts is 0"),
        ({"method": "cluster"}, "needs them"),
        ({"method": "reg", "node_parts": torch.zeros(400).long()}, "others would not use them"),
        ({"node_parts": torch.zeros(400)}, "node_parts must be a tensor of torch.int64"),
    ],
)
def test_bad_options_come_first(options, message):
    def never(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        raise AssertionError("estimated")

    with pytest.raises((ValueError, TypeError), match=message):
        plan_with(never, batch(), **{"capacity_bytes": 10**6, **options})
    model = wb.build_model("gcn", in_dim=4, hidden_dim=4, out_dim=2)
    with pytest.raises((ValueError, TypeError), match=message):
        plan_micro_batches(model, batch(), **{"capacity_bytes": 10**6, **options})


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
    whole = estimator_for(model, mb, optimizer=optimizer)(mb)
    capacity = whole.fixed_bytes + int(share * whole.step_bytes)
    made = plan_micro_batches(model, mb, capacity_bytes=capacity, method=method, optimizer=optimizer)
    assert made.num_parts > 2 and made.asked == method and made.method != "auto"
    peak = measured_peak(model, list(made.micro), optimizer)
    assert peak <= capacity and abs(peak - made.peak_bytes) <= 0.05 * peak
    fewer = mb.split(partition_batch(mb, made.num_parts - 2, method=method))
    assert measured_peak(model, fewer, optimizer) > capacity / 1.02


def test_the_model_is_not_run(monkeypatch):
    mb = batch()
    model = wb.build_model("sage-mean", in_dim=16, hidden_dim=8, out_dim=2)
    whole = estimator_for(model, mb)(mb)
    monkeypatch.setattr(type(model), "forward", refuse)
    assert plan_micro_batches(model, mb, capacity_bytes=whole.peak_bytes // 2).num_parts > 1

"""One plan for all batches of a sampler: the number of parts, and the share of batches that it is too small for."""

import pytest
import torch
from torch import nn

from tests.strategies import random_graph
from tests.training.toys import PlainModel
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimator import estimate_memory, estimator_for
from workbench.memory.search import Budget
from workbench.memory.training_setup import TrainingSetup
from workbench.nn.model import build_model
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.sampler_plan import SamplerPlan, plan_sampler

GRAPH = random_graph(600, 4000, seed=5)
MODEL = build_model("sage-mean", in_dim=64, hidden_dim=8, out_dim=3)
LOADED = list(batches(GRAPH, torch.arange(600), sampler=NeighborSampler([4, 4]), batch_size=20, epoch=0))
WHOLE = max(estimate_memory(MODEL, mb).peak_bytes for _, mb in LOADED)
CAPACITY = int(0.6 * WHOLE)


def fits(plan: SamplerPlan, mb: MiniBatch) -> bool:
    """By an estimator of the batch's own."""
    estimator = estimator_for(TrainingSetup(MODEL), mb)
    parts = [estimator(part, accumulating=i > 0) for i, part in enumerate(plan.micro_batches(mb))]
    return all(map(Budget(plan.memory_bytes, 0.02).fits, parts))


@pytest.fixture(scope="module")
def plan() -> SamplerPlan:
    return plan_sampler(MODEL, LOADED[:15], memory=f"{CAPACITY} B", method="range")


def test_all_batches_planned_on_fit_and_one_part_less_does_not(plan: SamplerPlan) -> None:
    assert plan.num_parts > 1 and plan.num_batches == 15 and plan.num_recovering == 0
    assert all(fits(plan, mb) for _, mb in LOADED[:15])
    assert max(plan.part_peak_bytes) <= CAPACITY
    fewer = SamplerPlan(plan.num_parts - 1, *list(vars(plan).values())[1:6])
    assert not all(fits(fewer, mb) for _, mb in LOADED[:15])


def test_the_share_of_other_batches_is_within_the_bound(plan: SamplerPlan) -> None:
    share = sum(not fits(plan, mb) for _, mb in LOADED[15:]) / len(LOADED[15:])
    assert share <= plan.share_upper_bound < 0.5


def test_a_larger_share_needs_no_more_parts_and_counts_the_batches_that_do_not_fit() -> None:
    tight = plan_sampler(MODEL, LOADED, memory=CAPACITY, method="range", share=0.0)
    loose = plan_sampler(MODEL, LOADED, memory=CAPACITY, method="range", share=0.3)
    assert loose.num_parts < tight.num_parts
    assert loose.num_recovering == sum(not fits(loose, mb) for _, mb in LOADED)
    assert 0 < loose.share_recovering <= 0.3 and loose.share_recovering < loose.share_upper_bound


def test_the_bound_is_clopper_pearsons() -> None:
    stats = pytest.importorskip("scipy.stats")
    for failures, count, tried in ((0, 32, 1), (3, 40, 1), (1, 20, 5), (4, 4, 1)):
        made = SamplerPlan(2, (1,) * count, failures, 9, *[None] * 2, num_tried=tried)  # pyright: ignore
        bound = made.share_upper_bound
        assert bound == 1 or stats.binom.cdf(failures, count, bound) == pytest.approx(0.05 / tried)
    assert SamplerPlan(2, (1,) * 32, 0, 9, None, None).share_upper_bound == pytest.approx(0.0894, abs=1e-4)  # pyright: ignore


def test_the_fastest_method_with_as_little_work_is_chosen() -> None:
    ring = torch.arange(600)
    clusters = ring // 30
    src = torch.cat([ring, (ring + 1) % 600])  # neighbours on a ring: contiguous ids are the best parts
    graph = type(GRAPH).from_edges(src, torch.cat([(ring + 1) % 600, ring]), num_nodes=600)
    loaded = batches(graph, ring, sampler=NeighborSampler([2, 2]), batch_size=200, shuffle=False)
    plan = plan_sampler(MODEL, loaded, memory="100 KiB", node_parts=clusters)
    assert plan.partitioner.method == "cluster" and "by cluster" in repr(plan)


def test_traced_modules_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.memory.traced import predictor as fit

    calls, original = [], fit.fit_memory
    monkeypatch.setattr(fit, "fit_memory", lambda *given, **options: calls.append(1) or original(*given, **options))
    model = PlainModel(in_dim=64, hidden_dim=8)
    plan = plan_sampler(model, LOADED[:4], memory=CAPACITY, method="range")
    assert [len(plan.micro_batches(mb)) for _, mb in LOADED] == [plan.num_parts] * len(LOADED)
    assert len(calls) == 1


def test_batches_of_dgl_and_pyg_are_planned_and_split() -> None:
    pytest.importorskip("dgl")
    mb = LOADED[0][1]
    for batch in ([mb.seeds, mb.seeds, mb.to_dgl()], mb.to_pyg()):
        plan = plan_sampler(MODEL, [batch], memory=CAPACITY, method="range")
        parts = plan.micro_batches(batch[2] if isinstance(batch, list) else batch)
        assert len(parts) == plan.num_parts > 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"batches": []}, ValueError, "batches is empty; pass the batches to plan on"),
        ({"share": 1}, ValueError, "share is 1; it must be a fraction from 0 to less than 1"),
        ({"num_batches": 0}, ValueError, "num_batches is 0"),
        ({"memory": 1000}, CapacityError, "parameters and optimizer state alone need"),
        ({"memory": "40 KiB"}, CapacityError, "a capacity of"),
        ({"batches": [torch.ones(3)]}, TypeError, "can't split a Tensor"),
        ({"model": nn.ReLU()}, ValueError, "must be traced"),
    ],
)
def test_what_is_refused(changes: dict, error: type[Exception], message: str) -> None:
    given = {"model": MODEL, "batches": LOADED[:2], "memory": CAPACITY, "method": "range"} | changes
    with pytest.raises(error, match=message):
        plan_sampler(given.pop("model"), given.pop("batches"), **given)

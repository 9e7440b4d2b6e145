"""Steps on a GPU: gradients of the CPU, micro-batches, recovery, limits, estimates, evaluation."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.memory.measured import CLASSES, FANOUTS, IN, WIDE, build, compare, is_close, sample, thirds
from tests.strategies import random_graph
from workbench.memory.analytic import layers as fake_lstm
from workbench.nn.gnn import GNN
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS

pytestmark = pytest.mark.cuda

NODES = 120
GRAPH = random_graph(NODES, 900, seed=1, edge_weight=torch.float64, num_edge_types=3)
X = torch.linspace(-9, 9, NODES * 6, dtype=torch.float64).sin().view(NODES, 6)
Y = torch.where(torch.arange(NODES) % 5 == 0, -1, torch.arange(NODES) % 4)
BATCH = wb.NeighborSampler([4, 5]).sample(GRAPH, torch.arange(0, NODES, 3), step=1)
KINDS = [
    pytest.param(kind, marks=[pytest.mark.slow] if kind == "sage-lstm" else [])
    for kind in (*MODEL_KINDS, *TYPED_MODEL_KINDS)
]


def new_model(kind: str, **options: Any) -> GNN:
    typed = {"num_relations": 3, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": 2, "dropout": 0.5, "seed": 2}
    merged: dict[str, Any] = {**sizes, **typed, **options}
    return wb.build_model(kind, **merged).double()


def step(model: nn.Module, micro: Any, x: Any = X, **options: Any) -> tuple[Tensor, list[Tensor]]:
    """The loss and the gradients of a step, on the CPU."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = wb.train_step(model, micro, x, Y, cross_entropy, optimizer, verify=False, **options)
    return loss.cpu(), [p.grad.cpu() for p in model.parameters() if p.grad is not None]


def assert_close(ours: tuple[Tensor, list[Tensor]], theirs: tuple[Tensor, list[Tensor]]) -> None:
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-9, atol=1e-12)
    assert len(ours[1]) == len(theirs[1]) > 0
    for a, b in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_equal_those_of_the_cpu(kind: str) -> None:
    """Whole and in micro-batches, with features and batch on either device."""
    expected = step(new_model(kind), BATCH)
    assert_close(step(new_model(kind).cuda(), BATCH), expected)
    micro = BATCH.split(torch.arange(BATCH.num_seeds) % 3)
    assert_close(step(new_model(kind).cuda(), micro, X.cuda()), expected)
    assert_close(step(new_model(kind).cuda(), BATCH.to("cuda"), X.cuda()), expected)


@pytest.mark.parametrize("options", [{"norm": "batch"}, {"norm": "layer"}, {"reuse_buffers": True}])
def test_options_of_models(options: dict[str, Any]) -> None:
    expected = step(new_model("sage-mean", **options), BATCH)
    assert_close(step(new_model("sage-mean", **options).cuda(), BATCH), expected)


def test_precomputed_aggregates() -> None:
    x = wb.training.AggregatedRows(X, X.cos())
    mb = wb.NeighborSampler([5]).sample(GRAPH, torch.arange(0, NODES, 3))
    expected = step(new_model("sage-mean", dropout=0.0), mb, x)
    assert_close(step(new_model("sage-mean", dropout=0.0).cuda(), mb, x), expected)
    assert_close(
        step(new_model("sage-mean", dropout=0.0).cuda(), mb, wb.training.AggregatedRows(X.cuda(), X.cos())), expected
    )


@pytest.mark.slow
def test_recovery_within_a_limit() -> None:
    model, splits = new_model("gat", hidden_dim=256, dropout=0.0).cuda(), []
    graph = random_graph(3000, 20_000, seed=1)
    mb, y = wb.NeighborSampler([8, 8]).sample(graph, torch.arange(1000)), torch.arange(3000) % 4
    x = torch.randn(3000, 6, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def run(**options: Any) -> float:
        optimizer.zero_grad()
        return float(wb.train_step(model, mb, x, y, cross_entropy, optimizer, verify=False, **options))

    expected = run()
    optimizer.zero_grad()
    peak = wb.measure_peak(run, device="cuda")
    optimizer.zero_grad()
    with wb.limit_memory(peak // 2, device="cuda"), pytest.raises(torch.OutOfMemoryError):
        run()
    optimizer.zero_grad()
    with wb.limit_memory(peak // 2, device="cuda"):
        assert run(recover=wb.Recovery(on_split=lambda *a, **o: splits.append(a))) == pytest.approx(expected)
    assert splits


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_estimates_are_what_the_device_counts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn = torch.backends.cudnn.is_available()
    if not cudnn:  # the steps of an LSTM are the CPU's, which keep a tensor more
        monkeypatch.setitem(fake_lstm._NATIVE_SAVED, "cuda", fake_lstm._NATIVE_SAVED["cpu"])
    model = build(kind, 2, WIDE, dropout=0.5).cuda()
    found = compare(
        model, thirds(sample(FANOUTS[:2])), torch.optim.Adam(model.parameters()), in_dim=IN, num_classes=CLASSES
    )
    for phase, pair in found.items():
        assert is_close(pair, 0.15 if kind == "sage-lstm" and not cudnn else 0.01), (phase, found)


def test_a_plan_for_the_device_fits() -> None:
    pytest.importorskip("pymetis")
    mb = sample(FANOUTS[:2])
    model = build("sage-mean", 2, WIDE).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    whole = wb.estimate_memory(model, mb, optimizer=optimizer)
    capacity = (whole.peak_bytes + whole.fixed_bytes) // 2
    plan = wb.plan_micro_batches(model, mb, memory=capacity, optimizer=optimizer)
    micro = mb.split(plan.assignment)
    assert plan.num_parts > 1 and max(e.peak_bytes for e in plan.estimates) <= capacity
    x, y = torch.zeros(3000, IN), torch.arange(3000) % CLASSES
    wb.train_step(model, micro[:1], x, y, cross_entropy, optimizer)
    optimizer.zero_grad()
    peak = wb.measure_peak(lambda: wb.train_step(model, micro, x, y, cross_entropy, optimizer), device="cuda")
    assert peak + whole.fixed_bytes <= capacity * 1.02


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation(kind: str) -> None:
    model = new_model(kind)
    expected = wb.full_neighbour_logits(model, GRAPH, X)
    on_gpu = copy.deepcopy(model).cuda()
    for graph, x in ((GRAPH, X), (GRAPH.to("cuda"), X), (GRAPH.to("cuda"), X.cuda())):
        logits = wb.full_neighbour_logits(on_gpu, graph, x, chunk_edges=450)
        assert logits.device == graph.device
        torch.testing.assert_close(logits.cpu(), expected, rtol=1e-9, atol=1e-11)
        assert wb.accuracy(logits, Y) == wb.accuracy(expected, Y)
    loader = wb.batches(GRAPH, torch.arange(20), sampler=wb.NeighborSampler([4, 4]), batch_size=8)
    _, sampled = wb.sampled_logits(on_gpu, loader.epoch(0), X)
    torch.testing.assert_close(sampled, wb.sampled_logits(model, loader.epoch(0), X)[1], rtol=1e-9, atol=1e-11)


def test_epochs_with_prefetch_and_pinned_rows() -> None:
    def losses(device: str, x: Any) -> list[float]:
        model = new_model("sage-mean", dropout=0.0).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        loader = wb.batches(GRAPH, torch.arange(NODES), sampler=wb.NeighborSampler([3, 3]), batch_size=40, epoch=0)
        return [
            float(wb.train_step(model, mb, x, Y, cross_entropy, optimizer)) for _, mb in wb.prefetch(loader, depth=2)
        ]

    assert losses("cuda", wb.MemoryRows(X, pin=True)) == pytest.approx(losses("cpu", X), rel=1e-9)


def test_profiles_and_exactness() -> None:
    model = new_model("gcn", dropout=0.0).cuda()
    assert wb.check_exact(model, BATCH, x=X).exact
    optimizer = torch.optim.Adam(model.parameters())
    with wb.Stopwatch("cuda").phase("step"):
        wb.train_step(model, BATCH, X, Y, cross_entropy, optimizer, recover=wb.Recovery())


def test_allocated_and_reserved_bytes_beside_the_estimate() -> None:
    """The allocator reserves segments, of at least 2 MiB; the CPU has none."""
    mb, model = sample(FANOUTS[:2]), build("sage-mean", 2, WIDE).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.zeros(3000, IN), torch.arange(3000) % CLASSES
    profile = wb.profile_epoch(model, [[mb]], x, y, cross_entropy, optimizer)
    estimate = wb.estimate_memory(model, mb, optimizer=optimizer).peak_bytes
    assert profile.peak_bytes is not None and profile.reserved_bytes is not None
    assert estimate == pytest.approx(profile.peak_bytes, rel=0.01)
    assert profile.peak_bytes <= profile.reserved_bytes and profile.reserved_bytes % (1 << 20) == 0
    with wb.PeakMeter("cuda") as outer, wb.PeakMeter("cuda") as inner:
        torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    assert inner.reserved_bytes == outer.reserved_bytes and (outer.reserved_bytes or 0) >= 64 << 20
    with wb.PeakMeter() as meter:
        torch.zeros(9)
    assert meter.reserved_bytes is None

"""The call of the model is the caller's: aggregates, `after`, autocast, checkpointing, auxiliary losses, clipping."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import workbench as wb
from tests.devices import CUDA
from tests.strategies import random_graph
from tests.training.faulty import above, faulty, nothing
from tests.training.toys import gradients, relative_difference
from workbench.nn.gnn import GNN
from workbench.nn.model import MODEL_KINDS

TOLERANCE = 1e-10
GRAPH = random_graph(60, 400, seed=5, edge_weight=torch.float64)
BATCH = wb.NeighborSampler([-1, 3], seed=2).sample(GRAPH, torch.arange(0, 40, 2), step=7)
MICRO = BATCH.split(torch.arange(20) % 3)
X = torch.linspace(-9, 9, 60 * 4, dtype=torch.float64).sin().view(60, 4)
Y = torch.arange(60) % 3
LINEAR = ("sage-mean", "sage-gcn", "gcn", "gin")


def new_model(kind: str = "sage-mean", **options: Any) -> GNN:
    return wb.build_model(kind, in_dim=4, hidden_dim=8, out_dim=3, seed=4, **options).double()


def step(model: nn.Module, micro: Any, x: Any = X, lr: float = 0.0, **options: Any) -> tuple[Tensor, Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loss = wb.train_step(model, micro, x, Y, F.cross_entropy, optimizer, **options)
    return loss, gradients(model)


def assert_same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], tolerance: float = TOLERANCE) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert relative_difference(mine, other) <= tolerance


def without_first_block(mb: wb.MiniBatch) -> wb.MiniBatch:
    """The batch of a model whose first layer reads an aggregate."""
    return wb.MiniBatch(mb.node_ids[: mb.blocks[0].num_dst], mb.blocks[1:], step=mb.step)


def aggregate_of_all_nodes(model: GNN) -> Tensor:
    whole = wb.FullNeighborSampler(1).sample(GRAPH, torch.arange(60))
    layer: Any = model.layers[0]
    return layer.aggregate(whole.blocks[0], X).detach()


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("kind", LINEAR)
def test_training_on_a_precomputed_aggregate_equals_the_plain_step(kind: str, num_layers: int) -> None:
    mb = wb.NeighborSampler([-1, 3, 2][:num_layers], seed=2).sample(GRAPH, torch.arange(0, 40, 2), step=7)
    model = new_model(kind, num_layers=num_layers, dropout=0.5)
    expected, aggregated = step(model, mb), aggregate_of_all_nodes(model)
    short = without_first_block(mb)
    for micro in ([short], short.split(torch.arange(20) % 3)):
        ours = step(model, micro, wb.Inputs(X, aggregated))
        assert_same(ours, expected)
    assert expected[1].norm() > 1e-3


def test_pieces_after_an_oom_error_read_their_own_aggregate() -> None:
    model, splits = new_model(), []
    expected, aggregated = step(model, BATCH), aggregate_of_all_nodes(model)

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        if not splits:
            raise torch.OutOfMemoryError("injected")
        return model(mb.blocks, inputs.x, aggregated=inputs.aggregated)

    recover = wb.Recovery(on_split=lambda *split: splits.append(split))
    ours = step(model, without_first_block(BATCH), wb.Inputs(X, aggregated), forward=forward, recover=recover)
    assert len(splits) == 1
    assert_same(ours, expected)


@pytest.mark.parametrize("wrong", [X[:5], X[:, :2]])
def test_an_aggregate_of_another_shape_is_refused(wrong: Tensor) -> None:
    with pytest.raises((ValueError, IndexError), match="aggregated has"):
        step(new_model(), without_first_block(BATCH), wb.Inputs(X, wrong))


def test_a_model_without_the_parameter_refuses_an_aggregate() -> None:
    with pytest.raises(TypeError, match=r"can't be called with \(blocks, x, aggregated=\); add these parameters"):
        step(faulty(nothing), BATCH, wb.Inputs(X, X))


class RowGradients:
    """Reads rows as leaves and sums up their gradients, as a store of learned features does."""

    def __init__(self) -> None:
        self.total, self.calls = torch.zeros_like(X), 0

    def read(self, ids: Tensor) -> Tensor:
        return X[ids].requires_grad_()

    def after(self, mb: wb.MiniBatch, inputs: wb.Inputs) -> None:
        self.calls += 1
        self.total.index_add_(0, mb.node_ids, inputs.x.grad)


RECOVERY = wb.Recovery(method="range")


@pytest.mark.parametrize(("recover", "limit", "calls"), [(None, 100, 3), (RECOVERY, 100, 3), (RECOVERY, 3, 8)])
def test_after_receives_the_gradients_of_each_micro_batchs_rows(
    recover: wb.Recovery | None, limit: int, calls: int
) -> None:
    """Micro-batches of more than `limit` seeds fail in the backward pass: 7 → 4 → 2, 2; 3, twice, and 6 → 3, 3."""
    model, store = faulty(above(limit, "backward")), RowGradients()
    loss, grads = step(model, MICRO, store, after=store.after, recover=recover)
    x = X.clone().requires_grad_()
    plain = faulty(nothing)
    plain.load_state_dict(model.state_dict())
    expected = F.cross_entropy(plain(BATCH.blocks, x[BATCH.node_ids]), Y[BATCH.seeds])
    expected.backward()
    assert x.grad is not None
    assert_same((loss, grads), (expected.detach(), gradients(plain)))
    assert relative_difference(store.total, x.grad) <= TOLERANCE
    assert store.calls == calls


def test_an_error_in_after_is_raised_and_nothing_runs_twice() -> None:
    model, calls = faulty(nothing), []

    def after(mb: wb.MiniBatch, inputs: wb.Inputs) -> None:
        calls.append(mb)
        raise torch.OutOfMemoryError("in after")

    with pytest.raises(torch.OutOfMemoryError, match="in after"):
        step(model, MICRO, after=after, recover=wb.Recovery())
    assert calls == MICRO[:1]
    once, task = faulty(nothing), wb.BatchLoss.of(MICRO, Y, F.cross_entropy)
    wb.accumulate(once, MICRO[0], lambda mb: X[mb.node_ids], task)
    assert torch.equal(gradients(model), gradients(once))


def test_after_has_a_phase_of_its_own() -> None:
    events: list[str] = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        events.append(name)
        yield

    store = RowGradients()
    step(new_model(), MICRO[:2], store, after=lambda *_: events.append("called"), phase=phase)
    assert events == ["step", *2 * ["fetch", "transfer", "forward", "backward", "after", "called"], "step"]


@pytest.mark.parametrize("device", ["meta", CUDA])
def test_inputs_are_moved_to_the_models_device(device: str) -> None:
    model, seen = new_model().to(device), []

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        seen.append((mb.device.type, inputs.x.device.type, inputs.aggregated.device.type))
        return model(mb.blocks, inputs.x, aggregated=inputs.aggregated)

    def read(mb: wb.MiniBatch) -> wb.Inputs:
        return wb.Inputs(X[mb.node_ids], X[mb.node_ids])

    wb.accumulate(model, without_first_block(BATCH), read, lambda out, mb: out.sum(), forward=forward)
    assert seen == [(device, device, device)]


def checkpointed(model: GNN) -> Callable[[wb.MiniBatch, wb.Inputs], Tensor]:
    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Any:
        return checkpoint(model, mb.blocks, inputs.x, node_ids=mb.node_ids, step=mb.step, use_reentrant=False)

    return forward


@pytest.mark.parametrize("recover", [None, wb.Recovery()])
def test_gradient_checkpointing(recover: wb.Recovery | None) -> None:
    model = new_model("gat", dropout=0.5)
    assert_same(step(model, MICRO, forward=checkpointed(model), recover=recover), step(model, BATCH))


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_autocast(kind: str) -> None:
    """Matrix products run in bfloat16; gradients are those of float32, and of the whole batch, up to its precision."""
    if kind == "sage-lstm" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("torch has no LSTM in bfloat16 for processors without AVX-512")
    model, x = new_model(kind).float(), X.float()

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(mb.blocks, inputs.x).float()

    ours, exact = step(model, MICRO, x, forward=forward), step(model, BATCH, x)
    assert 0 < relative_difference(ours[1], exact[1]) <= 0.1
    assert_same(ours, step(model, BATCH, x, forward=forward), tolerance=0.02)


def test_auxiliary_losses() -> None:
    """A penalty on hidden features: forward returns them, loss_of adds them up."""
    model = new_model()

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> tuple[Tensor, Tensor]:
        hidden = model.layers[0](mb.blocks[0], inputs.x)
        return model.layers[1](mb.blocks[1], hidden.relu()), hidden[: mb.num_seeds]

    task = wb.BatchLoss.of(MICRO, Y, F.cross_entropy)

    def loss_of(out: tuple[Tensor, Tensor], mb: wb.MiniBatch) -> Tensor:
        logits, hidden = out
        return task(logits, mb) + 0.1 * hidden.square().sum() / task.divisor

    loss = wb.accumulate(model, MICRO, lambda mb: X[mb.node_ids], loss_of, forward=forward)
    ours = loss, gradients(model)
    model.zero_grad()
    logits, hidden = forward(BATCH, wb.Inputs(X[BATCH.node_ids]))
    whole = F.cross_entropy(logits, Y[BATCH.seeds]) + 0.1 * hidden.square().sum(1).mean()
    whole.backward()
    assert_same(ours, (whole.detach(), gradients(model)))


def test_an_output_that_is_no_tensor_names_accumulate() -> None:
    model = new_model()
    with pytest.raises(TypeError, match=r"returned range; .* call workbench.accumulate\(model, micro, read, loss_of\)"):
        step(model, MICRO, forward=lambda mb, inputs: range(mb.num_seeds))


def test_gradient_clipping_and_a_scheduler() -> None:
    """Between accumulation and the optimizer step, over two steps; the oracle is plain torch on the whole batch."""
    models = [new_model(), new_model()]
    for model, micro in zip(models, (MICRO, [BATCH]), strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(2):
            optimizer.zero_grad()
            if len(micro) > 1:
                loss_of = wb.BatchLoss.of(micro, Y, F.cross_entropy)
                wb.accumulate(model, micro, lambda mb: X[mb.node_ids], loss_of)
            else:
                F.cross_entropy(model(BATCH.blocks, X[BATCH.node_ids]), Y[BATCH.seeds]).backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            assert norm > 0.1
            optimizer.step()
            scheduler.step()
    ours, theirs = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models)
    assert relative_difference(ours, theirs) <= TOLERANCE
    assert relative_difference(ours, torch.cat([p.detach().flatten() for p in new_model().parameters()])) > 1e-3


def test_prefetched_batches_train_through_forward() -> None:
    model, other = new_model(), new_model()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
    steps = list(wb.batches(GRAPH, torch.arange(40), sampler=wb.NeighborSampler([3, 3]), batch_size=16))
    for _, mb in wb.prefetch(steps):
        wb.train_step(model, mb, X, Y, F.cross_entropy, optimizers[0], forward=checkpointed(model))
    for _, mb in steps:
        wb.train_step(other, mb, X, Y, F.cross_entropy, optimizers[1])
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recover", [None, wb.Recovery()])
def test_steps_in_one_autocast_context_use_the_weights_of_the_step_before(recover: wb.Recovery | None) -> None:
    """Autocast keeps converted weights until its outermost context ends."""

    def losses(outer: bool) -> list[float]:
        model = wb.build_model("sage-mean", in_dim=4, hidden_dim=8, out_dim=3, seed=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        found = []
        with torch.autocast("cpu", torch.bfloat16) if outer else nullcontext():
            for _ in range(3):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = wb.train_step(model, MICRO, X.float(), Y, F.cross_entropy, optimizer, recover=recover)
                found.append(float(loss))
        return found

    together = losses(outer=True)
    assert together == losses(outer=False) and len(set(together)) == 3

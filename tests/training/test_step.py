"""`train_step` with a custom model: feature sources, labels, phases, refusals; all layers are in test_exactness.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.toys import PlainModel, gradients, relative_difference, toy_batch
from workbench.core.minibatch import MiniBatch
from workbench.nn.losses import SeedLoss
from workbench.nn.model import build_model
from workbench.training.step import train_step

X = torch.linspace(-1, 1, 160, dtype=torch.float64).sin().view(40, 4)
Y = torch.arange(40) % 3


class Store:
    def __init__(self, rows: Tensor) -> None:
        self.rows, self.reads = rows, 0

    def read(self, ids: Tensor) -> Tensor:
        self.reads += 1
        return self.rows[ids]


def new_model() -> nn.Module:
    torch.manual_seed(1)
    return PlainModel().double()


def cut(mb: MiniBatch, part: list[int]) -> list[MiniBatch]:
    return mb.split(torch.tensor(part))


PART = [0] + [1] * 5 + [2] * 7


def test_a_step_equals_that_of_the_whole_batch() -> None:
    mb, ours, theirs = toy_batch(), new_model(), new_model()
    loss = F.cross_entropy(theirs(mb.blocks, X[mb.node_ids]), Y[mb.seeds])
    loss.backward()
    torch.optim.Adam(theirs.parameters()).step()
    step_loss = train_step(ours, cut(mb, PART), X, Y, F.cross_entropy, torch.optim.Adam(ours.parameters()))
    torch.testing.assert_close(step_loss, loss.detach(), rtol=1e-13, atol=0)
    assert relative_difference(gradients(ours), gradients(theirs)) <= 1e-13
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-10)  # Adam divides by gradients near 0


def test_earlier_gradients_are_zeroed() -> None:
    mb, model = toy_batch(), new_model()
    frozen, rest = list(model.parameters())[:1], list(model.parameters())[1:]
    optimizer = torch.optim.SGD(rest, lr=0.0)
    for _ in range(2):
        train_step(model, mb, X, Y, F.cross_entropy, optimizer)
    assert frozen[0].grad is not None
    once = new_model()
    train_step(once, mb, X, Y, F.cross_entropy, torch.optim.SGD(once.parameters(), lr=0.0))
    torch.testing.assert_close(gradients(model), gradients(once))


def test_trainable_features_receive_gradients() -> None:
    mb, model, x = toy_batch(), new_model(), nn.Parameter(X.clone())
    for _ in range(2):
        train_step(model, cut(mb, PART), x, Y, F.cross_entropy, torch.optim.SGD([x], lr=0.0))
    ours, x.grad = x.grad, None
    F.cross_entropy(model(mb.blocks, x[mb.node_ids]), Y[mb.seeds]).backward()
    torch.testing.assert_close(ours, x.grad)


@pytest.mark.parametrize("store", [lambda rows: rows, lambda rows: rows.numpy(), Store])
def test_features_and_labels_from_tensors_arrays_and_stores(store: type) -> None:
    losses = []
    for x, y in ((X, Y), (store(X), store(Y))):
        model = new_model()
        losses.append(
            train_step(model, cut(toy_batch(), PART), x, y, F.cross_entropy, torch.optim.SGD(model.parameters()))
        )
    assert losses[0] == losses[1]


def test_a_micro_batch_without_labels_contributes_nothing() -> None:
    mb, model = toy_batch(), new_model()
    y = Y.clone()
    y[mb.seeds[:6]] = -1
    loss = train_step(model, cut(mb, PART), X, y, F.cross_entropy, torch.optim.SGD(model.parameters()))
    ours = gradients(model)
    model = new_model()
    whole = F.cross_entropy(model(mb.blocks, X[mb.node_ids]), y[mb.seeds], ignore_index=-1)
    whole.backward()
    torch.testing.assert_close(loss, whole.detach())
    assert relative_difference(ours, gradients(model)) <= 1e-13


def test_a_batch_without_labels_is_refused_before_anything_changes() -> None:
    model = new_model()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="none of the batch's 13 seeds has a label"):
        train_step(model, toy_batch(), X, torch.full((40,), -1), F.cross_entropy, torch.optim.Adam(model.parameters()))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_half_precision_trains() -> None:
    model = new_model().to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = [
        float(train_step(model, cut(toy_batch(), PART), X.bfloat16(), Y, F.cross_entropy, optimizer)) for _ in range(30)
    ]
    assert losses[-1] < losses[0] * 0.8


@pytest.mark.parametrize(("name", "x", "y"), [("x", X[:5], Y), ("y", X, Y[:1])])
def test_too_few_rows_are_refused(name: str, x: Tensor, y: Tensor) -> None:
    model = new_model()
    with pytest.raises(IndexError, match=f"{name} has . rows"):
        train_step(model, toy_batch(), x, y, F.cross_entropy, torch.optim.SGD(model.parameters()))


def test_an_unknown_reduction_is_refused() -> None:
    model = new_model()
    with pytest.raises(ValueError, match="reduction 'average' is not known"):
        train_step(model, toy_batch(), X, Y, F.cross_entropy, torch.optim.SGD(model.parameters()), reduction="average")


def test_labels_may_be_numpy_arrays_of_any_integer_dtype() -> None:
    model, y = new_model(), np.asarray(Y, dtype=np.int32)
    assert float(train_step(model, toy_batch(), X, y, F.cross_entropy, torch.optim.SGD(model.parameters()))) > 0


def test_trainable_edge_weights_receive_gradients() -> None:
    """Each part has its own autograd path to the weights, even if two blocks' weights share one storage."""
    mb, gradients = toy_batch(), []
    model = build_model("sage-mean", in_dim=4, hidden_dim=5, out_dim=3).double()
    x, y = torch.randn(40, 4, dtype=torch.float64), torch.arange(40) % 3
    for num_parts in (1, 3):
        weights = torch.linspace(0.5, 1.5, mb.num_edges, dtype=torch.float64, requires_grad=True)
        first, second = mb.blocks
        blocks = (
            replace(first, edge_weight=weights[: first.num_edges]),
            replace(second, edge_weight=weights[first.num_edges :]),
        )
        whole = replace(mb, blocks=blocks)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        train_step(model, whole.split(torch.arange(13) % num_parts), x, y, F.cross_entropy, optimizer)
        assert weights.grad is not None
        gradients.append(weights.grad)
    assert gradients[0].norm() > 0
    assert (gradients[0] - gradients[1]).norm() <= 1e-12 * gradients[0].norm()


def test_a_partial_with_another_reduction_is_refused() -> None:
    model = PlainModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loss = partial(F.cross_entropy, reduction="sum")
    with pytest.raises(ValueError, match="reduces by 'sum', the step by 'mean'"):
        train_step(model, toy_batch(), torch.randn(40, 4), torch.zeros(40, dtype=torch.int64), loss, optimizer)


def test_uint8_labels_are_not_mistaken_for_unlabelled() -> None:
    labelled = SeedLoss.of(F.cross_entropy, "mean").labelled(torch.tensor([255, 0, 156], dtype=torch.uint8))
    assert labelled is not None and labelled.all()


def test_phases_are_entered_in_order_and_do_not_overlap() -> None:
    events = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        events.append(name)
        yield
        events.append(f"/{name}")

    model, x = new_model(), Store(X)
    train_step(model, cut(toy_batch(), PART), x, Y, F.cross_entropy, torch.optim.SGD(model.parameters()), phase=phase)
    micro = ["fetch", "transfer", "forward", "backward"]
    assert events == [e for name in ["step", *3 * micro, "step"] for e in (name, f"/{name}")]


def test_each_phase_contains_its_work() -> None:
    mb, model, inside = toy_batch(), new_model(), [""]

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        inside[0] = name
        yield
        inside[0] = ""

    seen = {}

    class Watched(Store):
        def read(self, ids: Tensor) -> Tensor:
            seen["read"] = inside[0]
            return super().read(ids)

    def loss(out: Tensor, labels: Tensor) -> Tensor:
        seen["loss"] = inside[0]
        return out.sum(1)

    model.register_forward_hook(lambda *_: seen.update(model=inside[0]))
    next(model.parameters()).register_hook(lambda _: seen.update(gradient=inside[0]))
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.register_step_post_hook(lambda *_: seen.update(optimizer=inside[0]))
    train_step(model, mb, Watched(X), Y, loss, optimizer, phase=phase)
    assert seen == {"read": "fetch", "model": "forward", "loss": "forward", "gradient": "backward", "optimizer": "step"}

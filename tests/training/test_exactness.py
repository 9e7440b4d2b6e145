"""Micro-batch training is exact: losses, gradients and steps for every layer, partition and reduction.

The oracle is plain autograd on the whole batch: one forward pass, one torch loss, one backward pass.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.covering import pairwise
from tests.partitioners import skip_without_library
from tests.strategies import random_graph, random_minibatch
from tests.training.toys import gradients, relative_difference
from workbench.core.minibatch import MiniBatch
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS, build_model
from workbench.partition.batch import PARTITION_METHODS, partition_batch
from workbench.partition.graph import partition_graph
from workbench.training.step import train_step

TOLERANCE = 1e-10
NUM_NODES, IN_DIM, CLASSES = 120, 6, 4
COUNTS = (1, 2, 3, 5, 8, 32)
KINDS = (*MODEL_KINDS, *TYPED_MODEL_KINDS)
GRAPH = random_graph(NUM_NODES, 900, seed=5, edge_weight=torch.float64, num_edge_types=3)
BATCH = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=40, seed=2, step=11)
X = torch.linspace(-9, 9, NUM_NODES * IN_DIM, dtype=torch.float64).sin().view(NUM_NODES, IN_DIM)
Y = (torch.arange(NUM_NODES) * 7) % CLASSES
PARTLY = torch.where(torch.arange(NUM_NODES) % 3 == 0, -1, Y)
MULTI = (X[:, :CLASSES] > 0.2).double()


@cache
def cut(method: str, num_parts: int) -> list[MiniBatch]:
    skip_without_library(method)
    node_parts = partition_graph(GRAPH, 8, method="random", seed=0) if method == "cluster" else None
    return BATCH.split(partition_batch(BATCH, num_parts, method=method, seed=1, node_parts=node_parts))


def unequal(sizes: tuple[int, ...]) -> list[MiniBatch]:
    """Parts of given sizes, of seeds in random order."""
    part = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return BATCH.split(part[torch.randperm(len(part), generator=torch.Generator().manual_seed(3))])


def new_model(kind: str, *, num_layers: int = 2, dropout: float = 0.0, norm: str | None = None) -> nn.Module:
    heads = 2 if kind == "gat" else 1
    sizes: dict[str, Any] = {"in_dim": IN_DIM, "hidden_dim": 8, "out_dim": CLASSES, "num_layers": num_layers}
    relations: dict[str, Any] = {"num_relations": 3, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    return build_model(kind, **sizes, **relations, dropout=dropout, norm=norm, heads=heads, seed=4).double()


def whole(
    model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], mb: MiniBatch = BATCH
) -> tuple[Tensor, Tensor]:
    """Loss and gradients of the whole batch by plain autograd."""
    model.zero_grad()
    loss = loss_of(model(mb.blocks, X[mb.node_ids], node_ids=mb.node_ids, step=mb.step), mb.seeds)
    loss.backward()
    return loss.detach(), gradients(model)


def assert_exact(
    model: nn.Module,
    micro: list[MiniBatch],
    expected: tuple[Tensor, Tensor],
    y: Tensor = Y,
    loss_fn: Callable[..., Tensor] = F.cross_entropy,
    reduction: str = "mean",
) -> None:
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    loss = train_step(model, micro, X, y, loss_fn, frozen, reduction=reduction)
    assert relative_difference(gradients(model), expected[1]) <= TOLERANCE
    assert abs(loss - expected[0]) <= TOLERANCE * abs(expected[0])


@pytest.mark.parametrize(("kind", "method", "num_parts"), pairwise(KINDS, PARTITION_METHODS, COUNTS))
def test_every_layer_method_and_number_of_parts(kind: str, method: str, num_parts: int) -> None:
    model = new_model(kind, dropout=0.5, norm="layer")
    expected = whole(model, lambda out, seeds: F.cross_entropy(out, Y[seeds]))
    assert expected[1].norm() > 1e-3
    assert_exact(model, cut(method, num_parts), expected)


@pytest.mark.parametrize("sizes", [(1, 39), (39, 1), (1, 2, 37), (1,) * 40])
@pytest.mark.parametrize("kind", KINDS)
def test_unequal_parts(kind: str, sizes: tuple[int, ...]) -> None:
    model = new_model(kind)
    assert_exact(model, unequal(sizes), whole(model, lambda out, seeds: F.cross_entropy(out, Y[seeds])))


LOSSES = {
    "classes": (F.cross_entropy, Y),
    "partly labelled": (partial(F.cross_entropy, ignore_index=-1), PARTLY),
    "class weights": (
        partial(F.cross_entropy, weight=torch.arange(1.0, 5.0, dtype=torch.float64), ignore_index=-1),
        PARTLY,
    ),
    "multi-labels": (F.binary_cross_entropy_with_logits, MULTI),
    "regression": (F.mse_loss, X[:, :CLASSES]),
}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["sage-mean", "gat"])
def test_every_loss_and_reduction(kind: str, name: str, reduction: str) -> None:
    loss_fn, y = LOSSES[name]
    model = new_model(kind)
    expected = whole(model, lambda out, seeds: loss_fn(out, y[seeds], reduction=reduction))
    for micro in (cut("random", 5), unequal((1, 9, 30))):
        assert_exact(model, micro, expected, y, loss_fn, reduction)


@pytest.mark.parametrize("kind", KINDS)
def test_three_layers_with_dropout(kind: str) -> None:
    mb = random_minibatch(GRAPH, fanouts=(3, 2, 2), num_seeds=20, seed=3, step=6)
    model = new_model(kind, num_layers=3, dropout=0.5)
    expected = whole(model, lambda out, seeds: F.cross_entropy(out, Y[seeds]), mb)
    assert_exact(model, mb.split(torch.arange(20) % 6), expected)


def test_dropout_is_active_and_depends_on_the_step() -> None:
    """Otherwise the tests above would prove nothing about dropout."""
    model = new_model("sage-mean", dropout=0.5)
    loss_of = lambda out, seeds: F.cross_entropy(out, Y[seeds])  # noqa: E731
    dropped = whole(model, loss_of)[1]
    assert relative_difference(whole(model.eval(), loss_of)[1], dropped) > 0.01
    other = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=40, seed=2, step=12)
    assert torch.equal(other.node_ids, BATCH.node_ids)
    assert relative_difference(whole(model.train(), loss_of, other)[1], dropped) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_after_steps_of_adam(kind: str) -> None:
    ours, theirs = new_model(kind, dropout=0.5), new_model(kind, dropout=0.5)
    our_adam, their_adam = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (ours, theirs))
    for micro in (cut("random", 3), unequal((1, 39)), cut("range", 8)):
        whole(theirs, lambda out, seeds: F.cross_entropy(out, PARTLY[seeds], ignore_index=-1))
        their_adam.step()
        train_step(ours, micro, X, PARTLY, F.cross_entropy, our_adam)
    # Adam divides by the root of the squared gradient plus 1e-8: rounding shows where a gradient is nearly 0
    a, b = (torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (ours, theirs))
    assert relative_difference(a, b) <= 1e-8


def test_batch_norm_is_inexact_and_warns() -> None:
    model = new_model("sage-mean", norm="batch")
    expected = whole(model, lambda out, seeds: F.cross_entropy(out, Y[seeds]))
    assert_exact(model, [BATCH], expected)  # one part: exact, and warnings are errors here
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.warns(RuntimeWarning, match="statistics of each micro-batch"):
        train_step(model, cut("random", 3), X, Y, F.cross_entropy, frozen)
    assert relative_difference(gradients(model), expected[1]) > 1e-3

"""Epochs: their batches, their rows, and equal learning curves of whole batches and micro-batches."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tests.covering import chessboard
from tests.strategies import random_graph
from workbench.core.minibatch import MiniBatch
from workbench.nn.model import build_model
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.epoch import epoch_steps, train_epochs
from workbench.training.fetched import fetch_rows

NODES, IN_DIM, CLASSES = 150, 8, 4
GRAPH = random_graph(NODES, 1200, seed=7)
IDS = torch.arange(0, NODES, 2)
Y = (torch.arange(NODES) * 7) % CLASSES
X = torch.linspace(-9, 9, NODES * IN_DIM, dtype=torch.float64).sin().view(NODES, IN_DIM) + Y[:, None] / 4
SAMPLER = NeighborSampler([4, 3], seed=1)
steps_of = partial(epoch_steps, GRAPH, IDS, sampler=SAMPLER)


def new_model(kind: str, dropout: float = 0.5) -> nn.Module:
    heads = 2 if kind == "gat" else 1
    model = build_model(kind, in_dim=IN_DIM, hidden_dim=8, out_dim=CLASSES, dropout=dropout, heads=heads, seed=3)
    return model.double()


def train(kind: str, steps: Callable[[int], Iterator[list[MiniBatch]]], epochs: int) -> tuple[list[float], nn.Module]:
    model = new_model(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rows = list(train_epochs(model, steps, X, Y, cross_entropy, optimizer, epochs=epochs))
    assert [row["epoch"] for row in rows] == list(range(1, epochs + 1))
    return [row["loss"] for row in rows], model


def seeds(steps: Iterator[list[MiniBatch]]) -> list[list[list[int]]]:
    return [[mb.seeds.tolist() for mb in step] for step in steps]


@pytest.mark.parametrize(("batches", "parts", "sizes"), [(1, 1, [75]), (4, 1, [19, 19, 19, 18]), (2, 3, [38, 37])])
def test_every_id_is_in_one_micro_batch(batches: int, parts: int, sizes: list[int]) -> None:
    found = seeds(steps_of(num_batches=batches, num_parts=parts, method="random"))
    assert [sum(map(len, step)) for step in found] == sizes
    assert all(len(step) == parts for step in found)
    assert sorted(node for step in found for part in step for node in part) == IDS.tolist()


def test_fetched_rows_are_those_of_the_ids_asked_for() -> None:
    """Without a copy for the batch's ids and the first of them; other views of the same memory are other ids."""
    (step,) = epoch_steps(GRAPH, IDS, sampler=SAMPLER, num_batches=1)
    (fetched,) = fetch_rows(step, X, Y)
    ids = fetched.batch.node_ids
    for asked in (ids, ids[:5], ids[::2], ids[3:], ids.flip(0), ids[1::3], ids[:1]):
        assert torch.equal(fetched.x.read(asked), X[asked])
        assert (fetched.x.copy_of(asked) is not None) == (asked.data_ptr() == ids.data_ptr() and asked.is_contiguous())


@pytest.mark.parametrize("count", [4, 6, 9, 10])
def test_the_number_of_batches_is_as_requested(count: int) -> None:
    """Batches of ⌈10 / 6⌉ = 2 seeds would be five batches, not six."""
    found = seeds(epoch_steps(GRAPH, IDS[:10], sampler=SAMPLER, num_batches=count))
    sizes = [len(part) for (part,) in found]
    assert len(sizes) == count and max(sizes) - min(sizes) <= 1
    assert sorted(node for (part,) in found for node in part) == IDS[:10].tolist()


def test_each_epoch_samples_anew_regardless_of_the_number_of_parts() -> None:
    (first,), (again,), (later,) = (next(steps_of(epoch=epoch)) for epoch in (0, 0, 1))
    assert torch.equal(first.node_ids, again.node_ids)
    assert (first.step, later.step) == (0, 1) and not torch.equal(first.node_ids, later.node_ids)
    micro = next(steps_of(num_parts=5, method="random"))
    assert set(torch.cat([mb.node_ids for mb in micro]).tolist()) == set(first.node_ids.tolist())
    for mb in micro:
        assert mb.parent is not None and torch.equal(first.node_ids[mb.parent], mb.node_ids)


def test_batches_of_all_epochs_have_distinct_steps() -> None:
    found = [mb.step for epoch in range(3) for step in steps_of(num_batches=5, epoch=epoch) for mb in step]
    assert found == list(range(15))


def test_invalid_ids_and_numbers_of_batches_are_refused() -> None:
    for count, message in ((0, "num_batches"), (76, "num_batches is 76 for 75 ids")):
        with pytest.raises(ValueError, match=message):
            next(steps_of(num_batches=count))
    with pytest.raises(ValueError, match="num_batches is 1 for 0 ids"):
        next(epoch_steps(GRAPH, IDS[:0], sampler=SAMPLER))
    for wrong, error in ((torch.tensor([1, 1]), ValueError), (torch.tensor([NODES]), IndexError)):
        with pytest.raises(error, match="ids"):
            next(epoch_steps(GRAPH, wrong, sampler=SAMPLER))


@pytest.mark.parametrize(
    ("kind", "cut_into"), chessboard(["sage-mean", "sage-lstm", "gcn", "gin", "gat"], [(16, "auto"), (3, "random")])
)
def test_whole_batch_and_micro_batches_follow_the_same_curve(kind: str, cut_into: tuple[int, str]) -> None:
    parts, method = cut_into
    if method == "auto":
        pytest.importorskip("pymetis")
    whole, one = train(kind, lambda epoch: steps_of(epoch=epoch), 12)
    cut, other = train(kind, lambda epoch: steps_of(epoch=epoch, num_parts=parts, method=method), 12)
    assert min(whole) < 0.95 * whole[0], "it learns"
    assert max(abs(a - b) for a, b in zip(whole, cut, strict=True)) <= 1e-8
    a, b = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in (one, other))
    assert float((a - b).abs().max()) <= 1e-8


def test_mini_batches_follow_another_curve() -> None:
    """Otherwise the test above would prove nothing."""
    whole = train("sage-mean", lambda epoch: steps_of(epoch=epoch), 4)[0]
    mini = train("sage-mean", lambda epoch: steps_of(epoch=epoch, num_batches=4), 4)[0]
    assert max(abs(a - b) for a, b in zip(whole, mini, strict=True)) > 0.01


def by_hand(model: nn.Module, mb: MiniBatch) -> Tensor:
    return cross_entropy(model(mb.blocks, X[mb.node_ids], node_ids=mb.node_ids, step=mb.step), Y[mb.seeds])


def test_rows_equal_those_of_a_handwritten_loop() -> None:
    model = new_model("sage-mean")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    expected = []
    for epoch in range(3):
        total = 0.0
        for (mb,) in steps_of(num_batches=4, epoch=epoch):
            optimizer.zero_grad()
            loss = by_hand(model, mb)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * mb.num_seeds
        expected.append(total / len(IDS))
    found, trained = train("sage-mean", lambda epoch: steps_of(num_batches=4, epoch=epoch), 3)
    assert found == pytest.approx(expected, rel=1e-10)
    for a, b in zip(model.parameters(), trained.parameters(), strict=True):
        assert float((a - b).detach().abs().max()) <= 1e-8


def test_the_loss_of_an_epoch_is_the_mean_over_labelled_seeds() -> None:
    y = torch.where(torch.arange(NODES) % 3 == 0, -1, Y)
    y[IDS[:9]] = -1  # so that batches differ in how many of their seeds have a label
    model = new_model("sage-mean")
    frozen = torch.optim.SGD(model.parameters(), lr=0.0)
    batches = [mb for (mb,) in steps_of(num_batches=4)]
    losses = torch.cat([unreduced(model, mb, y) for mb in batches])
    labelled = [int((y[mb.seeds] >= 0).sum()) for mb in batches]
    assert len({mb.num_seeds / count for mb, count in zip(batches, labelled, strict=True)}) > 1
    (row,) = train_epochs(model, lambda epoch: [[mb] for mb in batches], X, y, cross_entropy, frozen, epochs=1)
    assert len(losses) == sum(labelled) < len(IDS)
    assert row["loss"] == pytest.approx(float(losses.mean()), rel=1e-10)


def unreduced(model: nn.Module, mb: MiniBatch, y: Tensor) -> Tensor:
    out, labels = model(mb.blocks, X[mb.node_ids], node_ids=mb.node_ids, step=mb.step).detach(), y[mb.seeds]
    return cross_entropy(out[labels >= 0], labels[labels >= 0], reduction="none")


def test_evaluation_is_periodic_and_after_the_last_epoch() -> None:
    model, weights = new_model("gcn"), []
    optimizer = torch.optim.Adam(model.parameters())

    def evaluate() -> dict[str, float]:
        weights.append(next(model.parameters()).detach().clone())
        return {"score": len(weights)}

    rows = list(
        train_epochs(
            *(model, lambda epoch: steps_of(epoch=epoch), X, Y, cross_entropy, optimizer),
            epochs=5,
            evaluate=evaluate,
            evaluate_every=2,
        )
    )
    assert [row.get("score") for row in rows] == [None, 1, None, 2, 3]
    assert torch.equal(weights[-1], next(model.parameters())), "after the epoch's steps"
    assert all(row["num_steps"] == 1 for row in rows)


def test_no_epochs_and_no_steps_are_refused() -> None:
    model = new_model("gcn")
    arguments = (X, Y, cross_entropy, torch.optim.Adam(model.parameters()))
    with pytest.raises(ValueError, match="epochs"):
        next(train_epochs(model, lambda epoch: [], *arguments, epochs=0))
    with pytest.raises(ValueError, match="epoch 0 has no steps"):
        next(train_epochs(model, lambda epoch: [], *arguments, epochs=1))

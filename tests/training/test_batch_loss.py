"""`BatchLoss`: labels read once, the count of labelled seeds, and a mean over the seeds of several processes."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.training.faulty import FEATURES, LABELS, above, faulty, nothing
from tests.training.toys import gradients, relative_difference, toy_batch
from workbench.memory.training_setup import Recovery
from workbench.training.epoch import train_epochs
from workbench.training.step import BatchLoss, train_step

PARTLY = torch.where(torch.arange(40) % 3 == 0, -1, torch.arange(40) % 3)
MULTI = (FEATURES[:, :3] > 0).double()
MB = toy_batch()
MICRO = MB.split(torch.arange(13) % 4)


class Counting:
    """Labels that record which rows are read."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.read_ids = rows, []

    def read(self, ids: Tensor) -> Tensor:
        self.read_ids += ids.tolist()
        return self.rows[ids]


def step(micro: Any, y: Any, loss_fn: Any = F.cross_entropy, **options: Any) -> tuple[Tensor, Tensor]:
    model = faulty(options.pop("fault", nothing))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return train_step(model, micro, FEATURES, y, loss_fn, optimizer, **options), gradients(model)


@pytest.mark.parametrize(
    ("y", "loss_fn"), [(PARTLY, F.cross_entropy), (MULTI, F.binary_cross_entropy_with_logits)], ids=["classes", "multi"]
)
def test_every_label_is_read_once_per_step(y: Tensor, loss_fn: Any) -> None:
    labels = Counting(y)
    step(MICRO, labels, loss_fn)
    assert sorted(labels.read_ids) == sorted(MB.seeds.tolist())


def test_an_epoch_reads_every_label_once() -> None:
    labels, model = Counting(PARTLY), faulty(nothing)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    (row,) = train_epochs(model, lambda epoch: [MICRO], FEATURES, labels, F.cross_entropy, optimizer, epochs=1)
    assert sorted(labels.read_ids) == sorted(MB.seeds.tolist())
    assert row["loss"] == pytest.approx(float(step(MB, PARTLY)[0]), rel=1e-12)


def test_an_epoch_without_labels_is_refused() -> None:
    model, none = faulty(nothing), torch.full((40,), -1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with pytest.raises(ValueError, match="none of the batch's 13 seeds has a label"):
        list(train_epochs(model, lambda epoch: [MICRO], FEATURES, none, F.cross_entropy, optimizer, epochs=1))


def test_pieces_of_a_micro_batch_find_their_labels() -> None:
    fault = above(2, "backward")
    ours = step(MICRO, PARTLY, recover=Recovery(method="range"), fault=fault)
    for mine, other in zip(ours, step(MB, PARTLY), strict=True):
        assert relative_difference(mine, other) <= 1e-12


WEIGHTS = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("y", "loss_fn", "weight"),
    [
        (PARTLY, F.cross_entropy, lambda y: float((y >= 0).sum())),
        (PARTLY, partial(F.cross_entropy, weight=WEIGHTS), lambda y: float(WEIGHTS[y[y >= 0]].sum())),
        (MULTI, F.binary_cross_entropy_with_logits, len),
    ],
)
def test_the_weight_is_the_divisor_of_torchs_mean(y: Tensor, loss_fn: Any, weight: Any) -> None:
    loss = BatchLoss.of(MICRO, y, loss_fn)
    assert loss.weight == loss.divisor == weight(y[MB.seeds])
    assert BatchLoss.of(MICRO, y, loss_fn, reduction="sum").divisor == 1


@pytest.mark.parametrize("as_function", [False, True])
def test_two_processes_divide_by_the_labelled_seeds_of_both(as_function: bool) -> None:
    """Each trains on a part of the seeds; losses and gradients add up to those of the batch."""
    ours = MB.split((torch.arange(13) > 3).long())
    weights = [BatchLoss.of(mb, PARTLY, F.cross_entropy).weight for mb in ours]
    assert len(set(weights)) == 2
    seen: list[float] = []

    def all_reduce(weight: float) -> Tensor:
        seen.append(weight)
        return torch.tensor(sum(weights))

    total: Any = all_reduce if as_function else sum(weights)
    both = [step(mb, PARTLY, total=total) for mb in ours]
    for part, whole in zip(zip(*both, strict=True), step(MB, PARTLY), strict=True):
        assert relative_difference(sum(part, torch.zeros(())), whole) <= 1e-12
    assert seen == (weights if as_function else [])


def test_a_process_without_labels_takes_part() -> None:
    loss, grads = step(MICRO, torch.full((40,), -1), total=5)
    assert loss == 0 and not grads.any()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"total": 0}, ValueError, "total is 0.0; pass the positive number of labelled seeds of all processes"),
        ({"total": float("nan")}, ValueError, "total is nan"),
        ({"total": "13"}, TypeError, "total is a str; pass a number, or a function"),
        ({"total": lambda weight: None}, TypeError, "total is a NoneType"),
        ({"total": 13, "reduction": "sum"}, ValueError, "total is 13, but reduction 'sum' divides by nothing"),
        ({"reduction": "average"}, ValueError, "reduction 'average' is not known"),
    ],
)
def test_wrong_totals_are_refused_before_gradients_are_zeroed(options: Any, error: Any, message: str) -> None:
    model = faulty(nothing)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    train_step(model, MB, FEATURES, LABELS, F.cross_entropy, optimizer)
    with pytest.raises(error, match=message):
        train_step(model, MB, FEATURES, LABELS, F.cross_entropy, optimizer, **options)
    assert gradients(model).any()


def scalar_mean(out: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(out, labels)


def test_the_refusal_of_a_scalar_names_the_line_that_works() -> None:
    line = r'return torch.nn.functional.cross_entropy\(output, labels, reduction="none"\)'
    with pytest.raises(ValueError, match=rf"loss_fn returned shape \(\) for \d seeds.*{line}"):
        step(MICRO, LABELS, scalar_mean)
    fixed = step(MICRO, LABELS, lambda output, labels: F.cross_entropy(output, labels, reduction="none"))
    for mine, other in zip(fixed, step(MB, LABELS), strict=True):
        assert relative_difference(mine, other) <= 1e-12


def test_a_compiled_loss_keeps_its_reduction() -> None:
    loss_fn = torch.nn.CrossEntropyLoss()
    compiled = torch.compile(loss_fn, backend="eager")
    BatchLoss.of([MB], LABELS, compiled)
    assert loss_fn.reduction == compiled.reduction == "mean"


def test_class_weights_of_several_labels_per_seed_are_refused() -> None:
    several = torch.stack([LABELS, LABELS], 1)
    with pytest.raises(ValueError, match=r"class weights, but y has integers of shape \[2\] per seed"):
        BatchLoss.of([MB], several, torch.nn.CrossEntropyLoss(weight=torch.ones(3)))

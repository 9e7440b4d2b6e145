"""When training checks a model by itself, and where the warning points."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.training.exactness import models
from tests.training.exactness.models import BATCH, Centred, Two, X, halves, train
from tests.training.toys import PlainModel, gradients


def test_a_model_is_checked_once_and_warned_of_at_the_callers_line() -> None:
    model = Two(Centred())
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\) makes gradients of micro-batches differ") as caught:
        train(model, halves())
    assert [warning.filename for warning in caught] == [models.__file__]
    train(model, halves())  # warnings are errors here
    model.eval()
    with pytest.warns(RuntimeWarning, match="Centred"):  # its modes have changed
        train(model, halves())


def test_one_micro_batch_and_verify_false_check_nothing() -> None:
    calls: list[int] = []
    model = Two(Centred())
    model.register_forward_hook(lambda *_: calls.append(1))
    train(model, BATCH)
    train(model, halves(), verify=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wb.train_step(model, halves(), X, torch.arange(40) % 3, F.cross_entropy, optimizer, verify=False)
    assert len(calls) == 5
    with pytest.warns(RuntimeWarning, match="Centred"):
        wb.train_step(model, halves(), X, torch.arange(40) % 3, F.cross_entropy, optimizer)


def test_a_batch_that_is_split_after_an_oom_error_is_checked_then() -> None:
    model, failed = Two(Centred()), []

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        if not failed:
            failed.append(mb)
            raise torch.OutOfMemoryError("injected")
        return model(mb.blocks, inputs.x)

    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        train(model, BATCH, forward=forward, recover=wb.Recovery(method="range"))


def test_gradients_are_those_without_the_check() -> None:
    results = []
    for verify in (True, False):
        torch.manual_seed(1)
        model = Two(nn.Dropout(0.5))
        train(model, halves(), verify=verify)
        results.append(gradients(model))
    assert torch.equal(*results)


def test_micro_batches_checks_the_model_that_it_is_told() -> None:
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        wb.micro_batches(BATCH, 2, method="range", model=Two(Centred()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.micro_batches(BATCH, 2, method="range", model=PlainModel())
        wb.micro_batches(BATCH, 2, method="range", model=Two(Centred()), verify=False)

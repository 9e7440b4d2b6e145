"""Partitioners of one's own: a name that every `method=` accepts, and clear errors."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from workbench.partition.batch import partitioner as methods

BATCH = random_minibatch(random_graph(300, 1500, seed=2), fanouts=(3, 5), num_seeds=40, seed=4)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(methods._METHODS)
    yield
    methods._METHODS.clear()
    methods._METHODS.update(before)


def in_turn(mb: wb.MiniBatch, num_parts: int) -> Tensor:
    return torch.arange(mb.num_seeds, dtype=torch.int32) % num_parts


def test_every_method_argument_takes_the_name() -> None:
    assert wb.partition.register_partitioner("in turn")(in_turn) is in_turn
    assert list(wb.partition.PARTITION_METHODS)[-1] == "in turn"
    part = wb.partition_batch(BATCH, 3, method="in turn")
    assert part.dtype == torch.int64 and part.equal(torch.arange(40) % 3)

    given: dict[str, Any] = {"method": "in turn"}
    model = wb.build_model("sage-mean", in_dim=8, hidden_dim=8, out_dim=3, num_layers=2)
    whole = wb.plan_micro_batches(model, BATCH, memory="1GiB", **given)
    half: Any = wb.plan_micro_batches(model, BATCH, memory=whole.peak_bytes * 3 // 4, **given)
    assert half.num_parts > 1 and half.assignment.equal(torch.arange(40) % half.num_parts)
    x, y = torch.randn(300, 8), torch.arange(300) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recover = wb.Recovery(**given)
    assert torch.isfinite(wb.train_step(model, half.micro, x, y, cross_entropy, optimizer, recover=recover))


def test_registering_again_replaces_the_function() -> None:
    wb.partition.register_partitioner("mine")(in_turn)
    wb.partition.register_partitioner("mine")(lambda mb, num_parts: in_turn(mb, num_parts).flip(0))
    assert wb.partition_batch(BATCH, 2, method="mine").equal((torch.arange(40) % 2).flip(0))


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        (torch.arange(39), ValueError, r"the result of 'mine' has shape \(39,\); its first dimension must be 40"),
        (torch.zeros(40), TypeError, "the result of 'mine' must be a tensor of torch.int64"),
        (torch.full((40,), 2), IndexError, r"the result of 'mine' contains 2; ids must be in \[0, 2\)"),
        (None, TypeError, "the result of 'mine'"),
    ],
)
def test_a_result_that_is_no_partition_is_an_error(part: Any, error: type[Exception], message: str) -> None:
    wb.partition.register_partitioner("mine")(lambda mb, num_parts: part)
    with pytest.raises(error, match=message):
        wb.partition_batch(BATCH, 2, method="mine")


@pytest.mark.parametrize("name", ["", "reg", "auto"])
def test_names_of_the_workbench_are_kept(name: str) -> None:
    with pytest.raises(ValueError, match="choose one that is not in auto, fast, range"):
        wb.partition.register_partitioner(name)


def test_the_decorator_needs_its_name() -> None:
    with pytest.raises(TypeError, match=r"@wb\.partition\.register_partitioner"):
        wb.partition.register_partitioner(in_turn)  # pyright: ignore[reportArgumentType]

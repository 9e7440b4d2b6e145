"""Losses over pairs are refused with OOM recovery, however they get their `EdgeBatch`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.training.toys import PlainModel, toy_batch

MB, X = toy_batch(), torch.ones(40, 4)
PAIRS = wb.links.EdgeBatch.from_pairs(torch.tensor([1, 2]), torch.tensor([3, 4]))
PART_OF = {id(MB): PAIRS}


def score(pairs: wb.links.EdgeBatch, h: Tensor) -> Tensor:
    return (h[pairs.src] * h[pairs.dst]).sum()


def by_global(h: Tensor, mb: wb.MiniBatch) -> Tensor:
    return score(PART_OF[id(mb)], h)


def through_another(h: Tensor, mb: wb.MiniBatch) -> Tensor:
    return by_global(h, mb) / 2


def by_closure(parts: list[wb.links.EdgeBatch]) -> Callable[..., Tensor]:
    return lambda h, mb: score(parts[0], h)


class ScoreOf:
    def __init__(self, pairs: wb.links.EdgeBatch) -> None:
        self.pairs = pairs

    def __call__(self, h: Tensor, mb: wb.MiniBatch) -> Tensor:
        return score(self.pairs, h)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "global": by_global,
    "another function": through_another,
    "closure": by_closure([PAIRS]),
    "partial": partial(lambda pairs, h, mb: score(pairs, h), PAIRS),
    "object": ScoreOf(PAIRS),
    "method": ScoreOf(PAIRS).__call__,
}


def accumulate(loss_of: Any, **options: Any) -> Tensor:
    return wb.accumulate(PlainModel(), MB, lambda mb: X[mb.node_ids], loss_of, **options)


@pytest.mark.parametrize("loss_of", LOSSES.values(), ids=LOSSES)
def test_pairs_are_recognised(loss_of: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match=r"can't follow; pass recover=None .*pairs\.split"):
        accumulate(loss_of, recover=wb.Recovery())
    assert torch.isfinite(accumulate(loss_of))


def test_losses_over_seeds_are_not_refused() -> None:
    weights = {"a": [torch.ones(3)]}
    losses = [
        lambda h, mb: (h * weights["a"][0]).sum(),
        wb.BatchLoss.of(MB, torch.arange(40) % 3, torch.nn.functional.cross_entropy),
        wb.BatchLoss.of(MB, torch.arange(40) % 3, torch.nn.CrossEntropyLoss()),
    ]
    for loss_of in losses:
        assert torch.isfinite(accumulate(loss_of, recover=wb.Recovery()))

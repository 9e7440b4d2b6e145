"""Gradients computed separately, as OOM recovery does; the oracle is the same step without recovery."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.faults import out_of_memory
from tests.training.faulty import FEATURES, LABELS, Faulty, above, assert_same, faulty, nothing, run
from tests.training.toys import gradients, toy_batch
from workbench.memory.training_setup import Recovery
from workbench.meter.allocation_tracker import rounded_bytes
from workbench.meter.peak import measure_peak
from workbench.training.step import train_step


def test_other_leaves_receive_their_gradients_once() -> None:
    """Trainable features are not parameters of the model; the failure comes after they, last, have their gradient."""
    mb, results = toy_batch(), []
    for recover in (None, Recovery(parts=3)):
        faults = iter([None] if recover is None else [None, out_of_memory(), None])
        model, x = faulty(nothing), nn.Parameter(FEATURES.clone())

        def fail(_: Tensor, faults: Iterator[Exception | None] = faults) -> None:
            error = next(faults, None)
            if error is not None:
                raise error

        x.register_post_accumulate_grad_hook(fail)
        optimizer = torch.optim.SGD([x], lr=0.0)
        loss = train_step(model, mb.split(torch.arange(13) % 3), x, LABELS, F.cross_entropy, optimizer, recover=recover)
        assert next(faults, "all") == "all"
        assert x.grad is not None
        results.append((loss, x.grad, gradients(model)))
    assert_same(results[1], results[0])


@pytest.mark.parametrize("kind", ["sparse", "dense", "sparse, then dense"])
def test_sparse_gradients_and_parameters_that_only_some_micro_batches_use(kind: str) -> None:
    class Embedded(Faulty):
        def __init__(self) -> None:
            super().__init__(nothing)
            self.rows = nn.Embedding(40, 4, sparse=kind != "dense", dtype=torch.float64)
            self.odd = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, blocks: Any, x: Tensor, *, node_ids: Tensor) -> Tensor:
            h = self.rows(node_ids) * (self.odd if blocks[-1].num_dst % 2 else 1)
            dense = kind == "sparse, then dense" and blocks[-1].num_dst == 6
            return super().forward(blocks, h) + (self.rows.weight.sum() if dense else 0)

    results = []
    for recover in (None, Recovery()):
        torch.manual_seed(5)
        model = Embedded()
        run(model, toy_batch().split(torch.tensor([0] * 4 + [1] * 3 + [2] * 6)), recover)
        grad = model.rows.weight.grad
        assert grad is not None and model.odd.grad is not None and grad.is_sparse == (kind == "sparse")
        results.append((grad.to_dense(), gradients(model.layers), model.odd.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_earlier_gradients_are_kept() -> None:
    ours, theirs, mb = faulty(nothing), faulty(nothing), toy_batch()
    for model in (ours, theirs):
        run(model, mb)
    ours.fault = above(7, "backward")
    run(ours, mb, Recovery())
    run(theirs, mb)
    assert_same((gradients(ours),), (gradients(theirs),))


class Heavy(nn.Module):
    """Four parameters, whose gradients are nearly all that a step needs."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(4096) for _ in range(4))

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        scale = torch.stack([(x[0, 0] * 0 + w).sum() for w in self.weights]).sum()
        return scale.expand(blocks[-1].num_dst, 1)


def test_room_for_the_gradients_twice() -> None:
    """From the second micro-batch on; without recovery there is one gradient at a time beside those in place."""
    model, mb = Heavy().double(), toy_batch()
    each = 4096 * 8
    little = rounded_bytes(torch.get_rng_state().nbytes) + 2048

    def peak(num_parts: int, recover: Recovery | None) -> int:
        micro = mb.split(torch.arange(13) % num_parts)
        run(model, micro, recover)
        model.zero_grad()
        return measure_peak(lambda: run(model, micro, recover))

    assert abs(peak(1, Recovery()) - peak(1, None)) <= little
    assert abs(peak(3, Recovery()) - peak(3, None) - 3 * each) <= little

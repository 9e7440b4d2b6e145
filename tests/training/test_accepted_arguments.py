"""Unusual arguments that are accepted, and when those of generators are validated."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.training.argument_models import X, Y, arguments, frozen
from tests.training.toys import PlainModel, toy_batch
from workbench.training.epoch import epoch_steps, train_epochs
from workbench.training.evaluate import accuracy
from workbench.training.profile import profile_epoch
from workbench.training.step import train_step


def test_an_optimizer_may_have_some_of_the_parameters() -> None:
    model = PlainModel()
    optimizer = torch.optim.SGD(model.layers[1].parameters(), lr=0.1)
    before = [p.clone() for p in model.parameters()]
    train_step(**arguments(model=model, optimizer=optimizer))
    moved = [not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
    assert moved == [False] * 3 + [True] * 3


def test_an_optimizer_may_have_the_features_only() -> None:
    x = X.clone().requires_grad_()
    train_step(**arguments(model=frozen(), x=x, optimizer=torch.optim.SGD([x], lr=0.1)))
    assert not torch.equal(x, X)


def test_arrays_are_features() -> None:
    assert train_step(**arguments(x=X.numpy(), y=Y.numpy())).isfinite()


def test_autocast_may_convert_features() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert train_step(**arguments(x=X.bfloat16())).isfinite()


def test_layers_of_dgl_accept_converted_blocks() -> None:
    """The remedy that the error message suggests works."""
    dgl_nn = pytest.importorskip("dgl.nn")
    from workbench.core.minibatch import MiniBatch

    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([dgl_nn.SAGEConv(4, 5, "mean"), dgl_nn.SAGEConv(5, 3, "mean")])

        def forward(self, blocks, x):
            for layer, block in zip(self.layers, MiniBatch(torch.arange(len(x)), blocks).to_dgl(), strict=True):
                x = layer(block, x)
            return x

    assert train_step(**arguments(model=Adapter())).isfinite()


def test_generators_validate_at_the_call() -> None:
    given = arguments()
    given.pop("micro")
    batch = toy_batch()
    with pytest.raises(ValueError, match="epochs is 0"):
        train_epochs(given.pop("model"), lambda epoch: [[batch]], *given.values(), epochs=0)
    given = arguments(optimizer=torch.optim.LBFGS(PlainModel().parameters()))
    given.pop("micro")
    with pytest.raises(ValueError, match=r"LBFGS\.step requires a closure"):
        train_epochs(given.pop("model"), lambda epoch: [[batch]], *given.values(), epochs=1)
    from tests.strategies import random_graph
    from workbench.sampling.neighbor import NeighborSampler

    for changes, message in (
        ({"seed": 1.5}, "seed is 1.5"),
        ({"num_batches": 0}, "num_batches is 0"),
        ({"num_parts": "4"}, "num_parts is '4'"),
        ({"method": "best"}, "method 'best' is not known"),
    ):
        with pytest.raises(ValueError, match=message):
            epoch_steps(random_graph(), torch.arange(4), sampler=NeighborSampler([2]), **changes)  # pyright: ignore
    with pytest.raises(TypeError, match="convert a mask with"):
        epoch_steps(random_graph(), torch.ones(12, dtype=torch.bool), sampler=NeighborSampler([2]))


def test_a_profile_validates_before_copying() -> None:
    given = arguments(optimizer=torch.optim.Adam(PlainModel().parameters()))
    with pytest.raises(ValueError, match="the optimizer has none of the model's 6 parameters"):
        profile_epoch(given["model"], [[given["micro"]]], X, Y, F.cross_entropy, given["optimizer"])


def test_nan_logits_count_as_wrong_and_warn() -> None:
    logits = torch.tensor([[0.0, 1.0], [float("nan"), 0.0], [float("nan")] * 2, [float("nan")] * 2])
    with pytest.warns(RuntimeWarning, match="logit is NaN or infinite at 2 of 3 labelled nodes, which count as wrong"):
        assert accuracy(logits, torch.tensor([1, 0, 0, -1])) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("logits", "y", "error", "message"),
    [
        (torch.zeros(2, 3), torch.tensor([[0], [1]]), ValueError, r"y \(2, 1\); .* as y\[:, 0\]"),
        (torch.zeros(2), torch.tensor([0, 1]), ValueError, r"logits have shape \(2,\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), IndexError, "y contains class 3, but logits have 3 columns"),
        (np.zeros((2, 3)), torch.tensor([0, 3]), TypeError, r"logits is a ndarray; pass torch.as_tensor\(logits\)"),
    ],
)
def test_accuracy_refuses(logits, y, error, message: str) -> None:
    with pytest.raises(error, match=message):
        accuracy(logits, y)

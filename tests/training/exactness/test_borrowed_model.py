"""Models are tried as they are, whatever wraps them, and left as they were."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.training.exactness.models import BATCH, Centred, Two, X, halves, train
from tests.training.toys import PlainModel


class Cached(nn.Module):
    """Keeps its first input, counts its calls in a buffer, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None
        self.register_buffer("calls", torch.zeros(()))
        self.lstm = nn.LSTM(5, 5, dropout=0.5, num_layers=2)

    def forward(self, h: Tensor) -> Tensor:
        self.first = h if self.first is None else self.first
        self.calls += 1
        torch.rand(1)
        return F.dropout(h, 0.5, self.training) + self.lstm(h[:, None])[0][:, 0]


def test_trying_a_model_leaves_no_trace() -> None:
    torch.manual_seed(3)
    model = Two(nn.Sequential(Cached(), nn.BatchNorm1d(5)))
    outside = nn.Embedding(40, 4)

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        return model(mb.blocks, inputs.x + outside(mb.node_ids))

    hooks = []
    model.register_forward_hook(lambda *_: hooks.append(1))
    forward(BATCH, wb.Inputs(X[BATCH.node_ids])).sum().backward()
    model.layers[1].eval()
    before = copy.deepcopy((model.state_dict(), [p.grad for p in model.parameters()], outside.weight.grad))
    identities = [(id(p), id(p.grad)) for p in model.parameters()]
    attributes = [dict(vars(module)) for module in model.modules()]
    random_state = torch.get_rng_state()
    result = wb.check_exact(model, BATCH, x=X[BATCH.node_ids], forward=forward)
    assert result.exact is False
    after = (model.state_dict(), [p.grad for p in model.parameters()], outside.weight.grad)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert [(id(p), id(p.grad)) for p in model.parameters()] == identities
    for module, attributes_before in zip(model.modules(), attributes, strict=True):
        assert vars(module).keys() == attributes_before.keys()
        assert all(value is attributes_before[name] for name, value in vars(module).items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_an_interrupt_leaves_no_trace() -> None:
    def interrupted(h: Tensor) -> Tensor:
        raise KeyboardInterrupt

    model = Two(interrupted)
    parameters = list(model.parameters())
    with pytest.raises(KeyboardInterrupt):
        wb.check_exact(model, BATCH)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert model.training and model.layers[0].training


def test_tied_parameters_stay_tied_inside() -> None:
    model = Two(dim=5)
    model.layers[1] = model.layers[0]
    assert wb.check_exact(model, BATCH).exact is True


class Single(nn.Module):
    """Computes in float32 only, whatever its parameters are."""

    def forward(self, h: Tensor) -> Tensor:
        if h.dtype == torch.float64:
            raise TypeError("float32 alone")
        return h.sin()


def test_a_model_that_computes_in_float32_alone_is_tried_in_it() -> None:
    result = wb.check_exact(Two(Single()), BATCH)
    assert result.exact is True and result.deviation is not None and result.deviation < 1e-5
    model = Two(nn.Sequential(Single(), Centred()))
    assert wb.check_exact(model, BATCH).module == "between.1"


def test_a_model_with_lazy_parameters_is_checked_when_it_has_been_called() -> None:
    model = Two(nn.Sequential(nn.LazyLinear(5), Centred()))
    assert "uninitialized parameters; call it once" in wb.check_exact(model, BATCH).reason
    with pytest.warns(RuntimeWarning, match=r"Centred \(between.1\)"):
        train(model, halves())  # at its second micro-batch, before a step


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_not_run() -> None:
    traced: Any = torch.jit.trace(nn.Linear(5, 5), torch.ones(1, 5))
    model = Two(traced)
    assert "scripted; check the module that it was made from" in wb.check_exact(model, BATCH).reason


def test_the_module_inside_a_data_parallel_one_is_checked() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Two(Centred())

        def no_sync(self) -> Any:
            return warnings.catch_warnings()

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return self.module(blocks, x)

    assert "communicates; check its .module" in wb.check_exact(Parallel(), BATCH).reason
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        train(Parallel(), halves())


def test_compiled_models_are_run_eagerly() -> None:
    model = torch.compile(Two(Centred()), backend=lambda *_: pytest.fail("it was compiled"))
    assert isinstance(model, nn.Module)
    assert wb.check_exact(model, BATCH, in_dim=4).module == "_orig_mod.between"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_under_autocast_is_tried_in_float64(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = wb.check_exact(PlainModel().to(dtype), BATCH)
    assert result.exact is True and result.deviation is not None and result.deviation < 1e-12

"""Models that return tuples and dictionaries, several losses, and the hook before the step; oracle: plain torch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.memory.measured import compare, is_close, sample
from tests.training.toys import PlainModel, gradients, relative_difference, toy_batch
from workbench.nn.losses import SeedLoss

BATCH = toy_batch()
MICRO = BATCH.split(torch.arange(BATCH.num_seeds) % 3)
X = torch.linspace(-9, 9, 160, dtype=torch.float64).sin().view(40, 4)
Y = torch.arange(40) % 3
SOME = torch.where(torch.arange(40) % 4 == 1, -1, Y)
OUTPUTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda logits, value: (logits, value),
    "list": lambda logits, value: [logits, [value]],
    "dict": lambda logits, value: {"logits": logits, "value": value},
    "named tuple": lambda logits, value: Named(logits, value),
}


class Named(NamedTuple):
    logits: Tensor
    value: Tensor


class TwoHeads(nn.Module):
    """Returns logits and a value per seed, in some structure."""

    def __init__(self, structure: str) -> None:
        super().__init__()
        self.body, self.head, self.pack = PlainModel(out_dim=5), nn.Linear(5, 4), OUTPUTS[structure]

    def forward(self, blocks: tuple[wb.Block, ...], x: Tensor) -> Any:
        out = self.head(self.body(blocks, x))
        return self.pack(out[:, :3], out[:, 3])


def two_losses(out: Any, labels: Tensor) -> Tensor:
    logits, value = out.values() if isinstance(out, dict) else (out[0], out[1])
    value = value[0] if isinstance(value, list) else value
    return F.cross_entropy(logits, labels, reduction="none") + 0.5 * (value - labels).square()


def new_model(structure: str = "tuple") -> TwoHeads:
    torch.manual_seed(0)
    return TwoHeads(structure).double()


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


@pytest.mark.parametrize("y", [Y, SOME], ids=["all labelled", "some labelled"])
@pytest.mark.parametrize("structure", OUTPUTS)
def test_several_losses_of_several_outputs_equal_those_of_the_whole_batch(structure: str, y: Tensor) -> None:
    model = new_model(structure)
    loss = wb.train_step(model, MICRO, X, y, two_losses, sgd(model, 0.0))
    ours = gradients(model)
    model.zero_grad()
    rows = (y[BATCH.seeds] >= 0).nonzero()[:, 0]
    out = model.head(model.body(BATCH.blocks, X[BATCH.node_ids]))[rows]
    labels = y[BATCH.seeds][rows]
    whole = F.cross_entropy(out[:, :3], labels) + 0.5 * F.mse_loss(out[:, 3], labels.double())
    whole.backward()
    assert abs(float(loss - whole.detach())) <= 1e-12
    assert relative_difference(ours, gradients(model)) <= 1e-10


def test_tensors_without_a_row_per_seed_are_passed_whole() -> None:
    seen = []

    def loss_fn(out: Any, labels: Tensor) -> Tensor:
        seen.append((len(out[0]), tuple(out[1].shape), out[2], out[3].dim()))
        return out[0]

    SeedLoss.of(loss_fn, "mean")((torch.ones(5), torch.ones(7, 2), "text", torch.tensor(2.0)), torch.arange(5) - 1)
    assert seen == [(4, (7, 2), "text", 0)]


BUILT_IN = [F.cross_entropy, nn.CrossEntropyLoss(), F.mse_loss, F.binary_cross_entropy_with_logits, F.nll_loss]


@pytest.mark.parametrize("loss_fn", BUILT_IN)
@pytest.mark.parametrize("structure", OUTPUTS)
def test_losses_of_torch_name_the_lines_that_work(loss_fn: Any, structure: str) -> None:
    model = new_model(structure)
    message = r"an output of \w+\(.*torch.float64 \(\d+, 3\).*loss_fn=lambda out, y: .* forward=lambda mb, inputs: "
    with pytest.raises(ValueError, match=message):
        wb.train_step(model, MICRO, X, Y, loss_fn, sgd(model))
    wb.train_step(model, MICRO, X, Y, two_losses, sgd(model))
    if structure == "tuple":
        forward: Any = lambda mb, inputs: model(mb.blocks, inputs.x)[0]  # noqa: E731
        wb.train_step(model, MICRO, X, Y, F.cross_entropy, sgd(model), forward=forward)


def test_several_losses_must_be_added_up() -> None:
    model = new_model()
    with pytest.raises(TypeError, match=r"loss_fn returned a tuple; .* \(of several losses, their sum\)"):
        wb.train_step(model, MICRO, X, Y, lambda out, y: (out[1], out[1]), sgd(model))  # pyright: ignore


def test_memory_of_a_model_with_several_outputs_is_estimated() -> None:
    """The oracle is the meter, around a step of the same model."""
    model, mb = TwoHeads("dict"), sample([4, 6], num_seeds=200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for pair in compare(model, [mb], optimizer, in_dim=4, num_classes=3, loss_fn=two_losses).values():
        assert is_close(pair, 0.02), pair
    options: Any = {"loss_fn": two_losses, "optimizer": optimizer, "in_dim": 4}
    peak = wb.estimate_memory(model, mb, **options).peak_bytes
    assert wb.plan_micro_batches(model, mb, memory=peak - 1, method="random", **options).num_parts == 2


def test_an_estimate_with_a_loss_that_refuses_the_output_says_so() -> None:
    with pytest.raises(ValueError, match=r"output of tuple\(torch.float64 \(\d+, 3\), .*loss_fn=lambda out, y"):
        wb.estimate_memory(new_model(), BATCH, in_dim=4)


def test_gradients_are_clipped_before_the_step() -> None:
    """The oracle is a plain step on the whole batch; also after an epoch of `train_epochs` and through a setup."""

    def clip(model: nn.Module) -> Callable[[], Tensor]:
        return lambda: norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1))  # type: ignore[func-returns-value]

    norms: list[Tensor] = []
    models = [new_model() for _ in range(4)]
    wb.train_step(models[0], MICRO, X, Y, two_losses, sgd(models[0]), before_step=clip(models[0]))
    setup = wb.TrainingSetup(models[1], two_losses, sgd(models[1]), recover=wb.Recovery(method="random"))
    wb.training.train_step_with(setup, MICRO, X, Y, before_step=clip(models[1]))
    options = {"epochs": 1, "before_step": clip(models[2])}
    list(wb.train_epochs(models[2], lambda epoch: [MICRO], X, Y, two_losses, sgd(models[2]), **options))
    optimizer = sgd(models[3])
    two_losses(models[3](BATCH.blocks, X[BATCH.node_ids]), Y[BATCH.seeds]).mean().backward()
    clip(models[3])()
    optimizer.step()
    plain = torch.cat([p.detach().flatten() for p in models[3].parameters()])
    assert len(norms) == 4 and all(abs(norm - norms[-1]) < 1e-10 for norm in norms) and norms[-1] > 0.1
    for model in models[:3]:
        assert relative_difference(torch.cat([p.detach().flatten() for p in model.parameters()]), plain) <= 1e-12


def test_an_error_in_the_hook_leaves_the_parameters() -> None:
    model = new_model()
    before = [p.detach().clone() for p in model.parameters()]

    def refuse() -> None:
        raise RuntimeError("gradients are not finite")

    with pytest.raises(RuntimeError, match="gradients are not finite"):
        wb.train_step(model, MICRO, X, Y, two_losses, sgd(model), before_step=refuse)
    assert all(torch.equal(p, q) for p, q in zip(before, model.parameters(), strict=True))
    with pytest.raises(TypeError, match="before_step is a float; pass a function without arguments"):
        wb.train_step(model, MICRO, X, Y, two_losses, sgd(model), before_step=1.0)  # pyright: ignore[reportArgumentType]


def test_the_hook_is_in_the_phase_of_the_step() -> None:
    model, watch = new_model(), wb.Stopwatch()
    open_phases: list[str] = []
    wb.train_step(
        model,
        MICRO,
        X,
        Y,
        two_losses,
        sgd(model),
        phase=watch.phase,
        before_step=lambda: open_phases.extend(watch._open),
    )
    assert open_phases == ["step"]

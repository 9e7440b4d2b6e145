"""Estimates for modules without an analytic model, against the memory meter on whole micro-batches."""

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.performance.own_models import OWN_MODELS, Attention, Buckets, Jumping, Residual, Sparse, Thresholded
from tests.memory.traced.test_sub_batches import skewed_batch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import TERMS, MemoryEstimate
from workbench.memory.estimator import estimate_memory, estimator_for
from workbench.memory.recovery import Recovery
from workbench.memory.traced.fit import TracedEstimator, fit_memory
from workbench.memory.traced.sub_batches import sub_batches
from workbench.memory.training_setup import TrainingSetup
from workbench.training.epoch_memory import EpochMemory, meter_epoch
from workbench.training.step import train_step

NODES = 6_000
BATCHES = {
    1: skewed_batch(NODES, 2_000, [7]),
    2: skewed_batch(NODES, 700, [4, 6]),
    3: skewed_batch(NODES, 150, [3, 4, 5]),
}
X, Y = torch.randn(NODES, 24), torch.arange(NODES) % 5
WITHIN = 0.1


def split(mb: MiniBatch, num_parts: int) -> list[MiniBatch]:
    """Split into parts of consecutive seeds and uneven lengths."""
    return mb.split((torch.linspace(0, 1, mb.num_seeds) ** 1.5 * num_parts).long().clamp(max=num_parts - 1))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters())


def estimates(fitted: TracedEstimator, parts: Sequence[MiniBatch]) -> list[MemoryEstimate]:
    return [fitted(part, accumulating=position > 0) for position, part in enumerate(parts)]


def before_the_step(estimate: MemoryEstimate) -> int:
    return max(estimate.phase_bytes["forward"], estimate.phase_bytes["backward"])


def measure(
    model: nn.Module,
    parts: Sequence[MiniBatch],
    optimizer: torch.optim.Optimizer,
    y: Tensor = Y,
    loss_fn: Callable[..., Tensor] = F.cross_entropy,
    **options: Any,
) -> EpochMemory:
    """Metered memory of a step, after a warm-up step."""
    x = X.to(next(model.parameters()).dtype)

    def run(step: Sequence[MiniBatch], phase: Any) -> Tensor:
        return train_step(model, step, x, y, loss_fn, optimizer, phase=phase, verify=False, **options)

    train_step(model, parts[-1], x, y, loss_fn, optimizer)
    model.zero_grad()
    return meter_epoch(model, optimizer, [parts], run)


def errors(
    fitted: TracedEstimator, model: nn.Module, mb: MiniBatch, num_parts: int, optimizer: Any = None
) -> list[float]:
    """Relative errors of each part's forward and backward pass, and of the optimizer step."""
    parts = split(mb, num_parts)
    measured, expected = measure(model, parts, optimizer or adam(model)), estimates(fitted, parts)
    pairs = [
        *zip(map(before_the_step, expected), measured.by_part, strict=True),
        (expected[-1].phase_bytes["step"], measured.by_phase["step"]),
    ]
    return [e / m - 1 for e, m in pairs]


EXACT = [kind for kind in OWN_MODELS if kind not in (Buckets, Thresholded)]


@pytest.mark.filterwarnings("ignore:.*uses the statistics of each micro-batch:RuntimeWarning")
@pytest.mark.parametrize(("position", "kind"), [*enumerate(EXACT)])
def test_bytes_that_follow_the_sizes_are_estimated_exactly(position: int, kind: type[nn.Module]) -> None:
    layers = 1 + position % 3
    torch.manual_seed(layers)
    model, mb = kind(24, 32, 5, layers), BATCHES[layers]
    fitted = fit_memory(model, mb, in_dim=24)
    assert fitted.error == 0
    for num_parts in (1, 12):
        assert not any(errors(fitted, model, mb, num_parts))


def test_a_loop_over_in_degrees() -> None:
    """Exact for parts with all in-degrees, approximate for the others."""
    model, mb = Buckets(24, 8, 5, 2), BATCHES[2]
    fitted = fit_memory(model, mb, in_dim=24)
    assert not any(errors(fitted, model, mb, 1))
    assert max(map(abs, errors(fitted, model, mb, 16))) <= WITHIN


class BucketMeans(nn.Module):
    """Sums messages in a loop over the distinct in-degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 5)

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        (block,) = blocks
        degrees, h = block.in_degrees(), self.linear(x)
        out = h[: block.num_dst]
        for degree in degrees.unique().tolist():
            rows = (degrees == degree).nonzero()[:, 0]
            edges = block.indptr[rows][:, None] + torch.arange(degree)
            out = out.index_add(0, rows, h[block.indices[edges].long()].tanh().sum(1))
        return out


def test_a_loop_over_many_in_degrees() -> None:
    mb, model = skewed_batch(6_000, 1_000, [-1]), BucketMeans()
    assert mb.blocks[0].in_degrees().unique().numel() > 40
    fitted = fit_memory(model, mb, in_dim=24)
    assert not any(errors(fitted, model, mb, 1))
    assert max(map(abs, errors(fitted, model, mb, 3))) <= WITHIN


class EdgesByDestinations(nn.Module):
    """Attention over all edges of the batch: edges times destinations, which is not a regressor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 5)

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        (block,) = blocks
        messages = x[block.indices.long()]
        return self.linear(torch.softmax(messages @ x[: block.num_dst].T, 0).T @ messages)


def test_bytes_that_follow_no_regressor_show_in_the_error() -> None:
    """The error bounds the measured bytes of the largest sub-batch."""
    model, mb = EdgesByDestinations(), skewed_batch(NODES, 400, [7])
    fitted, part = fit_memory(model, mb, in_dim=24), sub_batches(mb)[-1]
    peak, fixed = measure(model, [part], adam(model)).by_part[0], fitted(part).fixed_bytes
    assert 1.5 < (peak - fixed) / (before_the_step(fitted(part)) - fixed) < 1 / (1 - fitted.error)


def test_data_dependent_sizes() -> None:
    torch.manual_seed(2)
    model, mb = Thresholded(24, 32, 5, 2), BATCHES[2]
    fitted = fit_memory(model, mb, in_dim=24)
    assert 0 < fitted.error < WITHIN
    for num_parts in (1, 4):
        assert max(map(abs, errors(fitted, model, mb, num_parts))) <= WITHIN


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True),
        lambda p: torch.optim.RMSprop(p),
        lambda p: torch.optim.Adam(list(p)[:2]),
    ],
)
def test_optimizers_of_any_kind(optimizer_of: Callable[..., torch.optim.Optimizer]) -> None:
    model, mb = Jumping(24, 64, 5, 1), BATCHES[1]
    optimizer = optimizer_of(model.parameters())
    fitted = fit_memory(model, mb, in_dim=24, optimizer=optimizer)
    assert not optimizer.state
    assert not any(errors(fitted, model, mb, 2, optimizer))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_optimizers_by_name(name: str) -> None:
    model, mb = Jumping(24, 64, 5, 1).double(), BATCHES[1]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    fitted = fit_memory(model, mb, in_dim=24, optimizer=name)
    assert not any(errors(fitted, model, mb, 2, kind(model.parameters())))


def squared(out: Tensor, labels: Tensor) -> Tensor:
    """A loss per seed that expects one value per seed."""
    assert labels.dim() == 1 and labels.is_floating_point()
    return (out.sum(1) - labels) ** 2


@pytest.mark.parametrize(
    ("loss_fn", "y"),
    [
        (F.binary_cross_entropy_with_logits, torch.rand(NODES, 5)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), Y),
        (squared, torch.rand(NODES)),
    ],
)
def test_losses_of_any_kind(loss_fn: Callable[..., Tensor], y: Tensor) -> None:
    model, mb = Jumping(24, 8, 5, 1), BATCHES[1]
    fitted = fit_memory(model, mb, in_dim=24, loss_fn=loss_fn)
    assert fitted(mb).peak_bytes == measure(model, [mb], adam(model), y, loss_fn).peak_bytes


@pytest.mark.parametrize("model_of", [lambda: Sparse(24, 96, 5, 2).eval(), lambda: Jumping(24, 1024, 5, 2)])
def test_oom_recovery_is_estimated(model_of: Callable[[], nn.Module]) -> None:
    """Counts two sets of gradients, a buffer backup per micro-batch, and a backup of all that the step changes."""
    model, parts = model_of(), split(BATCHES[2], 4)
    fitted = fit_memory(model, BATCHES[2], in_dim=24, recover=True)
    measured, expected = measure(model, parts, adam(model), recover=Recovery()), estimates(fitted, parts)
    assert [before_the_step(estimate) for estimate in expected] == list(measured.by_part)
    assert expected[-1].phase_bytes["step"] == measured.by_phase["step"]


def test_fitting_changes_no_state() -> None:
    torch.manual_seed(0)
    model, mb = Sparse(24, 8, 5, 2), BATCHES[2]
    optimizer = adam(model)
    train_step(model, mb, X, Y, F.cross_entropy, optimizer)
    list(model.norms)[1].eval()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]))
    modes, state, random_state = [m.training for m in model.modules()], torch.get_rng_state(), random.getstate()
    with torch.no_grad():
        fit_memory(model, mb, in_dim=24, optimizer=optimizer)(mb)
        assert not torch.is_grad_enabled()
    after = model.state_dict(), optimizer.state_dict(), [p.grad for p in model.parameters()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert [m.training for m in model.modules()] == modes and random.getstate() == random_state
    assert torch.equal(torch.get_rng_state(), state)


def test_terms_add_up_and_match_known_sizes() -> None:
    model, mb = Residual(24, 16, 5, 2), BATCHES[2]
    estimate = estimate_memory(model, mb, in_dim=24)
    assert tuple(estimate.terms) == TERMS and estimate.backend == "cpu (traced)" and estimate.error == 0
    assert estimate.peak_bytes == sum(estimate.terms.values()) == max(estimate.phase_bytes.values())
    assert estimate.terms["inputs"] == -(-mb.num_inputs * 24 * 4 // 512) * 512
    weights = sum(-(-p.nbytes // 512) * 512 for p in model.parameters())
    assert estimate.terms["parameters"] == weights and estimate.terms["optimizer"] == 2 * weights
    assert estimate.fixed_bytes == 3 * weights
    assert estimate.terms["hidden"] > estimate.terms["inputs"]


def test_an_estimator_serves_all_parts_of_a_batch() -> None:
    model, mb = Attention(24, 16, 5, 2), BATCHES[2]
    estimate = estimator_for(TrainingSetup(model, in_dim=24), mb)
    for part in split(mb, 8):
        assert estimate(part).peak_bytes <= estimate(mb).peak_bytes
        gradients = sum(-(-p.nbytes // 512) * 512 for p in model.parameters())
        more = estimate(part, accumulating=True).peak_bytes - estimate(part).peak_bytes
        assert 0 <= more <= gradients


@pytest.mark.parametrize("num_seeds", [1, 2, 3])
def test_batches_of_a_few_seeds(num_seeds: int) -> None:
    model, mb = Jumping(24, 8, 5, 2), skewed_batch(NODES, num_seeds, [3, 3])
    fitted = fit_memory(model, mb, in_dim=24)
    assert not any(errors(fitted, model, mb, 1))


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 5)

    def forward(self, blocks: Sequence[Block], x: Tensor) -> Tensor:
        if blocks[-1].num_dst < 100:
            raise RuntimeError("too few seeds")
        return self.linear(x)[: blocks[-1].num_dst]


def test_untraceable_modules_are_refused() -> None:
    mb = BATCHES[1]
    with pytest.raises(
        ValueError, match=r"step of Fails on 4 of the seeds .* can't be estimated: RuntimeError: too few"
    ):
        fit_memory(Fails(), mb, in_dim=24)
    with pytest.raises(ValueError, match=r"of in_dim 23.*mat1 and mat2"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=23)
    with pytest.raises(ValueError, match="in_dim is 0"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=0)
    with pytest.raises(ValueError, match="optimizer 'lion'"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=24, optimizer="lion")
    with pytest.raises(ValueError, match="loss_fn accepts neither class labels nor values"):
        fit_memory(Jumping(24, 8, 5, 1), mb, in_dim=24, loss_fn=lambda out, labels: out.sum())


def test_uncopyable_models_are_refused() -> None:
    model = Jumping(24, 8, 5, 1)
    model.cached = model.out(torch.ones(1, 32))[0]  # a non-leaf tensor with its autograd graph
    with pytest.raises(ValueError, match="a Jumping can't be copied"):
        fit_memory(model, BATCHES[1], in_dim=24)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [Attention, Jumping, Residual])
def test_on_a_gpu(kind: type[nn.Module]) -> None:
    model, mb = kind(24, 64, 5, 2).cuda(), BATCHES[2]
    fitted = fit_memory(model, mb, in_dim=24)
    for num_parts in (1, 4):
        assert max(map(abs, errors(fitted, model, mb, num_parts))) <= WITHIN

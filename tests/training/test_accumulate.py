"""`accumulate` with custom models: arguments of the call, freed memory, reduction of data-parallel models."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.devices import CUDA
from tests.training.toys import PlainModel, gradients, relative_difference, toy_batch
from workbench.core.minibatch import MiniBatch
from workbench.meter.peak import measure_peak
from workbench.nn.signature import model_device
from workbench.training.accumulate import accumulate

DEVICES = ["cpu", "meta", CUDA]


def features(num_nodes: int = 40) -> Tensor:
    return torch.linspace(-1, 1, num_nodes * 4, dtype=torch.float64).sin().view(num_nodes, 4)


def cut(mb: MiniBatch, num_parts: int) -> list[MiniBatch]:
    return mb.split(torch.arange(mb.num_seeds) % num_parts)


def test_gradients_and_loss_are_those_of_the_whole_batch() -> None:
    model, mb, x = PlainModel().double(), toy_batch(), features()
    whole = model(mb.blocks, x[mb.node_ids]).square().sum()
    whole.backward()
    expected = gradients(model)
    model.zero_grad()
    loss = accumulate(model, cut(mb, 4), lambda m: x[m.node_ids], lambda out, m: out.square().sum())
    assert relative_difference(gradients(model), expected) <= 1e-12
    assert not loss.requires_grad
    torch.testing.assert_close(loss, whole.detach(), rtol=1e-12, atol=0)


def test_gradients_are_added_to_existing_ones() -> None:
    model, mb, x = PlainModel().double(), toy_batch(), features()
    for _ in range(2):
        accumulate(model, mb, lambda m: x[m.node_ids], lambda out, m: out.sum())
    once = PlainModel().double()
    once.load_state_dict(model.state_dict())
    accumulate(once, iter([mb]), lambda m: x[m.node_ids], lambda out, m: out.sum())
    torch.testing.assert_close(gradients(model), 2 * gradients(once))


class Recorder(nn.Module):
    """Records the arguments of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen: dict[str, Any] = {}

    def _run(self, x: Tensor, **seen: Any) -> Tensor:
        self.seen = seen
        return self.weight * x.sum()


class TakesBoth(Recorder):
    def forward(self, blocks: Any, x: Tensor, *, node_ids: Tensor | None = None, step: int = 0) -> Tensor:
        return self._run(x, node_ids=node_ids, step=step)


class TakesAnything(Recorder):
    def forward(self, blocks: Any, x: Tensor, **kwargs: Any) -> Tensor:
        return self._run(x, **kwargs)


class TakesNothing(Recorder):
    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return self._run(x)


class Wrapper(nn.Module):
    """Passes all arguments on, as data-parallel modules do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any, **kwargs: Any) -> Tensor:
        return self.module(*inputs, **kwargs)


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [lambda m: m, Wrapper, compiled, lambda m: Wrapper(compiled(m))])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (TakesNothing, set()),
        (TakesBoth, {"node_ids", "step"}),
        (TakesAnything, {"node_ids", "step"}),
    ],
)
def test_a_model_receives_the_arguments_that_its_forward_names(
    kind: type[Recorder], names: set[str], wrap: Any
) -> None:
    inner, mb = kind(), toy_batch(step=7)
    accumulate(wrap(inner), mb, lambda m: torch.ones(1), lambda out, m: out)
    assert set(inner.seen) == names
    assert inner.seen.get("step", 7) == 7
    assert torch.equal(inner.seen.get("node_ids", mb.node_ids), mb.node_ids)


@pytest.mark.parametrize("device", DEVICES)
def test_a_micro_batch_moves_to_the_models_device(device: str) -> None:
    model, mb, x = PlainModel().double().to(device), toy_batch(), features()

    def loss_of(out: Tensor, m: MiniBatch) -> Tensor:
        assert m.device.type == "cpu"
        return out.sum()

    loss = accumulate(model, cut(mb, 2), lambda m: x[m.node_ids], loss_of)
    assert loss.device.type == gradients(model).device.type == device


def test_a_micro_batch_is_freed_before_the_next_one_starts() -> None:
    model, x = PlainModel().double(), features()
    left: list[weakref.ref] = []

    def keep(tensor: Tensor) -> Tensor:
        left.append(weakref.ref(tensor.untyped_storage()))
        return tensor

    def read(m: MiniBatch) -> Tensor:
        assert all(ref() is None for ref in left)
        return keep(x[m.node_ids])

    micro = cut(toy_batch(), 5)
    accumulate(model, micro, read, lambda out, m: keep(keep(out).sum()))
    assert len(left) == 15
    assert all(ref() is None for ref in left)
    assert all("destinations" not in vars(block) for m in micro for block in m.blocks)  # cached by the toy's layers


def test_peak_is_that_of_the_largest_micro_batch() -> None:
    model, mb = PlainModel(hidden_dim=256).double(), toy_batch(300, 200)
    x = features(300)

    def peak(micro: list[MiniBatch]) -> int:
        accumulate(model, micro, lambda m: x[m.node_ids], lambda out, m: out.sum())  # gradients exist from now on
        return measure_peak(lambda: accumulate(model, micro, lambda m: x[m.node_ids], lambda out, m: out.sum()))

    micro = cut(mb, 8)
    largest = max(peak([m]) for m in micro)
    assert largest <= peak(micro) <= largest + 1024  # the sum of the losses
    assert peak(micro) < peak([mb]) / 2


class Normalized(PlainModel):
    """Batch normalization between its two layers."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5, **options)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        first, second = self.layers
        return second(blocks[1], self.norm(first(blocks[0], x)).tanh())


def batch_norm_model(**options: Any) -> nn.Module:
    return Normalized(**options).double()


def run(model: nn.Module, num_parts: int) -> None:
    accumulate(model, cut(toy_batch(), num_parts), lambda m: features()[m.node_ids], lambda out, m: out.sum())


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_warns_of_micro_batches(training: bool) -> None:
    model = batch_norm_model(track_running_stats=training).train(training)
    with pytest.warns(RuntimeWarning, match=r"BatchNorm1d \(norm\) makes .* statistics of each"):
        run(model, 2)


def test_batch_norm_gives_no_warning_on_one_batch_or_with_fixed_statistics() -> None:
    run(batch_norm_model(), 1)  # warnings are errors here
    run(batch_norm_model().eval(), 2)


def test_a_loss_must_be_a_scalar() -> None:
    with pytest.raises(ValueError, match=r"shape \(13, 3\)"):
        accumulate(PlainModel(), toy_batch(), lambda m: features().float()[m.node_ids], lambda out, m: out)


def test_the_loss_of_no_micro_batches_is_zero() -> None:
    assert float(accumulate(PlainModel(), [], lambda m: None, lambda out, m: out)) == 0


def test_models_without_parameters_have_no_device() -> None:
    assert model_device(nn.Identity()) is None


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/init", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("own_call", [False, True])
def test_data_parallel_models_reduce_once_per_batch(own_call: bool) -> None:
    model, mb, x = PlainModel().double(), toy_batch(), features()
    accumulate(model, mb, lambda m: x[m.node_ids], lambda out, m: out.square().sum())
    expected = gradients(model)
    model.zero_grad()
    parallel, reduced = DistributedDataParallel(model), []

    def hook(state, bucket) -> torch.futures.Future[Tensor]:
        reduced.append(bucket.index())
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    parallel.register_comm_hook(None, hook)
    forward = (lambda m, inputs: parallel(m.blocks, inputs.x)) if own_call else None
    accumulate(parallel, cut(mb, 3), lambda m: x[m.node_ids], lambda out, m: out.square().sum(), forward=forward)
    assert relative_difference(gradients(model), expected) <= 1e-12
    assert reduced == [0]

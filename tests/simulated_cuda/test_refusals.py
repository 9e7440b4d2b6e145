"""The simulated device refuses what CUDA refuses, and leaves no trace in torch."""

import copy
import importlib
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.simulated_cuda import SimulatedDevice, simulated_cuda

HOST = torch.arange(6.0)
MIXED = "Expected all tensors to be on the same device"


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there: the simulation is off")
    with simulated_cuda(64 << 20) as simulated:
        yield simulated


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + HOST,
        lambda x: HOST.clone().add_(x),
        lambda x: torch.zeros(()).add_(x.sum()),
        lambda x: torch.cat([x, HOST]),
        lambda x: x.index_select(0, torch.tensor([1])),
        lambda x: x.gather(0, torch.tensor([1])),
        lambda x: x.index_add_(0, torch.tensor([1]), torch.ones(1, device="cuda")),
        lambda x: HOST[torch.tensor([1], device="cuda")],
        lambda x: x.index_put_((torch.tensor([0, 1]),), HOST[:2]),
        lambda x: torch.where(x > 0, x, HOST),
        lambda x: x @ HOST,
        lambda x: torch.searchsorted(HOST, x),
        lambda x: nn.functional.cross_entropy(x.view(2, 3), torch.tensor([0, 1])),
        lambda x: nn.Linear(6, 1)(x),
        lambda x: torch.bincount(x.long(), weights=HOST),
        lambda x: x.repeat_interleave(torch.arange(6)),
    ],
)
def test_operands_on_two_devices(device: SimulatedDevice, operation: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(RuntimeError, match=MIXED):
        operation(HOST.cuda())


def test_allowed_mixtures(device: SimulatedDevice) -> None:
    x = HOST.cuda()
    assert torch.equal((x + torch.tensor(2.0)).cpu(), HOST + 2)
    assert torch.equal(x[torch.tensor([1, 2])].cpu(), HOST[1:3])
    x[torch.tensor([0])] = torch.tensor(7.0)
    x.masked_fill_(x == 7, torch.tensor(8.0))
    assert x[0].item() == 8 and x.clone().copy_(HOST).cpu().equal(HOST) and HOST.clone().copy_(x)[0] == 8


@pytest.mark.parametrize(
    ("operation", "error", "message"),
    [
        (lambda x: x.numpy(), TypeError, "can't convert cuda:0 device type tensor to numpy"),
        (lambda x: np.asarray(x), TypeError, "can't convert cuda:0 device type tensor to numpy"),
        (lambda x: torch.empty(1, device="cuda:1"), RuntimeError, "invalid device ordinal"),
        (lambda x: HOST.to("cuda:3"), RuntimeError, "invalid device ordinal"),
        (lambda x: torch.cuda.set_device(1), RuntimeError, "invalid device ordinal"),
        (lambda x: torch.cuda.synchronize("cuda:1"), RuntimeError, "invalid device ordinal"),
        (lambda x: torch.cuda.synchronize("cpu"), ValueError, "Expected a cuda device"),
        (lambda x: x.pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
        (lambda x: torch.empty(2, device="cuda", pin_memory=True), RuntimeError, "dense CPU tensors can be pinned"),
        (lambda x: torch.randn(2, device="cuda", generator=torch.Generator()), RuntimeError, "'cuda' device type"),
        (lambda x: torch.empty(65 << 20, dtype=torch.uint8, device="cuda"), torch.OutOfMemoryError, "out of memory"),
        (lambda x: x.to("cpu").to("cuda").requires_grad_().exp().numpy(), TypeError, "can't convert cuda:0"),
    ],
)  # fmt: skip
def test_other_refusals(
    device: SimulatedDevice, operation: Callable[[torch.Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        operation(HOST.cuda())


def test_answers_of_a_device_tensor(device: SimulatedDevice) -> None:
    x = HOST.to("cuda")
    assert x.device == torch.device("cuda:0") and x.is_cuda and not x.is_cpu and x.get_device() == 0
    assert x.untyped_storage().device.type == "cuda" and HOST.untyped_storage().device.type == "cpu"
    assert x.tolist() == HOST.tolist() and bool(x[1] == 1) and repr(x).endswith("device='cuda:0')")
    for made in (x[2:], x.view(2, 3).t(), x.double(), torch.zeros_like(x), x.new_zeros(3), x.new_tensor([1.0])):
        assert made.is_cuda
    for made in (x.cpu(), x.to("cpu", torch.float64), x.to(HOST), x.new_zeros(3, device="cpu"),
                 torch.zeros_like(x, device="cpu"), torch.as_tensor(x, device="cpu")):  # fmt: skip
        assert made.device.type == "cpu" and type(made) is torch.Tensor
    for made in (torch.tensor([1], device="cuda"), torch.as_tensor(np.ones(2), device="cuda"), HOST.to(x), HOST.cuda(0),
                 torch.zeros_like(HOST, device="cuda"), HOST.new_zeros(2, device="cuda")):  # fmt: skip
        assert made.is_cuda


def test_gradients_and_modules(device: SimulatedDevice) -> None:
    torch.manual_seed(0)
    model, leaf = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.LSTM(4, 3)), HOST.clone().requires_grad_()
    twin, weight = copy.deepcopy(model), model[0].weight
    model.cuda()
    assert model[0].weight is weight and weight.is_cuda and isinstance(weight, nn.Parameter)
    model(leaf.cuda().view(1, 6))[0].sum().backward()
    assert leaf.grad is not None and leaf.grad.device.type == "cpu"
    twin(HOST.view(1, 6))[0].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert ours.grad.is_cuda and torch.equal(ours.grad.cpu(), theirs.grad)
    copied, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert copied[0].weight.is_cuda and loaded[0].weight.is_cuda and copied[0].weight is not weight
    assert torch.equal(copied[0].weight.grad, weight.grad)  # pyright: ignore[reportArgumentType]
    twin.load_state_dict(model.state_dict())
    assert not model.cpu()[0].weight.is_cuda


def test_random_numbers_come_from_the_devices_generator(device: SimulatedDevice) -> None:
    torch.manual_seed(3)
    host, first = torch.get_rng_state(), torch.randn(4, device="cuda").cpu()
    assert torch.equal(torch.get_rng_state(), host)
    state = torch.cuda.get_rng_state()
    second = torch.rand(4, device="cuda").cpu()
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda").cpu(), second)
    torch.manual_seed(3)
    assert torch.equal(torch.randn(4, device="cuda").cpu(), first)
    generator = torch.Generator("cuda").manual_seed(1)
    assert torch.randn(4, device="cuda", generator=generator).is_cuda and isinstance(generator, torch.Generator)


def test_every_thread_has_the_device(device: SimulatedDevice) -> None:
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(2, device="cuda") + HOST[:2].cuda()))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        found.append(pool.submit(lambda: HOST[:2].cuda() * 2).result())
    assert [tensor.device.type for tensor in found] == ["cuda", "cuda"]


PATCHED = ("torch", "torch.cuda", "torch.backends.cudnn", "torch.optim.optimizer", "threading",
           "concurrent.futures.thread")  # fmt: skip


def test_no_trace_is_left() -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there: the simulation is off")
    importlib.import_module("torch._dynamo")
    owners = [importlib.import_module(name) for name in PATCHED]
    owners += [torch.Tensor, torch.UntypedStorage, threading.Thread, nn.Parameter, nn.Module]
    before = [dict(inspect.getmembers_static(owner)) for owner in owners]
    own = [set(vars(owner)) for owner in owners]
    state, kinds = torch.get_rng_state(), list(before[3]["_foreach_supported_types"])
    for error in (None, ZeroDivisionError):
        try:
            with simulated_cuda():
                nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda")).sum().backward()
                torch.manual_seed(0) if error is None else 1 / 0
        except ZeroDivisionError:
            pass
        for owner, members, names in zip(owners, before, own, strict=True):
            after = dict(inspect.getmembers_static(owner))
            assert {n for n in members if after.get(n) is not members[n] and not n.startswith("__")} == set(), owner
            assert set(vars(owner)) == names, owner
        assert before[3]["_foreach_supported_types"] == kinds
        assert torch._C._len_torch_dispatch_stack() == 0 and torch._C._get_mkldnn_enabled()
        torch.set_rng_state(state)
        with pytest.raises((RuntimeError, AssertionError)):
            torch.ones(1, device="cuda")

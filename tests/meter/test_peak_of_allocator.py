"""The meter compared with the events of the CPU allocator."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from tests.meter.tensors import KIB, by_select, gathered, graph
from tests.strategies import random_graph, random_minibatch
from workbench.meter.allocation_tracker import ALLOCATION_BYTES, rounded_bytes
from workbench.meter.peak import measure_peak
from workbench.nn.model import MODEL_KINDS, build_model


def allocator_peak(setup: Callable[[], Callable[[], object]]) -> int:
    """Return the peak bytes of a call relative to its entry, from the allocator's events, rounded as storages are.

    `setup` runs inside the profile, because the allocator doesn't report when older allocations are freed.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        fn = setup()
        gc.collect()
        with record_function("entry"):
            pass
        fn()
    results: Any = prof.profiler and prof.profiler.kineto_results
    live, entry, peak = 0, 0, 0
    for event in sorted(results.events(), key=lambda e: e.start_ns()):
        if event.name() == "entry":
            entry = peak = live
        elif event.name() == "[memory]":
            nbytes = event.nbytes()
            live += rounded_bytes(nbytes) if nbytes > 0 else -rounded_bytes(-nbytes)
            peak = max(peak, live)
    return peak - entry


def assert_equals_allocator(setup: Callable[[], Callable[[], object]], scratch: float = 0.0) -> None:
    """Assert equal peaks, up to a few scalars and the fraction `scratch` of workspace inside operators."""
    setup()()
    expected, measured = allocator_peak(setup), measure_peak(setup())
    assert expected > 100 * KIB
    assert (1 - scratch) * expected - 4 * ALLOCATION_BYTES <= measured <= expected + 4 * ALLOCATION_BYTES


def linear_adam() -> Callable[[], object]:
    x, _, _ = graph()
    y = torch.randint(0, 7, (500,))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 7))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    return step


def summed_into_a_view() -> Callable[[], object]:
    """Return a step in which autograd can't add to a gradient in place, because it is a view of a base."""
    x, _, _ = graph()
    weight = nn.Parameter(torch.randn(32, 32))

    def step() -> None:
        h = x @ weight
        ((h * 2).sum() + (h.view(500, 1, 32) * 3).sum()).backward()
        weight.grad = None

    return step


def backward_only() -> Callable[[], object]:
    """Return a backward pass, which frees the tensors saved by the forward pass as it proceeds."""
    x, src, dst = graph()
    weight = nn.Parameter(torch.randn(32, 32))
    h = (x @ weight).tanh()
    losses = [h.index_select(0, src).exp().index_select(0, dst).square().sum()]
    del h
    return lambda: losses.pop().backward()


def library_step(kind: str) -> Callable[[], Callable[[], object]]:
    def setup() -> Callable[[], object]:
        torch.manual_seed(0)
        mb = random_minibatch(random_graph(400, 3200, edge_weight=torch.float32), fanouts=(6, 4), num_seeds=100)
        model = build_model(kind, in_dim=32, hidden_dim=32, out_dim=5, num_layers=2, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters())
        x, y = torch.randn(400, 32), torch.arange(400) % 5

        def step() -> Tensor:
            h = model(mb.blocks, x[mb.node_ids], node_ids=mb.node_ids)
            optimizer.zero_grad()
            F.cross_entropy(h, y[mb.seeds]).backward()
            optimizer.step()
            return h

        step()
        return step

    return setup


def by_index(h: Tensor, src: Tensor) -> Tensor:
    return h[src]


def by_gather(h: Tensor, src: Tensor) -> Tensor:
    return h.gather(0, src[:, None].expand(-1, h.shape[1]))


@pytest.mark.parametrize("gather", [by_select, by_index, by_gather])
@pytest.mark.parametrize("add", [lambda z, i, m: z.index_add(0, i, m), lambda z, i, m: z.index_add_(0, i, m)])
def test_plain_torch_layers_equal_the_allocator(gather: Callable, add: Callable) -> None:
    assert_equals_allocator(gathered(gather, add))


@pytest.mark.parametrize("setup", [linear_adam, backward_only, summed_into_a_view])
def test_steps_equal_the_allocator(setup: Callable[[], Callable[[], object]]) -> None:
    assert_equals_allocator(setup)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_layers_of_the_library_equal_the_allocator(kind: str) -> None:
    assert_equals_allocator(library_step(kind), scratch=0.1 if kind == "sage-lstm" else 0.0)


def test_storages_are_rounded_up_as_the_allocator_does() -> None:
    held = []
    assert measure_peak(lambda: held.extend(torch.empty(1) for _ in range(100))) == 100 * ALLOCATION_BYTES
    assert measure_peak(lambda: torch.empty(0)) == 0
    assert rounded_bytes(513) == 2 * ALLOCATION_BYTES

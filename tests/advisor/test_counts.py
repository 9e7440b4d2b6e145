"""Times of steps: what was measured alone is scaled to what it takes in a program."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.advisor import counts
from workbench.advisor.counts import Sampled, StepTime, in_turn
from workbench.memory.traced.dry_run import work


class Clock:
    """A clock that stands still until something takes time, in place of `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize(("step_seconds", "turns"), [(0.1, 5), (30.0, 3)])
def test_times_in_turn_scale_those_of_repeated_steps(monkeypatch, step_seconds: float, turns: int):
    clock, trained = Clock(), []
    graph = wb.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    mb = wb.NeighborSampler([1, 1]).sample(graph, torch.tensor([0, 2]))

    class Loader:
        def steps(self, count: int) -> Iterator[tuple[int, wb.MiniBatch]]:
            for step in range(min(count, 5)):
                clock.now += 0.03 if step else 0.3  # the first compiles
                yield step, mb

    def train(batch: wb.MiniBatch) -> None:
        clock.now += step_seconds
        trained.append(batch)

    monkeypatch.setattr(counts, "time", clock)
    loader: Any = Loader()
    alone = StepTime(fixed=0.05, per_item=0.15 / work(mb), residual=0.1, per_row=0.0)
    found = in_turn(Sampled(loader, (mb,), (0.01, 0.02), 2.0), alone, train)
    assert len(trained) == turns
    assert found.step(mb) == pytest.approx(step_seconds)
    assert found.fixed == pytest.approx(step_seconds / 4) and found.residual == 0.1
    assert found.sampling == pytest.approx(0.03 / 0.015)


@pytest.mark.parametrize(("device", "turns"), [("cpu", True), ("cuda", False)])
def test_only_the_processor_that_also_samples_is_timed_in_turn(monkeypatch, device: str, turns: bool):
    """On a GPU a step returns before it has ended, and sampling goes on beside it."""
    data = wb.load_dataset("synthetic-arxiv", scale=0.002)
    model = wb.build_model("gcn", in_dim=data.num_features, hidden_dim=4, out_dim=data.num_classes, num_layers=1)
    known, taken = counts.Counts(data, model, wb.NeighborSampler([3]), 50, num_batches=2), []
    estimated = known.estimated("cpu")
    monkeypatch.setattr(known, "estimated", lambda device: estimated)
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: module)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    monkeypatch.setattr(counts, "in_turn", lambda sampled, alone, train: taken.append(sampled) or alone)
    known.step_time(device)
    assert bool(taken) == turns


def test_growth_of_batches_counts_full_ones_and_is_never_below_one():
    def of(*sizes: tuple[int, int], per_epoch: float) -> float:
        batches: Any = tuple(SimpleNamespace(num_seeds=seeds, num_inputs=inputs) for seeds, inputs in sizes)
        return Sampled(Any, batches, (), per_epoch).growth  # pyright: ignore[reportArgumentType]

    assert of((8, 100), (8, 100), (8, 100), per_epoch=99.0) == 1.0
    assert of((8, 100), (3, 40), (8, 100), (3, 40), per_epoch=1.4) == 1.0, "a smaller last batch is no spread"
    assert of((8, 100), (3, 120), per_epoch=1.4) == 1.0
    few, many = of((8, 90), (8, 110), per_epoch=50.0), of(*[(8, 90), (8, 110)] * 9, per_epoch=50.0)
    assert few > many > 1.2, "the fewer were sampled, the less is known"
    assert of(*[(8, 90), (8, 110)] * 9, per_epoch=500.0) > many

"""A small real epoch with state: windows of batches are staged from disk in a background thread while training."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import workbench as wb
from tests.strategies import random_graph
from tests.training.toys import PlainModel

GRAPH = random_graph(60, 300)
X = torch.linspace(-1, 1, 240).sin().view(60, 4)
Y = torch.arange(60) % 3
SAMPLER = wb.NeighborSampler([3, 3], seed=0)
PHASES = {"sample", "stage", "wait", "fetch", "transfer", "forward", "backward", "step", "other"}


def sampled() -> wb.sampling.Batches[tuple[int, wb.MiniBatch]]:
    return wb.batches(GRAPH, torch.arange(40), sampler=SAMPLER, batch_size=8, epoch=0)


class StagedEpoch:
    """Trains on windows of two batches, whose rows are fetched from disk ahead."""

    def __init__(self, store: wb.FeatureStore, memory: wb.Traffic) -> None:
        self.store, self.memory = store, memory
        self.reset()

    def reset(self) -> None:
        torch.manual_seed(1)
        self.model = PlainModel()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def __call__(self, phase: Callable[[str], Any]) -> Iterator[Tensor]:
        for window, rows in wb.meter.timed(wb.prefetch(self._staged(phase)), phase, "wait"):
            for _, mb in window:
                yield wb.train_step(self.model, mb, rows, Y, F.cross_entropy, self.optimizer, phase=phase)

    def _staged(self, phase: Callable[[str], Any]) -> Iterator[tuple[list[tuple[int, wb.MiniBatch]], wb.FeatureStore]]:
        for window in wb.windows(wb.meter.timed(sampled(), phase, "sample"), size=2):
            with phase("stage"):
                rows = wb.stage(self.store, window, traffic=self.memory)
            yield window, rows


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[StagedEpoch, wb.meter.EpochPasses]:
    links, folder = wb.Traffic(), tmp_path_factory.mktemp("rows") / "x"
    wb.MappedRows.create(folder, X.split(25))
    epoch = StagedEpoch(wb.MappedRows(folder, traffic=links), links)
    return epoch, wb.meter.measure_epoch(epoch, reset=epoch.reset, traffic=links, repetitions=2)


def test_the_losses_are_those_of_training_from_memory(measured: tuple[StagedEpoch, wb.meter.EpochPasses]) -> None:
    epoch, passes = measured
    trained = copy.deepcopy(epoch.model)
    epoch.reset()
    losses = [wb.train_step(epoch.model, mb, X, Y, F.cross_entropy, epoch.optimizer) for _, mb in sampled()]
    assert passes.row()["loss"] == torch.stack(losses).double().mean().item()
    for ours, theirs in zip(trained.parameters(), epoch.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_rows_have_every_phase_of_both_threads(measured: tuple[StagedEpoch, wb.meter.EpochPasses]) -> None:
    for one in measured[1].passes:
        assert set(one.seconds) == set(one.wall_seconds) == PHASES
        assert all(0 <= one.wall_seconds[phase] <= one.seconds[phase] + 1e-9 for phase in PHASES)
    row = measured[1].row()
    assert {f"{phase}{kind}" for phase in PHASES for kind in ("_seconds", "_wall_seconds")} <= set(row)
    assert row["num_steps"] == 5


def test_the_traffic_of_every_pass_by_hand(measured: tuple[StagedEpoch, wb.meter.EpochPasses]) -> None:
    """Each row of a window comes from disk once; then every batch reads its rows from memory."""
    batches = [mb.node_ids for _, mb in sampled()]
    fetched = sum(len(torch.cat(batches[at : at + 2]).unique()) for at in (0, 2, 4))
    read = sum(map(len, batches))
    assert fetched < read
    row_bytes = X[0].nbytes
    expected = {"disk_rows": fetched, "disk_rows_bytes": fetched * row_bytes}
    expected |= {"host_rows": read, "host_rows_bytes": read * row_bytes}
    assert [one.traffic.row() for one in measured[1].passes] == [expected] * 2

"""`profile_epoch`: bytes counted by hand, repeated runs, restored state."""

import copy
from itertools import count, product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.training.cooperative import cooperative_batches
from tests.training.toys import PlainModel, toy_batch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.features.memory_rows import MemoryRows
from workbench.features.stage import stage
from workbench.meter.stopwatch import ThreadStopwatch
from workbench.nn.losses import Inputs
from workbench.nn.model import build_model
from workbench.training.profile import PHASES, EpochProfile, profile_epoch
from workbench.training.step import train_step

X = torch.linspace(-1, 1, 160).sin().view(40, 4)
Y = torch.arange(40) % 3


def cut(mb: MiniBatch, num_parts: int) -> list[MiniBatch]:
    return mb.split(torch.arange(mb.num_seeds) % num_parts)


def profile(model: nn.Module, steps: Any, optimizer: torch.optim.Optimizer, **options: Any) -> EpochProfile:
    return profile_epoch(model, steps, X, Y, F.cross_entropy, optimizer, **options)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


class Scale(nn.Module):
    """Seeds' features times a weight; allocates only the product."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, blocks: tuple[Block, ...], x: Tensor) -> Tensor:
        return x[: blocks[-1].num_dst] * self.weight


def chain(num_seeds: int, num_inputs: int) -> MiniBatch:
    """One block in which the only source of seed i is i."""
    block = Block(torch.arange(num_seeds + 1), torch.arange(num_seeds, dtype=torch.int32), num_inputs, num_seeds)
    return MiniBatch(torch.arange(num_inputs), (block,))


def row_sums(out: Tensor, labels: Tensor) -> Tensor:
    """A loss per seed whose gradient needs no memory."""
    return out.sum(1)


KIB = 1024


def test_peak_bytes_by_hand() -> None:
    """512 inputs, 256 seeds, 128 float32 features; every tensor a whole number of KiB or rounded up to 512 bytes."""
    mb, model = chain(256, 512), Scale(128)
    x, y = torch.ones(512, 128), torch.zeros(512, dtype=torch.int64)
    result = profile_epoch(model, [[mb]], x, y, row_sums, adam(model))
    weight_and_moments = 3 * 512  # 128 float32 each
    node_ids, indptr, indices = 4 * KIB, 2 * KIB + 512, KIB  # 512 int64; 257 int64, rounded up; 256 int32
    rows, product, scalar, labels = 256 * KIB, 128 * KIB, 512, 2 * KIB
    fetched = weight_and_moments + labels + rows + scalar  # the running loss
    moved = fetched + node_ids + indptr + indices
    assert result.phase_peak_bytes["fetch"] == fetched
    assert result.phase_peak_bytes["transfer"] == moved
    # Forward allocates the product; backward another of its size, summed over the seeds for the weight's gradient.
    small = 5 * KIB  # losses per seed, scalars, the weight's gradient
    assert 0 <= result.phase_peak_bytes["forward"] - (moved + product) <= small
    assert 0 <= result.phase_peak_bytes["backward"] - (moved + product) <= small
    assert result.peak_bytes == max(result.phase_peak_bytes.values()) == result.part_peak_bytes[0]


def test_rows_of_stores_are_metered_like_those_of_tensors() -> None:
    steps, model = [cut(toy_batch(), 2)], PlainModel()
    results = [
        profile_epoch(model, steps, x, y, F.cross_entropy, adam(model))
        for x, y in ((X, Y), (MemoryRows(X), MemoryRows(Y)), (X.numpy(), Y.numpy()), (stage(X, steps[0]), Y))
    ]
    assert len({(r.loss, r.peak_bytes, *r.phase_peak_bytes.values()) for r in results[:3]}) == 1
    # Reads of staged rows also allocate their positions.
    assert results[3].loss == results[0].loss and results[3].peak_bytes is not None


def test_blocks_count_although_nothing_is_copied() -> None:
    """The same work with a batch that also contains 2 KiB of edge ids."""
    mb, model = chain(256, 512), Scale(128)
    x, y = torch.ones(512, 128), torch.zeros(512, dtype=torch.int64)
    heavier = MiniBatch(torch.arange(512), (with_ids(mb.blocks[0]),))
    peaks = [profile_epoch(model, [[m]], x, y, row_sums, adam(model)).peak_bytes for m in (mb, heavier)]
    assert peaks[1] == (peaks[0] or 0) + 2 * KIB


def with_ids(block: Block) -> Block:
    return Block(block.indptr, block.indices, block.num_src, block.num_dst, edge_ids=torch.arange(block.num_edges))


def test_momentum_adds_one_copy_of_the_weights() -> None:
    model = PlainModel(hidden_dim=256)
    steps = [[toy_batch()]]
    plain, momentum = (
        profile(model, steps, torch.optim.SGD(model.parameters(), lr=0.1, momentum=m)).phase_peak_bytes["fetch"]
        for m in (0.0, 0.9)
    )
    assert momentum - plain == sum(-(-p.nbytes // 512) * 512 for p in model.parameters())


def test_the_peak_decreases_with_the_number_of_micro_batches() -> None:
    model, mb = PlainModel(hidden_dim=64), toy_batch(300, 200)
    x, y = torch.randn(300, 4), torch.arange(300) % 3
    peaks = []
    for num_parts in (1, 2, 4, 8):
        micro = cut(mb, num_parts)
        result = profile_epoch(model, [micro], x, y, F.cross_entropy, adam(model))
        assert len(result.part_peak_bytes) == num_parts
        assert result.peak_bytes == max(result.part_peak_bytes)
        peaks.append(result.peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0] / 2


def test_a_part_peaks_as_it_would_alone() -> None:
    """Apart from the gradients of the parts before it."""
    model, micro = PlainModel(hidden_dim=64), cut(toy_batch(300, 200), 3)
    x, y = torch.randn(300, 4), torch.arange(300) % 3
    together = profile_epoch(model, [micro], x, y, F.cross_entropy, adam(model)).part_peak_bytes
    alone = [profile_epoch(model, [[m]], x, y, F.cross_entropy, adam(model)).part_peak_bytes[0] for m in micro]
    weights = sum(-(-p.nbytes // 512) * 512 for p in model.parameters())
    assert all(0 <= t - a <= weights + 1024 for t, a in zip(together, alone, strict=True))


@pytest.mark.parametrize(("warm_up", "measure_memory"), [*product([True, False], repeat=2)])
def test_the_loss_is_that_of_training_and_state_is_restored(warm_up: bool, measure_memory: bool) -> None:
    torch.manual_seed(0)
    model = build_model("sage-mean", in_dim=4, hidden_dim=8, out_dim=3, dropout=0.5)
    optimizer, steps = adam(model), [[m] for m in cut(toy_batch(), 3)]
    train_step(model, toy_batch(), X, Y, F.cross_entropy, optimizer)
    twin = copy.deepcopy(model)
    twin_optimizer = adam(twin)
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    random = torch.get_rng_state()
    result = profile(model, steps, optimizer, repetitions=2, warm_up=warm_up, measure_memory=measure_memory)
    assert torch.equal(torch.get_rng_state(), random)
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    assert all(p.grad is None for p in model.parameters())
    losses = [float(train_step(twin, step, X, Y, F.cross_entropy, twin_optimizer)) for step in steps]
    assert result.loss == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_a_new_optimizer_still_has_no_state() -> None:
    model = PlainModel()
    optimizer = adam(model)
    profile(model, [[toy_batch()]], optimizer)
    assert not optimizer.state_dict()["state"]


def test_state_is_restored_after_an_error() -> None:
    model, calls = PlainModel(), []
    before = copy.deepcopy(model.state_dict())

    def fails_late(out: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 3:
            raise MemoryError("too much")
        return out.sum(1)

    with pytest.raises(MemoryError, match="too much"):
        profile_epoch(model, [[m] for m in cut(toy_batch(), 3)], X, Y, fails_late, adam(model))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_seconds_are_medians_over_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances per reading by 1 s in the first run, 10 in the second, 100 in the third."""
    ticks = iter([1.0, 10.0, 100.0])

    def stopwatch(device: torch.device, *, clock: object) -> ThreadStopwatch:
        return ThreadStopwatch(device, clock=count(step=next(ticks)).__next__)

    monkeypatch.setattr("workbench.meter.epoch_passes.ThreadStopwatch", stopwatch)
    model = PlainModel()
    result = profile(model, [cut(toy_batch(), 2)], adam(model), repetitions=3, measure_memory=False)
    # Two readings per phase; two micro-batches of four phases, "step" before and after; "other" between and around.
    assert result.seconds == {**dict.fromkeys(PHASES, 20.0), "other": 110.0}
    assert result.epoch_seconds == 210.0
    assert result.epoch_seconds_spread == (21.0, 2100.0)
    row = result.row()
    assert row["step_seconds"] == 20.0 and row["epoch_seconds_max"] == 2100.0 and row["peak_bytes"] is None


def test_a_row_is_flat_and_complete() -> None:
    model = PlainModel()
    result = profile(model, [[toy_batch()]], adam(model))
    row = result.row()
    names = {"peak_bytes", "epoch_seconds", "epoch_seconds_min", "epoch_seconds_max", "loss"}
    assert set(row) == names | {f"{phase}_seconds" for phase in PHASES}
    assert all(isinstance(value, (int, float)) for value in row.values())
    assert sum(result.seconds.values()) == pytest.approx(result.epoch_seconds)


def test_warm_up_skips_seeds_without_labels() -> None:
    mb, y = toy_batch(), Y.clone()
    micro = sorted(cut(mb, 2), key=lambda m: m.num_edges)
    y[micro[0].seeds] = -1
    model = PlainModel()
    result = profile_epoch(model, [micro], X, y, F.cross_entropy, adam(model))
    assert result.loss > 0


@pytest.mark.parametrize("steps", [[], [[]]])
def test_epochs_without_work_are_refused(steps: list[list[MiniBatch]]) -> None:
    with pytest.raises(ValueError, match="steps have no micro-batch"):
        profile(PlainModel(), steps, adam(PlainModel()))


def test_no_repetitions_are_refused() -> None:
    with pytest.raises(ValueError, match="repetitions is 0"):
        profile(PlainModel(), [[toy_batch()]], adam(PlainModel()), repetitions=0)


def test_the_call_of_the_model_is_the_callers() -> None:
    """A call that computes everything twice allocates more; loss and peak are otherwise those of the default call."""
    model, steps = PlainModel(hidden_dim=64), [cut(toy_batch(300, 200), 2)]
    x, y = torch.randn(300, 4), torch.arange(300) % 3

    def twice(mb: MiniBatch, inputs: Inputs) -> Tensor:
        return (model(mb.blocks, inputs.x) + model(mb.blocks, inputs.x)) / 2

    default, same, more = (
        profile_epoch(model, steps, x, y, F.cross_entropy, adam(model), forward=forward)
        for forward in (None, lambda mb, inputs: model(mb.blocks, inputs.x), twice)
    )
    assert (same.loss, same.phase_peak_bytes) == (default.loss, default.phase_peak_bytes)
    assert more.loss == pytest.approx(default.loss)
    assert more.phase_peak_bytes["forward"] > 1.5 * default.phase_peak_bytes["forward"]


def test_batches_with_exchanges_need_a_call() -> None:
    mb = cooperative_batches(toy_batch(), torch.zeros(40, dtype=torch.int64), 1)[0]  # its halos are empty
    with pytest.raises(ValueError, match="forward=lambda mb, inputs"):
        profile(model := PlainModel(), [[mb]], adam(model))
    assert profile(model, [[mb]], adam(model), forward=lambda mb, inputs: model(mb.blocks, inputs.x)).loss > 0


def test_buffers_that_are_not_saved_are_restored() -> None:
    class Counts(PlainModel):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, blocks: Any, h: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(blocks, h)

    model = Counts()
    profile_epoch(model, [[toy_batch()]], X, Y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    assert float(model.calls) == 0


def test_one_labelled_seed_and_a_batch_norm() -> None:
    mb = toy_batch()
    y = torch.full((40,), -1).scatter(0, mb.seeds[:1], 2)
    model = build_model("gin", in_dim=4, hidden_dim=4, out_dim=3, norm="batch")
    found = profile_epoch(model, [[mb]], X, y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    assert found.loss > 0

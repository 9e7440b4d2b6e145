"""Predictors predictor to traces that share one allocation program, mostly share one, or share none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from experiments.performance.own_models import OWN_MODELS, Attention, Buckets, Jumping, Residual, Thresholded
from tests.memory.traced.fitted import BATCHES, NODES, WITHIN, adam, before_the_step, errors, measure, split
from tests.memory.traced.test_regression import DST, EDGES, LARGE, SEEN, sizes_of
from tests.memory.traced.test_sub_batches import BATCH, skewed_batch
from workbench.core.block import Block
from workbench.memory.estimate import TERMS
from workbench.memory.estimator import estimate_memory, estimator_for
from workbench.memory.traced.dry_run import AllocationProgram, AllocationTrace, Terms, sub_batches
from workbench.memory.traced.predictor import (
    HybridPredictor,
    PeakRegression,
    ReplayPredictor,
    fit_memory,
    fit_predictor,
)
from workbench.memory.training_setup import TrainingSetup

PROGRAM = AllocationProgram((0, 1, 0, 2, 1, 2), ("inputs", "hidden", "workspace"), (("forward", 0), ("backward", 3)))
OF_DEGREE_ONE = 13


def bytes_of(sizes: np.ndarray) -> np.ndarray:
    return np.array([512 * sizes[EDGES], 1024 * sizes[DST] + 512, 256 * sizes[EDGES]])


def trace_of(sizes: np.ndarray, program: AllocationProgram = PROGRAM) -> AllocationTrace:
    return AllocationTrace(program, bytes_of(sizes))


def with_temporaries(number: int) -> AllocationProgram:
    """`PROGRAM` with a number of small temporaries inserted."""
    between = tuple(n for n in range(3, 3 + number) for _ in range(2))
    return AllocationProgram(
        (0, 1, *between, 0, 2, 1, 2),
        (*PROGRAM.terms, *("hidden",) * number),
        (("forward", 0), ("backward", 3 + 2 * number)),
    )


def trace_with_temporaries(sizes: np.ndarray, number: int) -> AllocationTrace:
    return AllocationTrace(with_temporaries(number), np.concatenate([bytes_of(sizes), np.full(number, 512)]))


def peak(phases: Mapping[str, Terms]) -> int:
    return max(sum(terms.values()) for terms in phases.values())


def test_a_shared_program_is_replayed_at_any_size() -> None:
    predictor, error = fit_predictor(SEEN, [trace_of(sizes) for sizes in SEEN], LARGE[-1])
    assert isinstance(predictor, ReplayPredictor) and error == 0
    for sizes in LARGE:
        assert predictor(sizes) == trace_of(sizes).peaks()


def test_peaks_are_regressed_if_all_programs_differ() -> None:
    seen, whole = np.stack([sizes_of(part) for part in sub_batches(BATCH)]), sizes_of(BATCH)
    traces = [trace_with_temporaries(sizes, number) for number, sizes in enumerate(seen)]
    predictor, error = fit_predictor(seen, traces, whole)
    assert isinstance(predictor, PeakRegression) and 0 < error < 0.1
    for sizes in (seen[-1], whole):
        assert -0.05 < peak(predictor(sizes)) / peak(trace_of(sizes).peaks()) - 1 < 0.1
    assert set(predictor(whole)["forward"]) == {"inputs", "hidden", "workspace"}


def test_the_most_common_program_is_replayed_for_batches_with_its_in_degrees() -> None:
    """Batches without destinations of in-degree 1 follow another program."""
    sizes = np.concatenate([SEEN, SEEN[::2]])
    sizes[len(SEEN) :, OF_DEGREE_ONE] = 0
    assert (SEEN[:, OF_DEGREE_ONE] > 0).all()
    traces = [trace_of(row) if row[OF_DEGREE_ONE] else trace_with_temporaries(row, 1) for row in sizes]
    predictor, _ = fit_predictor(sizes, traces, LARGE[-1])
    assert isinstance(predictor, HybridPredictor)
    for row in LARGE:
        assert predictor(row) == trace_of(row).peaks()
    without = SEEN[-1].copy()
    zero = PeakRegression({"forward": np.zeros(1 + SEEN.shape[1])}, {"forward": {"hidden": 1.0}})
    without[OF_DEGREE_ONE] = 0
    assert peak(predictor(without)) <= peak(trace_of(without).peaks())
    assert peak(replace(predictor, regression=zero)(without)) == 0
    assert peak(replace(predictor, regression=zero)(SEEN[-1])) == peak(trace_of(SEEN[-1]).peaks())


def test_bytes_that_follow_no_size_show_in_the_error() -> None:
    """The error bounds the shortfall on the largest sub-batch."""
    values = SEEN[:, EDGES] ** 2 * SEEN[:, DST]
    traces = [AllocationTrace(PROGRAM, np.array([512, v, 512])) for v in values]
    predictor, error = fit_predictor(SEEN, traces, LARGE[-1])
    largest = SEEN[:, -1].argmax()
    lowest = peak(predictor(SEEN[largest])) / peak(traces[largest].peaks())
    assert lowest < 0.5
    assert 1 - lowest <= error < 1


def test_a_single_trace_is_predicted_exactly() -> None:
    predictor, error = fit_predictor(SEEN[:1], [trace_of(SEEN[0])], SEEN[0])
    assert predictor(SEEN[0]) == trace_of(SEEN[0]).peaks() and error == 0


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
    model, mb = Buckets(24, 8, 5, 2), skewed_batch(NODES, 300, [3, 4])
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


@pytest.mark.slow
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

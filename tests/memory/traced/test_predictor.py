"""Predictors predictor to traces that share one allocation program, mostly share one, or share none."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tests.memory.traced.test_regression import DST, EDGES, LARGE, SEEN, sizes_of
from tests.memory.traced.test_sub_batches import BATCH
from workbench.memory.traced.dry_run import AllocationProgram, AllocationTrace, Terms, sub_batches
from workbench.memory.traced.predictor import HybridPredictor, PeakRegression, ReplayPredictor, fit_predictor

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

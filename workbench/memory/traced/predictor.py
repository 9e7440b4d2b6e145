"""Predict the peaks of a step's phases from the sizes of a batch, fitted to recorded allocation traces."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.memory.traced.regression import LinearFit, bucket_columns, fit_linear, fit_non_negative
from workbench.memory.traced.trace import AllocationProgram, AllocationTrace, Terms

PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""Maps the sizes of a batch to live bytes by term at the peak of each phase, without the fixed bytes."""

_MIN_SAME_PROGRAM = 6
_ACCURATE = 0.1
_VALIDATION_STRIDE = 3


@dataclass(frozen=True, eq=False)
class ReplayPredictor:
    """Replays one allocation program with storage sizes that are linear in the sizes of the batch.

    Args:
        program: the allocation program shared by the traces.
        storage_bytes: maps the sizes of a batch to the bytes of each storage.
    """

    program: AllocationProgram
    storage_bytes: LinearFit

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "ReplayPredictor | None":
        """Fit to the traces that have the most common program; None if they are too few."""
        program, count = Counter(trace.program for trace in traces).most_common(1)[0]
        if count < min(_MIN_SAME_PROGRAM, len(traces)):
            return None
        matching = [i for i, trace in enumerate(traces) if trace.program == program]
        values = np.stack([traces[i].nbytes for i in matching])
        return ReplayPredictor(program, fit_linear(sizes[matching], values, target))

    @staticmethod
    def exactly(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "ReplayPredictor | None":
        """Fit to the traces; None unless they share a program and all bytes fit, those of the largest held out, too."""
        if len({trace.program for trace in traces}) > 1:
            return None
        values, largest = np.stack([trace.nbytes for trace in traces]), int(sizes[:, -1].argmax())
        others = np.arange(len(sizes)) != largest
        if others.any():
            trial = fit_linear(sizes[others], values[others], target)
            if not np.array_equal(trial(sizes[largest]), values[largest]):
                return None
        fitted = fit_linear(sizes, values, target)
        if any(not np.array_equal(fitted(row), nbytes) for row, nbytes in zip(sizes, values, strict=True)):
            return None
        return ReplayPredictor(traces[0].program, fitted)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        return self.program.replay(self.storage_bytes(sizes))


@dataclass(frozen=True, eq=False)
class PeakRegression:
    """Predicts the peak of each phase as a linear function of the sizes, for programs that depend on the data.

    Args:
        coefficients: [1 + sizes] for each phase, the intercept first.
        fractions: for each phase, the terms' fractions of the peak, taken from the largest trace.
    """

    coefficients: Mapping[str, np.ndarray]
    fractions: Mapping[str, Mapping[str, float]]

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "PeakRegression":
        """Fit to all traces by non-negative least squares."""
        peaks = [trace.peaks() for trace in traces]
        totals = {phase: np.array([sum(peak[phase].values()) for peak in peaks]) for phase in peaks[0]}
        largest = int(sizes[:, -1].argmax())
        return PeakRegression(
            {phase: fit_non_negative(sizes, values) for phase, values in totals.items()},
            {
                phase: {t: n / max(1, sum(terms.values())) for t, n in terms.items()}
                for phase, terms in peaks[largest].items()
            },
        )

    def scaled_up(self, fraction: float) -> "PeakRegression":
        """The same regression with all peaks raised by a fraction of themselves."""
        return PeakRegression({phase: c * (1 + fraction) for phase, c in self.coefficients.items()}, self.fractions)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        regressors = np.concatenate([[1], sizes])
        totals = {phase: float(c @ regressors) for phase, c in self.coefficients.items()}
        return {
            phase: {term: round(fraction * total) for term, fraction in self.fractions[phase].items()}
            for phase, total in totals.items()
        }


@dataclass(frozen=True, eq=False)
class HybridPredictor:
    """Replays the most common program, and bounds it by the peak regression for batches with other in-degrees.

    A loop over in-degrees skips those that a batch does not have; replaying the full program then overestimates.

    Args:
        replay: predicts by replay.
        regression: predicts by peak regression.
        required: bool [sizes], in-degree columns that were positive in all traces of the program.
        unseen: bool [sizes], in-degree columns that were positive in none of them.
    """

    replay: ReplayPredictor
    regression: PeakRegression
    required: np.ndarray
    unseen: np.ndarray

    @staticmethod
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> "HybridPredictor | None":
        """Fit both predictors; None if too few traces share a program."""
        replay, regression = ReplayPredictor.of(sizes, traces, target), PeakRegression.of(sizes, traces, target)
        if replay is None:
            return None
        matching = np.array([trace.program == replay.program for trace in traces])
        positive, buckets = sizes[matching] > 0, bucket_columns(sizes.shape[1])
        return HybridPredictor(replay, regression, buckets & positive.all(0), buckets & ~positive.any(0))

    def scaled_up(self, fraction: float) -> "HybridPredictor":
        """The same predictor with the peaks of the regression raised by a fraction of themselves."""
        return HybridPredictor(self.replay, self.regression.scaled_up(fraction), self.required, self.unseen)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        replayed = self.replay(sizes)
        fewer, more = (sizes[self.required] == 0).any(), (sizes[self.unseen] > 0).any()
        if not fewer and not more:
            return replayed
        by_peak = sorted((replayed, self.regression(sizes)), key=_peak)
        return by_peak[1] if more else by_peak[0]


def fit_predictor(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> tuple[PhaseTerms, float]:
    """Fit a predictor and measure its error on held-out traces, as stated in `MemoryEstimate.error`.

    Replay is preferred where it is accurate, since it extrapolates to larger batches. Predictions by regression are
    scaled up by their largest relative shortfall on the held-out traces.

    Args:
        sizes: int64 [traces, sizes].
        traces: the phases of a step on each sub-batch.
        target: int64 [sizes], sizes of the largest batch to predict.

    Returns:
        The predictor, and its largest relative error on held-out traces.
    """
    held_out = _held_out(sizes)
    if len({trace.program for trace in traces}) == 1:
        predictor, errors = _fit_and_validate(ReplayPredictor.of, sizes, traces, target, held_out)
        return predictor, _largest(errors)
    regression, errors = _fit_and_validate(PeakRegression.of, sizes, traces, target, held_out)
    shortfall = float(np.max(-errors, initial=0.0))
    error = _largest((1 + shortfall) * (1 + errors) - 1)
    hybrid, errors = _fit_and_validate(_scaled_up_hybrid(shortfall), sizes, traces, target, held_out)
    if hybrid is not None and _largest(errors) <= max(error, _ACCURATE):
        return hybrid, _largest(errors)
    return regression.scaled_up(shortfall), error


def _held_out(sizes: np.ndarray) -> np.ndarray:
    """bool [traces]: the one with the most edges, and every third of the larger half."""
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        held_out[np.argsort(-sizes[:, -1])[: (len(sizes) + 1) // 2 : _VALIDATION_STRIDE]] = True
    return held_out


def _scaled_up_hybrid(fraction: float) -> Callable[..., HybridPredictor | None]:
    def of(sizes: np.ndarray, traces: Sequence[AllocationTrace], target: np.ndarray) -> HybridPredictor | None:
        hybrid = HybridPredictor.of(sizes, traces, target)
        return None if hybrid is None else hybrid.scaled_up(fraction)

    return of


def _fit_and_validate(
    fit: Callable[[np.ndarray, Sequence[AllocationTrace], np.ndarray], Any],
    sizes: np.ndarray,
    traces: Sequence[AllocationTrace],
    target: np.ndarray,
    held_out: np.ndarray,
) -> tuple[Any, np.ndarray]:
    """A fit to all traces, and relative errors on the held-out traces of a fit to the others."""
    training = [trace for trace, out in zip(traces, held_out, strict=True) if not out]
    trial, final = fit(sizes[~held_out], training, target), fit(sizes, traces, target)
    if trial is None or final is None:
        return None, np.array([math.inf])
    pairs = ((trial(sizes[i]), traces[i].peaks()) for i in np.flatnonzero(held_out).tolist())
    return final, np.array([_peak(predicted) / max(1, _peak(measured)) - 1 for predicted, measured in pairs])


def _largest(errors: np.ndarray) -> float:
    """The largest absolute error, NaN if one is; 0 if there are none."""
    return float(np.max(np.abs(errors), initial=0.0))


def _peak(phases: Mapping[str, Terms]) -> int:
    return max(sum(terms.values()) for terms in phases.values())

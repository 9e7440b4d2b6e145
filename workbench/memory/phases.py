"""From the sizes of a batch to the peaks of a step's phases, learnt from recordings."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.memory.relation import Relation, fit_non_negative, fit_relation
from workbench.memory.trace import Recording, Script, Terms

PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""From the sizes of a batch to live bytes by term at the peak of each phase, without what was there before."""

_LEAST_ALIKE = 6
_WELL = 0.1


@dataclass(frozen=True, eq=False)
class Replayed:
    """Every storage follows the sizes, and storages come and go in one order.

    Args:
        script: the order.
        relation: from the sizes to the bytes of each storage.
    """

    script: Script
    relation: Relation

    @staticmethod
    def of(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> "Replayed | None":
        """From those recordings that have the order most have, if they are enough."""
        script, count = Counter(recording.script for recording in recordings).most_common(1)[0]
        if count < min(_LEAST_ALIKE, len(recordings)):
            return None
        alike = [i for i, recording in enumerate(recordings) if recording.script == script]
        values = np.stack([recordings[i].nbytes for i in alike])
        return Replayed(script, fit_relation(sizes[alike], values, whole))

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        return self.script.replay(self.relation(sizes))


@dataclass(frozen=True, eq=False)
class Regressed:
    """The order depends on the data; the peak of each phase is a sum of multiples of the sizes.

    Args:
        coefficients: of each phase, [1 + sizes].
        shares: of each phase the terms' shares, those of the largest recording.
    """

    coefficients: Mapping[str, np.ndarray]
    shares: Mapping[str, Mapping[str, float]]

    @staticmethod
    def of(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> "Regressed":
        peaks = [recording.peaks() for recording in recordings]
        totals = {phase: np.array([sum(peak[phase].values()) for peak in peaks]) for phase in peaks[0]}
        largest = int(sizes[:, -1].argmax())
        return Regressed(
            {phase: fit_non_negative(sizes, values) for phase, values in totals.items()},
            {phase: {t: n / max(1, sum(terms.values())) for t, n in terms.items()} for phase, terms in peaks[largest].items()},
        )

    def raised(self, share: float) -> "Regressed":
        """With all peaks higher by a share of themselves."""
        return Regressed({phase: c * (1 + share) for phase, c in self.coefficients.items()}, self.shares)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        with_one = np.concatenate([[1], sizes])
        totals = {phase: float(c @ with_one) for phase, c in self.coefficients.items()}
        return {
            phase: {term: round(share * total) for term, share in self.shares[phase].items()}
            for phase, total in totals.items()
        }


def fit_phases(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> tuple[PhaseTerms, float]:
    """What predicts recordings that it was not shown, and its largest relative error on them.

    One order of all storages is preferred where it does well, since it holds for larger batches too. Else peaks are
    raised by what they fell short of at most.

    Args:
        sizes: int64 [recordings, sizes].
        recordings: of a step's phases on each.
        whole: int64 [sizes], of the largest batch that is asked for.
    """
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        rising = np.argsort(sizes[:, -1])
        held_out[rising[len(sizes) : len(sizes) // 2 - 1 : -3]] = True  # that of most edges, others of the larger half
    replayed, errors = _tried(Replayed.of, sizes, recordings, whole, held_out)
    error = max(np.abs(errors), default=0.0)
    if replayed is not None and error <= _WELL:
        return replayed, error
    regressed, errors = _tried(Regressed.of, sizes, recordings, whole, held_out)
    raised = max(0.0, *-errors)
    other_error = max(np.abs((1 + raised) * (1 + errors) - 1))
    if replayed is not None and error <= other_error:
        return replayed, error
    assert isinstance(regressed, Regressed)
    return regressed.raised(raised), other_error


def _tried(
    kind: Callable[[np.ndarray, Sequence[Recording], np.ndarray], "Replayed | Regressed | None"],
    sizes: np.ndarray,
    recordings: Sequence[Recording],
    whole: np.ndarray,
    held_out: np.ndarray,
) -> tuple["Replayed | Regressed | None", np.ndarray]:
    """A fit to all recordings, and the relative errors on those that another such fit was not shown."""
    shown = [recording for recording, out in zip(recordings, held_out, strict=True) if not out]
    trial, final = kind(sizes[~held_out], shown, whole), kind(sizes, recordings, whole)
    if trial is None or final is None:
        return None, np.array([math.inf])
    errors = [_error(trial(sizes[i]), recordings[i].peaks()) for i in np.flatnonzero(held_out).tolist()]
    return final, np.array(errors)


def _error(predicted: Mapping[str, Terms], measured: Mapping[str, Terms]) -> float:
    """Of the higher peak, relative."""
    peaks = [max(sum(terms.values()) for terms in phases.values()) for phases in (predicted, measured)]
    return (peaks[0] - peaks[1]) / max(1, peaks[1])

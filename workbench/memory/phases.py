"""From the sizes of a batch to the peaks of a step's phases, learnt from recordings."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.memory.relation import Relation, fit_non_negative, fit_relation
from workbench.memory.trace import Recording, Script, Terms

PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""From the sizes of a batch to live bytes by term at the peak of each phase, without what was there before."""

_LEAST_ALIKE = 6
_WELL = 0.05


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
        return Regressed(
            {phase: fit_non_negative(sizes, values) for phase, values in totals.items()},
            {phase: {t: n / max(1, sum(terms.values())) for t, n in terms.items()} for phase, terms in peaks[-1].items()},
        )

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        with_one = np.concatenate([[1], sizes])
        totals = {phase: float(c @ with_one) for phase, c in self.coefficients.items()}
        return {
            phase: {term: round(share * total) for term, share in self.shares[phase].items()}
            for phase, total in totals.items()
        }


def fit_phases(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> tuple[PhaseTerms, float]:
    """What predicts recordings best that it was not shown, and its largest relative error on them.

    Args:
        sizes: int64 [recordings, sizes], smallest batch first.
        recordings: of a step's phases on each.
        whole: int64 [sizes], of the largest batch that is asked for.
    """
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        held_out[len(sizes) : len(sizes) // 2 - 1 : -3] = True  # the largest, and others of the larger half
    best: tuple[PhaseTerms, float] | None = None
    for kind in (Replayed, Regressed):
        kept = [recording for recording, out in zip(recordings, held_out, strict=True) if not out]
        trial, final = kind.of(sizes[~held_out], kept, whole), kind.of(sizes, recordings, whole)
        if trial is None or final is None:
            continue
        error = max((_error(trial(sizes[i]), recordings[i].peaks()) for i in np.flatnonzero(held_out).tolist()), default=0.0)
        if best is None or error < best[1]:
            best = final, error
        if error <= _WELL:  # an order that is known holds for larger batches too
            break
    assert best is not None
    return best


def _error(predicted: Mapping[str, Terms], measured: Mapping[str, Terms]) -> float:
    peaks = [max(sum(terms.values()) for terms in phases.values()) for phases in (predicted, measured)]
    return abs(peaks[0] - peaks[1]) / max(1, peaks[1])

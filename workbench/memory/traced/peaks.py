"""From the sizes of a batch to the peaks of a step's phases, learnt from recordings."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.memory.traced.relation import Relation, bucket_columns, fit_non_negative, fit_relation
from workbench.memory.traced.trace import Recording, Script, Terms

PhaseTerms = Callable[[np.ndarray], Mapping[str, Terms]]
"""From the sizes of a batch to live bytes by term at the peak of each phase, without what was there before."""

_LEAST_ALIKE = 6
_WELL = 0.1
_HELD_OUT_OF = 3


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
            {
                phase: {t: n / max(1, sum(terms.values())) for t, n in terms.items()}
                for phase, terms in peaks[largest].items()
            },
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


@dataclass(frozen=True, eq=False)
class Either:
    """One order where a batch has the in-degrees that the order was seen with, else the peaks as well.

    A loop over in-degrees goes another way where some are missing: going through the order seen then gives too much.

    Args:
        replayed: the order.
        regressed: the peaks.
        needed: columns of the sizes that were above 0 wherever this order was seen.
        foreign: columns that never were.
    """

    replayed: Replayed
    regressed: Regressed
    needed: np.ndarray
    foreign: np.ndarray

    @staticmethod
    def of(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> "Either | None":
        replayed, regressed = Replayed.of(sizes, recordings, whole), Regressed.of(sizes, recordings, whole)
        if replayed is None:
            return None
        alike = np.array([recording.script == replayed.script for recording in recordings])
        seen, buckets = sizes[alike] > 0, bucket_columns(sizes.shape[1])
        return Either(replayed, regressed, buckets & seen.all(0), buckets & ~seen.any(0))

    def raised(self, share: float) -> "Either":
        return Either(self.replayed, self.regressed.raised(share), self.needed, self.foreign)

    def __call__(self, sizes: np.ndarray) -> Mapping[str, Terms]:
        by_order = self.replayed(sizes)
        lacks, exceeds = (sizes[self.needed] == 0).any(), (sizes[self.foreign] > 0).any()
        if not lacks and not exceeds:
            return by_order
        both = sorted((by_order, self.regressed(sizes)), key=_peak)
        return both[1] if exceeds else both[0]


def fit_peaks(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> tuple[PhaseTerms, float]:
    """What predicts recordings that it was not shown, and how far off it was on them: see `MemoryEstimate.error`.

    One order of all storages is preferred where it does well, since it holds for larger batches too. Where it does not
    hold, peaks are raised by what they fell short of at most.

    Args:
        sizes: int64 [recordings, sizes].
        recordings: of a step's phases on each.
        whole: int64 [sizes], of the largest batch that is asked for.
    """
    held_out = _held_out(sizes)
    if len({recording.script for recording in recordings}) == 1:
        fitted, errors = _tried(Replayed.of, sizes, recordings, whole, held_out)
        return fitted, _off(errors)
    peaks_only, errors = _tried(Regressed.of, sizes, recordings, whole, held_out)
    raise_by = max(0.0, *-errors)
    error = _off((1 + raise_by) * (1 + errors) - 1)
    either, errors = _tried(_raising(raise_by), sizes, recordings, whole, held_out)
    if either is not None and _off(errors) <= max(error, _WELL):
        return either, _off(errors)
    return peaks_only.raised(raise_by), error


def _held_out(sizes: np.ndarray) -> np.ndarray:
    """bool [recordings]: that of most edges, and others of the larger half."""
    held_out = np.zeros(len(sizes), dtype=bool)
    if len(sizes) > 1:
        held_out[np.argsort(-sizes[:, -1])[: (len(sizes) + 1) // 2 : _HELD_OUT_OF]] = True
    return held_out


def _raising(share: float) -> Callable[..., Either | None]:
    def of(sizes: np.ndarray, recordings: Sequence[Recording], whole: np.ndarray) -> Either | None:
        either = Either.of(sizes, recordings, whole)
        return None if either is None else either.raised(share)

    return of


def _tried(
    kind: Callable[[np.ndarray, Sequence[Recording], np.ndarray], Any],
    sizes: np.ndarray,
    recordings: Sequence[Recording],
    whole: np.ndarray,
    held_out: np.ndarray,
) -> tuple[Any, np.ndarray]:
    """A fit to all recordings, and the relative errors on those that another such fit was not shown."""
    shown = [recording for recording, out in zip(recordings, held_out, strict=True) if not out]
    trial, final = kind(sizes[~held_out], shown, whole), kind(sizes, recordings, whole)
    if trial is None or final is None:
        return None, np.array([math.inf])
    pairs = ((trial(sizes[i]), recordings[i].peaks()) for i in np.flatnonzero(held_out).tolist())
    return final, np.array([_peak(predicted) / max(1, _peak(measured)) - 1 for predicted, measured in pairs])


def _off(errors: np.ndarray) -> float:
    """The largest of relative errors, too much or too little."""
    return float(max(np.abs(errors), default=0.0))


def _peak(phases: Mapping[str, Terms]) -> int:
    return max(sum(terms.values()) for terms in phases.values())

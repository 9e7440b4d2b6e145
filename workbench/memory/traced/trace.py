"""What a piece of work allocates and frees, in order, and its peak when that order is gone through at other sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor, UntypedStorage

from workbench.core.cpu_gauge import ALLOCATION_BYTES, CpuGauge, Held, storages_of

Terms = Mapping[str, int]


@dataclass(frozen=True)
class Script:
    """The order in which storages come and go.

    Args:
        events: storages by number, each where it is made and, if it is, where it is freed.
        terms: of each storage the term that it counts as.
        phases: name of each phase and the event at which it begins.
    """

    events: tuple[int, ...]
    terms: tuple[str, ...]
    phases: tuple[tuple[str, int], ...]

    def replay(self, nbytes: np.ndarray) -> dict[str, Terms]:
        """For each phase the live bytes by term at its peak.

        Args:
            nbytes: [storages], before rounding.
        """
        rounded = -(-np.maximum(nbytes, 0) // ALLOCATION_BYTES) * ALLOCATION_BYTES
        changes = rounded[self._storages] * self._signs
        live = np.concatenate([[0], np.cumsum(changes)])
        bounds = [*(begin for _, begin in self.phases), len(self.events)]
        peaks: dict[str, Terms] = {}
        for (phase, begin), end in zip(self.phases, bounds[1:], strict=True):
            at = begin + int(live[begin : end + 1].argmax())
            peaks[phase] = self._by_term(changes[:at], at)
        return peaks

    def _by_term(self, changes: np.ndarray, at: int) -> Terms:
        names, of_event = self._term_of_event
        totals = np.bincount(of_event[:at], weights=changes, minlength=len(names))
        return {name: int(total) for name, total in zip(names, totals, strict=True)}

    @cached_property
    def _storages(self) -> np.ndarray:
        return np.array(self.events, dtype=np.int64)

    @cached_property
    def _signs(self) -> np.ndarray:
        """+1 where a storage first occurs, −1 where it does again."""
        signs = np.full(len(self.events), -1, dtype=np.int64)
        signs[np.unique(self._storages, return_index=True)[1]] = 1
        return signs

    @cached_property
    def _term_of_event(self) -> tuple[list[str], np.ndarray]:
        names = sorted(set(self.terms))
        number = np.array([names.index(term) for term in self.terms], dtype=np.int64)
        return names, number[self._storages]


@dataclass(frozen=True, eq=False)
class Recording:
    """A script and the bytes that its storages had.

    Args:
        script: the order.
        nbytes: int64 [storages], before rounding.
    """

    script: Script
    nbytes: np.ndarray

    def peaks(self) -> dict[str, Terms]:
        """As it was, for each phase the live bytes by term at its peak."""
        return self.script.replay(self.nbytes)

    def highest_peak(self) -> int:
        """Of all phases."""
        return max(sum(terms.values()) for terms in self.peaks().values())


class AllocationTrace(CpuGauge):
    """Writes down what the gauge counts: `start`, `enter` phases and set `term` on the way, `stop`, `recording`.

    Storages that were there before, and are freed, are left out.

    Args:
        device_type: of the storages to write down; workspace inside an operator is not seen on any.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()
        self.device_type = device_type
        self.term = "workspace"
        self._events: list[int] = []
        self._nbytes: list[int] = []
        self._terms: list[str] = []
        self._phases: list[tuple[str, int]] = []
        self._number: dict[int, int] = {}  # of a storage, by the identity of what holds it
        self._kept: list[Held] = []  # so that identities stay unique
        self._overwritten: Held | None = None
        self._operator_began = 0

    def start(self) -> None:
        """Begin; what is there already need not be looked for, since only its end would count."""
        self.__enter__()

    def enter(self, phase: str, term: str) -> None:
        """What follows belongs to the phase, and its storages to the term."""
        self._settle()
        self._phases.append((phase, len(self._events)))
        self.term = term

    def book(self, tensor: Tensor | None, term: str) -> None:
        """Count a tensor's storage under another term."""
        for storage in storages_of(tensor):
            number = self._number.get(id(self._find(storage)))
            if number is not None:
                self._terms[number] = term

    def recording(self) -> Recording:
        """All so far."""
        self._settle()
        script = Script(tuple(self._events), tuple(self._terms), tuple(self._phases))
        return Recording(script, np.array(self._nbytes, dtype=np.int64))

    def _add(self, storage: UntypedStorage) -> int:
        before = self._find(storage)
        had = None if before is None else before.nbytes
        reached = super()._add(storage)
        held = self._find(storage)
        if held is not None and (held is not before or held.nbytes != had):
            self._make(held, storage.nbytes())
        return reached

    def _make(self, held: Held, nbytes: int) -> None:
        resized = self._number.get(id(held))
        self._number[id(held)] = len(self._nbytes)
        self._events.append(len(self._nbytes))
        if resized is not None:  # the new room is taken before the old is given back
            self._events.append(resized)
        self._kept.append(held)
        self._nbytes.append(nbytes)
        self._terms.append(self.term)

    def _settle(self) -> None:
        self._overwritten = None if self._copied is None else self._copied[0]
        super()._settle()
        self._operator_began = len(self._events)

    def _release(self, held: Held) -> None:
        super()._release(held)
        number = self._number.pop(id(held), None)
        if number is not None:  # what autograd would have overwritten is freed before the copy is made
            at = self._operator_began if held is self._overwritten else len(self._events)
            self._events.insert(at, number)

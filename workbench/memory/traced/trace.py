"""Records an allocation trace and replays it with other tensor sizes to predict the peak."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor, UntypedStorage

from workbench.meter.allocation_tracker import AllocationTracker, TrackedStorage
from workbench.meter.storages import ALLOCATION_BYTES, storages_of

Terms = Mapping[str, int]


@dataclass(frozen=True)
class AllocationProgram:
    """The order in which storages are allocated and freed, without their sizes.

    Args:
        events: storage numbers; the first occurrence of a number allocates the storage, the second frees it.
        terms: memory term of each storage.
        phases: name of each phase and index of its first event.
    """

    events: tuple[int, ...]
    terms: tuple[str, ...]
    phases: tuple[tuple[str, int], ...]

    def replay(self, nbytes: np.ndarray) -> dict[str, Terms]:
        """Simulate the program with given sizes.

        Args:
            nbytes: [storages], size of each storage before rounding.

        Returns:
            For each phase, live bytes by term at its peak.
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
        """+1 for an allocation (first occurrence), −1 for a deallocation."""
        signs = np.full(len(self.events), -1, dtype=np.int64)
        signs[np.unique(self._storages, return_index=True)[1]] = 1
        return signs

    @cached_property
    def _term_of_event(self) -> tuple[list[str], np.ndarray]:
        names = sorted(set(self.terms))
        number = np.array([names.index(term) for term in self.terms], dtype=np.int64)
        return names, number[self._storages]


@dataclass(frozen=True, eq=False)
class AllocationTrace:
    """A recorded allocation program with the sizes of its storages.

    Args:
        program: the order of allocations and deallocations.
        nbytes: int64 [storages], size of each storage before rounding.
    """

    program: AllocationProgram
    nbytes: np.ndarray

    def peaks(self) -> dict[str, Terms]:
        """For each phase, live bytes by term at its peak, as recorded."""
        return self.program.replay(self.nbytes)

    def highest_peak(self) -> int:
        """The highest total over all phases, in bytes."""
        return max(sum(terms.values()) for terms in self.peaks().values())


class AllocationRecorder(AllocationTracker):
    """Records the allocations of a block of code: `start`, `start_phase`, set `term`, `trace`, `stop`.

    Storages allocated before `start` are not recorded, even if they are freed later.

    Args:
        device_type: device type of the storages to record; workspace inside an operator is not visible on any.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()
        self.device_type = device_type
        self.term = "workspace"
        self._events: list[int] = []
        self._nbytes: list[int] = []
        self._terms: list[str] = []
        self._phases: list[tuple[str, int]] = []
        self._number: dict[int, int] = {}  # storage number by id of its weak reference
        self._references: list[TrackedStorage] = []  # kept alive so that ids stay unique
        self._overwritten: TrackedStorage | None = None
        self._operator_start = 0

    def start(self) -> None:
        """Start recording, without scanning for existing storages, which do not count here."""
        self.__enter__()

    def start_phase(self, phase: str, term: str) -> None:
        """Start a phase; its storages count as `term` until `term` is set again."""
        self._process_pending()
        self._phases.append((phase, len(self._events)))
        self.term = term

    def set_term(self, tensor: Tensor | None, term: str) -> None:
        """Count a tensor's storage as another term."""
        for storage in () if tensor is None else storages_of(tensor):
            number = self._number.get(id(self._lookup(storage)))
            if number is not None:
                self._terms[number] = term

    def trace(self) -> AllocationTrace:
        """Everything recorded until now."""
        self._process_pending()
        program = AllocationProgram(tuple(self._events), tuple(self._terms), tuple(self._phases))
        return AllocationTrace(program, np.array(self._nbytes, dtype=np.int64))

    def _add(self, storage: UntypedStorage) -> int:
        before = self._lookup(storage)
        nbytes_before = None if before is None else before.nbytes
        reached = super()._add(storage)
        held = self._lookup(storage)
        if held is not None and (held is not before or held.nbytes != nbytes_before):
            self._allocate(held, storage.nbytes())
        return reached

    def _allocate(self, held: TrackedStorage, nbytes: int) -> None:
        resized = self._number.get(id(held))
        self._number[id(held)] = len(self._nbytes)
        self._events.append(len(self._nbytes))
        if resized is not None:  # a resize allocates the new storage before it frees the old one
            self._events.append(resized)
        self._references.append(held)
        self._nbytes.append(nbytes)
        self._terms.append(self.term)

    def _process_pending(self) -> None:
        self._overwritten = None if self._engine_copy is None else self._engine_copy[0]
        super()._process_pending()
        self._operator_start = len(self._events)

    def _release(self, held: TrackedStorage) -> None:
        super()._release(held)
        number = self._number.pop(id(held), None)
        if number is not None:  # autograd would have overwritten it in place, so it is freed before the copy is made
            at = self._operator_start if held is self._overwritten else len(self._events)
            self._events.insert(at, number)

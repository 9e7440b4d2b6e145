"""A simulated device allocator: live bytes by term and peak bytes by phase, without allocating anything."""

from workbench.memory.estimate import PHASES, TERMS
from workbench.meter.storages import rounded_bytes


class SimulatedAllocator:
    """Tracks live bytes by term, the peak of each phase, and the terms at the overall peak.

    A storage is freed when its last reference is dropped, as with a tensor's storage.
    """

    def __init__(self) -> None:
        self.live = dict.fromkeys(TERMS, 0)
        self.total = 0
        self.peaks = dict.fromkeys(PHASES, 0)
        self.peak = 0
        self.terms_at_peak = dict(self.live)
        self._phase = PHASES[0]

    def start_phase(self, phase: str) -> None:
        """Attribute subsequent peaks to `phase`."""
        self._phase = phase
        self._update_peaks()

    def allocate(self, nbytes: int, term: str) -> "Storage":
        """Allocate a storage, its size rounded up as the caching allocator does."""
        storage = Storage(self, rounded_bytes(nbytes), term)
        self.live[term] += storage.nbytes
        self.total += storage.nbytes
        self._update_peaks()
        return storage

    def allocate_temporary(self, nbytes: int, term: str) -> None:
        """Allocate and immediately free, which may raise the peak."""
        self.allocate(nbytes, term)

    def _update_peaks(self) -> None:
        if self.total > self.peaks[self._phase]:
            self.peaks[self._phase] = self.total
            if self.total > self.peak:
                self.peak, self.terms_at_peak = self.total, dict(self.live)


class Storage:
    """A simulated allocation, freed with its last reference."""

    __slots__ = ("allocator", "nbytes", "term")

    def __init__(self, allocator: SimulatedAllocator, nbytes: int, term: str) -> None:
        self.allocator, self.nbytes, self.term = allocator, nbytes, term

    def set_term(self, term: str) -> None:
        """Count these bytes under another term from now on."""
        live = self.allocator.live
        live[self.term] -= self.nbytes
        live[term] += self.nbytes
        self.term = term

    def __del__(self) -> None:
        self.allocator.live[self.term] -= self.nbytes
        self.allocator.total -= self.nbytes

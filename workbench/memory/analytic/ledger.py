"""A ledger of live bytes by term, which remembers its peak."""

from workbench.core.cpu_gauge import rounded_bytes
from workbench.memory.record import PHASES, TERMS


class Ledger:
    """Live bytes by term; the most there were in each phase, and how they were made up.

    What is held is given back when nothing refers to it any more, as with a tensor's storage.
    """

    def __init__(self) -> None:
        self.live = dict.fromkeys(TERMS, 0)
        self.total = 0
        self.peaks = dict.fromkeys(PHASES, 0)
        self.peak = 0
        self.terms_at_peak = dict(self.live)
        self._phase = PHASES[0]

    def enter(self, phase: str) -> None:
        """What follows belongs to `phase`."""
        self._phase = phase
        self._look()

    def hold(self, nbytes: int, term: str) -> "Storage":
        """Take room, rounded up as the allocator does."""
        storage = Storage(self, rounded_bytes(nbytes), term)
        self.live[term] += storage.nbytes
        self.total += storage.nbytes
        self._look()
        return storage

    def touch(self, nbytes: int, term: str) -> None:
        """Take room and give it back."""
        self.hold(nbytes, term)

    def _look(self) -> None:
        if self.total > self.peaks[self._phase]:
            self.peaks[self._phase] = self.total
            if self.total > self.peak:
                self.peak, self.terms_at_peak = self.total, dict(self.live)


class Storage:
    """Room in a ledger, given back with the last reference."""

    __slots__ = ("ledger", "nbytes", "term")

    def __init__(self, ledger: Ledger, nbytes: int, term: str) -> None:
        self.ledger, self.nbytes, self.term = ledger, nbytes, term

    def book(self, term: str) -> None:
        """Count it under another term from now on."""
        live = self.ledger.live
        live[self.term] -= self.nbytes
        live[term] += self.nbytes
        self.term = term

    def __del__(self) -> None:
        self.ledger.live[self.term] -= self.nbytes
        self.ledger.total -= self.nbytes

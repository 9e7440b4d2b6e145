"""What an experiment's `check` says: one statement of the claim, and whether it held in the table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One part of a figure's claim, held against a table.

    Args:
        name: short and stable ("reg-least-memory"), unique in its figure; deviations are documented by it.
        statement: the claim's part in one sentence.
        held: whether it did here.
        evidence: the measured values that decide, in one line.
        timed: it rests on seconds, so it may differ from one run to the next: shown, never asserted.
    """

    name: str
    statement: str
    held: bool
    evidence: str
    timed: bool = False

    @property
    def verdict(self) -> str:
        """In words; seconds are no verdict on the claim, since they depend on what else the machine does."""
        if self.timed:
            return "seconds agree" if self.held else "seconds differ"
        return "held" if self.held else "did not hold"

    @property
    def symbol(self) -> str:
        """A sign for the verdict."""
        return "✓" if self.held else "◷" if self.timed else "✗"

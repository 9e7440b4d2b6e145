"""`CacheCounts`: hits and misses of a cache that serves rows."""

from typing import NamedTuple


class CacheCounts(NamedTuple):
    """Hits and misses of a cache since it was made."""

    hits: int
    misses: int

    @property
    def miss_rate(self) -> float:
        """Misses per access; not a number before the first."""
        accesses = self.hits + self.misses
        return self.misses / accesses if accesses else float("nan")

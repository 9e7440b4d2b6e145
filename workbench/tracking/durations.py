"""Durations of runs, by a monotonic clock."""

import time


class Durations:
    """Start times of the active runs of this process."""

    def __init__(self) -> None:
        self._starts: dict[str, tuple[float, float]] = {}

    def begin(self, run_id: str, started_at: float) -> None:
        """Record that a run starts now.

        Args:
            run_id: id of the run.
            started_at: system time in seconds since 1970.
        """
        self._starts[run_id] = started_at, time.monotonic()

    def ends_at(self, run_id: str, seconds: float | None = None) -> float | None:
        """Return the end of a run, its start plus its duration, in seconds since 1970; None if started elsewhere.

        Args:
            run_id: id of the run.
            seconds: duration in seconds; by default the time since `begin`.
        """
        if run_id not in self._starts:
            return None
        started_at, clock = self._starts[run_id]
        return started_at + (time.monotonic() - clock if seconds is None else seconds)

    def forget(self, run_id: str) -> None:
        """Drop a run that has ended."""
        self._starts.pop(run_id, None)

"""How long runs take, by a clock that does not change when the machine's time is set."""

import time


class Durations:
    """Starts of the runs of this process that have not ended."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, float]] = {}

    def begin(self, run_id: str, started_at: float) -> None:
        """Note that a run starts now.

        Args:
            run_id: of the run.
            started_at: seconds since 1970 by the machine's time.
        """
        self._begun[run_id] = started_at, time.monotonic()

    def ends_at(self, run_id: str, seconds: float | None = None) -> float | None:
        """When a run ends, in seconds since 1970: its start plus its duration; None if this process did not start it.

        Args:
            run_id: of the run.
            seconds: its duration; None: until now.
        """
        if run_id not in self._begun:
            return None
        started_at, clock = self._begun[run_id]
        return started_at + (time.monotonic() - clock if seconds is None else seconds)

    def forget(self, run_id: str) -> None:
        """The run has ended."""
        self._begun.pop(run_id, None)

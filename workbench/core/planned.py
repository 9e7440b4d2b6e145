"""`Planned`: what every planner returns, so that plans of all ideas are read alike."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Planned(Protocol):
    """A choice that was made from counts before a run, and what the run is predicted to take.

    All planners take their budget as `memory`, in bytes or as text such as "8GiB", and return records of this shape:
    `plan_micro_batches`, `plan_sampler`, `plan_macrobatch`, `plan_buffer`, `plan_reading`, `place_rows`, `cache_costs`,
    and `advise`, which compares all of them.
    """

    @property
    def choice(self) -> Mapping[str, Any]:
        """What was chosen, by the name of the argument that takes it."""
        ...

    @property
    def predicted(self) -> Mapping[str, float]:
        """What it is predicted to take. Names end in their unit: `peak_bytes`, `epoch_seconds`, `read_rows`."""
        ...

    @property
    def error(self) -> float | None:
        """By how much the predictions may be off, relative to them; 0 if they were counted, None if it is not known."""
        ...

    def code(self) -> str:
        """The lines of a training program that use the choice."""
        ...

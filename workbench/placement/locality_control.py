"""`LocalityControl`: how strongly locality-aware sampling prefers buffered rows, adjusted after every epoch."""

from dataclasses import dataclass, replace

from workbench.core.errors import check_type


@dataclass(frozen=True)
class LocalityControl:
    """The controller of the factor f of `wb.locality_factors`, a state machine of one record per epoch.

    After every epoch, with ratio = seconds of data movement / seconds of execution, both since the start:

        ratio ≥ grow_at and f < largest      f doubles
        ratio < shrink_below and f > 1       f becomes the midpoint of the last two factors
        otherwise                            f is settled, and stays

    Args:
        factor: f of the coming epoch.
        previous: f of the epoch before.
        movement_seconds: of data movement since the start.
        execution_seconds: of execution since the start, movement included if `movement_seconds` is a part of it.
        settled: f does not change any more.
        grow_at: ratio from which f doubles.
        shrink_below: ratio below which f returns towards its previous value.
        largest: f is not doubled from this value on.

    Source: Song and Jiang, "Rethinking Graph Data Placement for Graph Neural Network Training on Multiple GPUs": the
    rule and its bounds are those of the published code.

    >>> control = LocalityControl()
    >>> for movement in (5, 3, 0.5):  # of an epoch of 10 seconds
    ...     control = control.next(movement, 10)
    ...     print(control.factor)
    2.0
    4.0
    8.0
    >>> control.ratio
    0.2833333333333333
    """

    factor: float = 1.0
    previous: float = 1.0
    movement_seconds: float = 0.0
    execution_seconds: float = 0.0
    settled: bool = False
    grow_at: float = 0.20
    shrink_below: float = 0.15
    largest: float = 8.0

    def __post_init__(self) -> None:
        if not (0 <= self.shrink_below <= self.grow_at):
            raise ValueError(
                f"shrink_below is {self.shrink_below} and grow_at {self.grow_at}; they must be at least 0 and ascend"
            )
        if not (self.factor >= 1 and self.previous >= 1 and self.largest >= 1):
            raise ValueError(
                f"factor is {self.factor}, previous {self.previous} and largest {self.largest}; they must be at least 1"
            )
        if not (0 <= self.movement_seconds < float("inf") and 0 <= self.execution_seconds < float("inf")):
            raise ValueError(
                f"movement_seconds is {self.movement_seconds} and execution_seconds {self.execution_seconds}; they "
                "must be finite numbers of at least 0"
            )

    @property
    def ratio(self) -> float:
        """Seconds of movement per second of execution since the start; 0 before the first epoch."""
        return self.movement_seconds / self.execution_seconds if self.execution_seconds else 0.0

    def next(self, movement_seconds: float, execution_seconds: float) -> "LocalityControl":
        """Return the state after an epoch.

        Args:
            movement_seconds: of data movement in the epoch.
            execution_seconds: of execution in the epoch, above 0.

        Raises:
            ValueError: seconds that are negative, infinite or not a number, or an epoch without execution.
        """
        _check_seconds(movement_seconds, execution_seconds)
        counted = replace(
            self,
            movement_seconds=self.movement_seconds + movement_seconds,
            execution_seconds=self.execution_seconds + execution_seconds,
        )
        return counted if self.settled else counted._adjusted()

    def _adjusted(self) -> "LocalityControl":
        if self.ratio >= self.grow_at and self.factor < self.largest:
            return replace(self, factor=2 * self.factor, previous=self.factor)
        if self.ratio < self.shrink_below and self.factor > 1:
            return replace(self, factor=(self.factor + self.previous) / 2, previous=self.factor)
        return replace(self, previous=self.factor, settled=True)


def _check_seconds(movement: float, execution: float) -> None:
    for name, seconds in (("movement_seconds", movement), ("execution_seconds", execution)):
        check_type(name, seconds, (int, float), "pass seconds as a number")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"{name} is {seconds}; it must be a finite number of at least 0")
    if not execution:
        raise ValueError("execution_seconds is 0; call next() after an epoch that trained at least one batch")

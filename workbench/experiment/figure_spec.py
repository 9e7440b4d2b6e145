"""The YAML half of an experiment: claim, sizes with their grids, and the values that the paper reports."""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from workbench.core.yaml_file import read_yaml

Size = Literal["smoke", "real", "paper"]

SIZES: tuple[str, ...] = get_args(Size)

Axes = dict[str, list[Any]]


class Strict(BaseModel):
    """A frozen record that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class SizeSpec(Strict):
    """One size of an experiment.

    Args:
        device: default device, "cpu" or "cuda".
        fixed: configuration that all points share; overrides the experiment's own `fixed`.
        sweep: axes, name to values, of which every combination is a point; or a list of such grids.
        seeds: values of the axis `seed` for grids that do not have this axis.
        repetitions: number of runs of each point, to measure the spread of its seconds.
        time_limit_seconds: after which a point is stopped and failed; each then runs in a process of its own.
        deviations: name of a finding that does not hold at this size, to the reason.
        note: caveats of this size.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    fixed: dict[str, Any] = {}
    sweep: Axes | list[Axes] = {}
    seeds: list[int] = Field(default=[0], min_length=1)
    repetitions: PositiveInt = 1
    time_limit_seconds: PositiveFloat | None = None
    deviations: dict[str, str] = {}
    note: str = ""

    @property
    def grids(self) -> list[Axes]:
        return self.sweep if isinstance(self.sweep, list) else [self.sweep]


TOLERANCE = 0.2
"""Part by which an effect may differ from the number that a paper states; a range that it gives is not widened."""


class StatedSize(Strict):
    """The size of an effect that a paper states: a finding, beside its direction.

    Args:
        statement: the claim in one sentence, with the number.
        factor: the number, or the two ends of a range, of an effect that multiplies: 1 is none.
        share: the same of an effect that adds, such as a saving of 0.3: 0 is none.
        over: how the cases count: each of them, their mean, geometric mean or median, or the largest ("up to").
        tolerance: part by which the effect may differ either way; default: a fifth of a number, nothing beyond a range.
            1.2 times is an effect of 0.2, so that 1.17 to 1.24 agree with it, and no effect does not.
        timed: it is measured in seconds, which no count of rows or bytes replaces.
        source: where the paper says so.
    """

    statement: str
    factor: PositiveFloat | tuple[PositiveFloat, PositiveFloat] | None = None
    share: PositiveFloat | tuple[PositiveFloat, PositiveFloat] | None = None
    over: Literal["each", "mean", "geometric mean", "median", "largest"] = "each"
    tolerance: NonNegativeFloat = TOLERANCE
    timed: bool = False
    source: str

    @model_validator(mode="after")
    def _one_size(self) -> "StatedSize":
        if (self.factor is None) == (self.share is None):
            raise ValueError("give one of factor (1 is no effect) and share (0 is no effect)")
        if isinstance(self.size, tuple) and self.size[0] >= self.size[1]:
            raise ValueError(f"{list(self.size)} is not a range; give its lower end first")
        return self

    @property
    def size(self) -> float | tuple[float, float]:
        """The number, or the two ends of a range."""
        return self.factor if self.factor is not None else self.share  # pyright: ignore[reportReturnType]

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest size that agree with the stated one."""
        if isinstance(self.size, tuple) and "tolerance" not in self.model_fields_set:
            return self.size
        none = 0.0 if self.factor is None else 1.0
        ends = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        effects = [(end - none) * by for end in ends for by in (1 / (1 + self.tolerance), 1 + self.tolerance)]
        return none + min(effects), none + max(effects)


class Spec(Strict):
    """The contents of a figure's YAML file.

    Args:
        title: of the figure.
        source: figure, table or section of the paper.
        claim: one sentence.
        fixed: configuration that all points of all sizes share.
        sizes: specification per size, at least one.
        columns: measurements that the terminal shows; empty: all.
        reported: the paper's own values, rows like those of the table, each with its `source`.
        stated: name of a finding to the size that the claim states; the figure's `stated(table, reported)` measures it.
        unmeasured_time: name of a finding to a statement about time that no size measures, because its seconds are
            modelled, or a count replaces them.
    """

    title: str
    source: str
    claim: str
    fixed: dict[str, Any] = {}
    sizes: dict[Size, SizeSpec] = Field(min_length=1)
    columns: list[str] = []
    reported: list[dict[str, Any]] = []
    stated: dict[str, StatedSize] = {}
    unmeasured_time: dict[str, str] = {}

    @property
    def has_grid(self) -> bool:
        """The file sets values or axes of a grid, as a view of another figure's rows must not."""
        return bool(self.fixed or any(size.sweep or size.fixed for size in self.sizes.values()))

    @model_validator(mode="after")
    def _reported_have_sources(self) -> "Spec":
        for row in self.reported:
            if "source" not in row:
                raise ValueError(
                    f"reported row {row} has no source; add the section or table of the paper, such as source: Table 6"
                )
        return self


def read_spec(file: Path) -> Spec:
    """Read and validate the YAML file of a figure.

    Raises:
        ConfigError: invalid YAML, an unknown key, a missing key, a wrong type.
    """
    return read_yaml(file, Spec)


class UnknownExperimentError(ValueError):
    """No experiment of that name; the message names those that exist."""

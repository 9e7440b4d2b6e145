"""The YAML half of an experiment: what it claims, at which sizes it runs over which grid, what the paper reports."""

from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from workbench.experiment.problems import ConfigError, explain

Size = Literal["smoke", "real", "paper"]
SIZES: tuple[str, ...] = get_args(Size)

Axes = dict[str, list[Any]]


class Strict(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class SizeSpec(Strict):
    """One size of an experiment.

    Args:
        device: that it is meant for, "cpu" or "cuda"; a run may choose another.
        fixed: configuration that all points share; goes before the experiment's own.
        sweep: axes, name to values, of which every combination is a point; or a list of such grids.
        seeds: an axis too, of grids without a `seed` of their own.
        repetitions: times that each point is run, for the spread of its seconds.
        deviations: name of a finding that does not hold at this size, to the reason that was found.
        note: what a reader must know of this size.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    fixed: dict[str, Any] = {}
    sweep: Axes | list[Axes] = {}
    seeds: list[int] = Field(default=[0], min_length=1)
    repetitions: PositiveInt = 1
    deviations: dict[str, str] = {}
    note: str = ""

    @property
    def grids(self) -> list[Axes]:
        return self.sweep if isinstance(self.sweep, list) else [self.sweep]


class Spec(Strict):
    """The whole file.

    Args:
        paper: its name and venue.
        title: of the figure.
        source: figure, table or section of the paper.
        claim: one sentence.
        rows_from: "paper/figure" whose rows this one shows; it then has no sweep of its own.
        fixed: configuration that all points of all sizes share.
        sizes: at least one.
        columns: measurements that a terminal shows; all of them if empty.
        reported: the paper's own values, rows like those of the table, each with its `source`.
    """

    paper: str
    title: str
    source: str
    claim: str
    rows_from: str | None = Field(default=None, pattern=r"^[\w-]+/[\w-]+$")
    fixed: dict[str, Any] = {}
    sizes: dict[Size, SizeSpec] = Field(min_length=1)
    columns: list[str] = []
    reported: list[dict[str, Any]] = []

    @model_validator(mode="after")
    def _view_has_no_sweep(self) -> "Spec":
        if self.rows_from and (self.fixed or any(size.sweep or size.fixed for size in self.sizes.values())):
            raise ValueError(f"rows come from {self.rows_from}, so fixed and sweep belong there; remove them here")
        return self

    @model_validator(mode="after")
    def _reported_have_sources(self) -> "Spec":
        for row in self.reported:
            if "source" not in row:
                raise ValueError(f"reported row {row} has no source; say where in the paper it stands")
        return self


def read_spec(file: Path) -> Spec:
    """Read and validate a YAML file.

    Raises:
        ConfigError: not YAML, an unknown key, a missing one, a wrong type; with file, key and what is allowed.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return Spec.model_validate(content)
    except ValidationError as error:
        raise explain(error, Spec, str(file)) from None

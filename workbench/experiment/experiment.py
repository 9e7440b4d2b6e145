"""`Experiment`: a figure of a paper, ready to run, draw and check."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd

from workbench.experiment.closure import closure, closure_digest
from workbench.experiment.config import PointConfig
from workbench.experiment.data import alternatives, at_hand, describe_dataset
from workbench.experiment.environment import check_device, device_name, environment_tags, load_average
from workbench.experiment.finding import Finding
from workbench.experiment.grid import configs, grids
from workbench.experiment.key import figure_digest, point_key
from workbench.experiment.places import project_root, relative
from workbench.experiment.problems import ConfigError
from workbench.experiment.spec import Spec
from workbench.experiment.sweep import Task, run_sweep
from workbench.experiment.table import table_of
from workbench.tracking.record import Point, Run
from workbench.tracking.store import Store, open_store


class GridRuns(NamedTuple):
    """Runs of one grid on one device.

    Args:
        runs: of its points, in order; two data sets may have one run, of what stands in for both.
        ended: points that have a run.
        points: of the grid.
    """

    runs: list[Run]
    ended: int
    points: int


@dataclass(frozen=True, eq=False, repr=False)
class Experiment:
    """A figure: its YAML, its Python, and the experiment whose rows it shows.

    Args:
        name: "paper/figure".
        spec: of the YAML.
        file: of the YAML.
        module: with `draw`, `check` and `compare`, each called with (table, reported); with `Config` and `run(config)`
            too where the rows are its own.
        home: the experiment whose rows it shows; None for its own.
        views: names of all figures that show its rows, its own included.
    """

    name: str
    spec: Spec
    file: Path
    module: ModuleType
    home: "Experiment | None" = None
    views: tuple[str, ...] = ()

    @property
    def sweep(self) -> "Experiment":
        """The experiment that makes the rows."""
        return self.home or self

    @property
    def reported(self) -> pd.DataFrame:
        """The paper's values, a line each."""
        return pd.DataFrame(self.spec.reported)

    def tasks(
        self, *, size: str = "smoke", device: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[Task]:
        """Grid points with their keys; data sets are loaded for their fingerprints.

        Raises:
            ConfigError: with file, key and what is allowed; or a data set that is not at hand.
            RuntimeError: a device that is not here.
        """
        code = self.code_digest()
        found = self.configs(size=size, device=device, overrides=overrides)
        tasks = [Task(self.sweep._point(config, size, code), config) for config in found]
        return list({task.point.key: task for task in tasks}.values())  # two sets may have one that stands in for both

    def configs(
        self, *, size: str = "smoke", device: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[PointConfig]:
        """Validated configurations of all points, with data sets that are at hand; nothing is loaded.

        Raises:
            ConfigError: with file, key and what is allowed; or a data set that is not at hand.
            RuntimeError: a device that is not here.
        """
        found = self.sweep._validated(size, device, overrides)
        for config in found:
            check_device(config.device)
        return [at_hand(config, relative(self.sweep.file)) for config in found]

    def select(self, runs: Iterable[Run], *, size: str) -> list[GridRuns]:
        """Of runs, those of the size's own grid made by the code as it is, for each device in the grid's order.

        Neither devices nor data sets need to be here; of a point's runs the last one counts.

        Args:
            runs: of this sweep and size.
            size: of the grid.
        """
        code = self.code_digest()
        newest = {_as_text(run.point.config): run for run in runs if run.point.tags.get("code") == code}
        devices = dict.fromkeys(str(run.point.config["device"]) for run in newest.values())
        grids = [self.sweep._validated(size, device, None) for device in devices]
        points = [
            [[_as_text(resolved(either)) for either in alternatives(config)] for config in grid] for grid in grids
        ]
        return [
            GridRuns(
                [newest[key] for key in dict.fromkeys(chain.from_iterable(own)) if key in newest],
                sum(any(key in newest for key in either) for either in own),
                len(own),
            )
            for own in points
        ]

    def run(
        self,
        *,
        size: str = "smoke",
        device: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> pd.DataFrame:
        """Run what is not done yet and return the table of all points.

        Args:
            size: "smoke", "real" or "paper".
            device: default: the size's.
            overrides: configuration key to value ("dataset.scale" reaches into a mapping; a list replaces an axis).
            store: default: see `open_store`.
            progress: show a bar on stderr; None: on a terminal.

        Raises:
            ConfigError: before any work; see `configs`.
            StoreError: the store can't be reached, before any work.
        """
        return table_of(self.runs(size=size, device=device, overrides=overrides, store=store, progress=progress))

    def runs(
        self,
        *,
        size: str = "smoke",
        device: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        store: Store | None = None,
        progress: bool | None = None,
    ) -> list[Run]:
        """Like `run`; the runs themselves."""
        self.configs(size=size, device=device, overrides=overrides)
        store = store or open_store()
        store.check()
        store.close_orphans()
        tasks = self.tasks(size=size, device=device, overrides=overrides)
        return run_sweep(tasks, self.sweep.module.run, store, progress=progress)

    def draw(self, table: pd.DataFrame) -> Any:
        """The figure."""
        return self.module.draw(table, self.reported)

    def check(self, table: pd.DataFrame) -> list[Finding]:
        """The claim, part by part, held against a table."""
        return list(self.module.check(table, self.reported))

    def shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that the figure shows: all, unless its module has a `shown(table)`."""
        return self.module.shown(table) if hasattr(self.module, "shown") else table

    def compare(self, table: pd.DataFrame) -> pd.DataFrame:
        """The paper's numbers beside those of a table."""
        return self.module.compare(table, self.reported)

    def deviations(self, size: str) -> dict[str, str]:
        """Findings known not to hold at a size, with the reason."""
        return self.spec.sizes[size].deviations if size in self.spec.sizes else {}  # pyright: ignore[reportArgumentType]

    def findings(self, table: pd.DataFrame, *, size: str) -> pd.DataFrame:
        """The claim's parts as a table: statement, verdict, evidence, and the reason of documented deviations."""
        known = self.deviations(size)
        return pd.DataFrame(
            {
                "statement": finding.statement,
                "verdict": finding.verdict,
                "evidence": finding.evidence,
                "why": "" if finding.held else known.get(finding.name, ""),
            }
            for finding in self.check(table)
        )

    def unexplained(self, table: pd.DataFrame, *, size: str) -> list[Finding]:
        """Findings that neither held nor are documented as deviations; those on seconds are left out."""
        known = self.deviations(size)
        return [f for f in self.check(table) if not f.held and not f.timed and f.name not in known]

    def figure_digest(self) -> str:
        """sha256 over the library and the figure's own pair."""
        return figure_digest((self.file, self.file.with_suffix(".py")))

    def code(self) -> dict[str, str]:
        """The code that decides the rows: sha256 by module or definition; see `workbench.experiment.closure`."""
        return closure(self.sweep.file.with_suffix(".py"), ("run", "Config"))

    def code_digest(self) -> str:
        """sha256 over the code that decides the rows."""
        return closure_digest(self.code())

    def note(self, size: str) -> str:
        """What a reader must know of a size: the sweep's note and the figure's own."""
        specs = [self.home.spec, self.spec] if self.home else [self.spec]
        found = [spec.sizes.get(size) for spec in specs]  # pyright: ignore[reportArgumentType, reportCallIssue]
        return "; ".join(chosen.note for chosen in found if chosen is not None and chosen.note)

    def __repr__(self) -> str:
        return f"Experiment({self.name}: {self.spec.title})"

    def _repr_markdown_(self) -> str:
        spec = self.spec
        notes = "".join(f"\n\n*{size}*: {note}" for size in self.sweep.spec.sizes if (note := self.note(size)))
        return f"**{spec.title}** — {spec.paper}, {spec.source}.\n\nClaim: {spec.claim}{notes}"

    def _validated(self, size: str, device: str | None, overrides: Mapping[str, Any] | None) -> list[PointConfig]:
        where = relative(self.file)
        try:
            return configs(grids(self.spec, size, device=device, overrides=overrides), self.module.Config, where)
        except ConfigError as error:
            raise ConfigError(str(error) if where in str(error) else f"{where}: {error}") from None

    def _point(self, config: PointConfig, size: str, code: str) -> Point:
        plain = resolved(config)
        dataset = describe_dataset(config.dataset)  # pyright: ignore[reportArgumentType]  # frozen, so it can be hashed
        tags = {**environment_tags(project_root()), "device": device_name(config.device), "code": code}
        tags["load"] = load_average()
        key = point_key(code, plain, dataset.fingerprint)
        return Point(self.name, size, key, plain, self.views, dataset, tags)


def resolved(config: PointConfig) -> dict[str, Any]:
    """JSON values; the experiment's own keys before those that more have, since they tell its runs apart."""
    plain = config.model_dump(mode="json", exclude={"dataset": {"otherwise"}})
    kinds = [kind for kind in type(config).__mro__ if issubclass(kind, PointConfig)]
    return dict(sorted(plain.items(), key=lambda item: sum(item[0] in kind.model_fields for kind in kinds)))


def _as_text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)

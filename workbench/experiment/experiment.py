"""`Experiment`: a figure or table of a paper, which can be run, drawn and checked."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from workbench.core.yaml_file import ConfigError
from workbench.experiment.attempt import Task, finished_runs
from workbench.experiment.claims import stated_size
from workbench.experiment.closure import Closure, closure, point_key, sha256, summary_key
from workbench.experiment.config import PointConfig, dataset_of
from workbench.experiment.environment import check_device, device_name, environment_tags, load_average
from workbench.experiment.figure_spec import Spec
from workbench.experiment.finding import Finding, failed_points, findings_table
from workbench.experiment.grid import GridRuns, configs, grids, resolved, rows_of_points, runs_of_grid, varying
from workbench.experiment.needs import check_needs
from workbench.experiment.parallel import Executor, process_limits
from workbench.experiment.point_dataset import at_hand, describe_dataset, stamps
from workbench.experiment.sweep import Progress, run_sweep
from workbench.experiment.table import table_of
from workbench.experiment.title import Title
from workbench.paths import project_root, shown_path
from workbench.tracking.mlflow_fields import label
from workbench.tracking.opening import open_store
from workbench.tracking.record import Point, Run
from workbench.tracking.store import Store

_MODELLED = "neither counts nor modelled seconds decide a claim about time"


@dataclass(frozen=True, eq=False, repr=False)
class Experiment:
    """A figure: its YAML, its Python, and the experiment whose rows it shows.

    Args:
        name: "paper/figure".
        paper: name and venue of the paper.
        spec: contents of its YAML file.
        file: its YAML file.
        module: defines `draw`, `check` and `compare`, each of (table, reported), and `title` likewise if the figure's
            title has numbers; and `Config` and `run(config)`, unless the figure is a view of another one's rows.
        home: the experiment whose rows it shows; None if it has its own.
        views: names of all figures that show its rows, itself included; empty for a view.
        requires: optional module that its run imports.
    """

    name: str
    paper: str
    spec: Spec
    file: Path
    module: ModuleType
    home: "Experiment | None" = None
    views: tuple[str, ...] = ()
    requires: str | None = None

    @property
    def sweep(self) -> "Experiment":
        """The experiment that yields the rows: `home`, or the figure itself."""
        return self.home or self

    @property
    def reported(self) -> pd.DataFrame:
        """The paper's values, one row each."""
        return pd.DataFrame(self.spec.reported)

    def tasks(
        self, *, size: str = "smoke", device: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[Task]:
        """Grid points with their keys; loads data sets for their fingerprints. Arguments and errors as for `run`."""
        code = self.code().digest
        found = self.configs(size=size, device=device, overrides=overrides)
        told = varying([*self.sweep._validated(size, device, None), *found])
        tasks = [Task(self.sweep._point(config, size, code, told), config) for config in found]
        return list({task.point.key: task for task in tasks}.values())  # one data set may replace two

    def configs(
        self, *, size: str = "smoke", device: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[PointConfig]:
        """Validated configurations of all points, with data sets that are available; loads nothing."""
        found = self.sweep._validated(size, device, overrides)
        for config in found:
            check_device(config.device)
        return [at_hand(config, shown_path(self.sweep.file)) for config in found]

    def points(self, size: str) -> list[PointConfig]:
        """Validated configurations of a size's grid; neither its device nor data sets need to be available here."""
        return self.sweep._validated(size, None, None)

    def select(self, runs: Iterable[Run], *, size: str) -> list[GridRuns]:
        """Of some runs, those of the size's grid that the present code made: one selection per device.

        Neither devices nor data sets need to be available here.

        Args:
            runs: of this sweep and size; of the runs of a point the last one counts.
        """
        code = self.code().digest
        made = [run for run in runs if run.point.tags.get("code") == code]
        devices = dict.fromkeys(str(run.point.config["device"]) for run in made)
        return [runs_of_grid(made, self.sweep._validated(size, device, None)) for device in devices]

    def rows_of_points(self, table: pd.DataFrame, *, size: str) -> list[list[int]]:
        """Positions of the rows that a recorded table has of every point of a size's grid, none of a missing point.

        Neither the device nor data sets need to be available here.

        Args:
            table: rows of the sweep, with their configuration.
            size: of the grid.
        """
        device = str(table["device"].iloc[0]) if "device" in table and len(table) else None
        return rows_of_points(table, self.sweep._validated(size, device, None))

    def run(
        self,
        *,
        size: str = "smoke",
        device: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        store: Store | None = None,
        progress: bool | None = None,
        jobs: int = 1,
        time_limit_seconds: float | None = None,
        in_subprocess: bool | None = None,
        executor: Executor = "processes",
    ) -> pd.DataFrame:
        """Run what is not done yet and return the table of all points.

        Args:
            device: default: the size's.
            overrides: configuration key to value ("dataset.scale" reaches into a mapping; a list replaces an axis).
            store: default: that of MLFLOW_TRACKING_URI, else `mlflow.db` of the project.
            progress: show a bar on stderr; None: on a terminal and in a notebook.
            jobs: points that run at a time, each in a process of its own with its share of the cores.
            time_limit_seconds: after which a point is stopped and fails; default: the size's, if it has one.
            in_subprocess: run each point in a process of its own, so that a crash or the system's out-of-memory killer
                fails that point alone; None: with several jobs, a time limit or Ray. Such a process imports the figure
                anew.
            executor: "processes" of this machine, or "ray": workers of a Ray cluster, whose cores the jobs share.

        Raises:
            ConfigError: an invalid configuration or a data set that is not available, before any work.
            CapacityError: at size "paper", a data set that has to be built exceeds the memory, before any work.
            StoreError: the store can't be reached, before any work.
            ValueError: jobs below 1, a time limit of 0 or less, or jobs, a limit or Ray without subprocesses.
            RuntimeError: Ray is not installed.
        """
        return table_of(
            self.runs(
                size=size,
                device=device,
                overrides=overrides,
                store=store,
                progress=progress,
                jobs=jobs,
                time_limit_seconds=time_limit_seconds,
                in_subprocess=in_subprocess,
                executor=executor,
            )
        )

    def runs(
        self,
        *,
        size: str = "smoke",
        device: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        store: Store | None = None,
        progress: Progress = None,
        jobs: int = 1,
        time_limit_seconds: float | None = None,
        in_subprocess: bool | None = None,
        executor: Executor = "processes",
        kept: Sequence[Run] = (),
        only: Collection[str] | None = None,
    ) -> list[Run]:
        """Like `run`, but return the runs themselves; `progress` may be a bar of several sweeps.

        Points of which a run is `kept` are neither run nor stored; with `only`, nor are those with other keys.
        """
        found = self.configs(size=size, device=device, overrides=overrides)
        if size == "paper":
            check_needs(found, shown_path(self.sweep.file))
        limit = time_limit_seconds if time_limit_seconds is not None else self._time_limit(size)
        limits = process_limits(jobs, limit, in_subprocess, executor)
        store = store or open_store()
        store.check()
        store.close_orphans()
        tasks = self.tasks(size=size, device=device, overrides=overrides)
        tasks = [task for task in tasks if only is None or task.point.key in only]
        done = {run.point.key: run for run in kept}
        waiting = [task for task in tasks if task.point.key not in done]
        for run in run_sweep(waiting, self.sweep.module.run, store, limits=limits, progress=progress):
            done[run.point.key] = run
        return [done[task.point.key] for task in tasks]

    def _time_limit(self, size: str) -> float | None:
        return self.sweep.spec.sizes[size].time_limit_seconds  # pyright: ignore[reportArgumentType]

    def is_current(self, store: Store, *, size: str = "smoke", device: str | None = None) -> bool:
        """Check, without running a point, that the store has all that running and logging the figure would add.

        That is a finished run of every point of the size's grid under its present key, and a summary of these runs
        under the figure's present digest. Data sets are loaded once per process, for their fingerprints.
        """
        tasks = self.tasks(size=size, device=device)
        finished = finished_runs(tasks, store)
        if any(task.point.key not in finished for task in tasks):
            return False
        key = summary_key(self.name, self.figure_digest(), [finished[task.point.key].run_id for task in tasks])
        return store.has_summary(self.name, self.sweep.name, size, key)

    def draw(self, table: pd.DataFrame) -> Any:
        """Draw the figure from a table."""
        return self.module.draw(table, self.reported)

    def title(self, table: pd.DataFrame) -> Title | None:
        """The figure's title with the numbers in it, measured in every case; None if its title has no number."""
        return self.module.title(table, self.reported) if hasattr(self.module, "title") else None

    def check(self, table: pd.DataFrame) -> list[Finding]:
        """Check every part of the claim against a table: its directions, the sizes that the paper states, and what it
        says about time; of failed points, which have no values, one finding tells."""
        measured = self.module.stated(table, self.reported) if self.spec.stated else {}
        sizes = [stated_size(name, size, measured.get(name)) for name, size in self.spec.stated.items()]
        open_ones = [
            Finding(name, statement, False, _MODELLED, timed=True, decided=False)
            for name, statement in self.spec.unmeasured_time.items()
        ]
        return [*self.module.check(table, self.reported), *sizes, *open_ones, *failed_points(table)]

    def shown(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that the figure shows: all, unless its module defines `shown(table)`."""
        return self.module.shown(table) if hasattr(self.module, "shown") else table

    def compare(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table of the paper's numbers beside those measured here."""
        return self.module.compare(table, self.reported)

    def deviations(self, size: str) -> dict[str, str]:
        """Names of findings that are known not to hold at a size, to the reasons."""
        return self.spec.sizes[size].deviations if size in self.spec.sizes else {}  # pyright: ignore[reportArgumentType]

    def findings(self, table: pd.DataFrame, *, size: str) -> pd.DataFrame:
        """The findings as a table: statement, verdict, evidence, and the reason of a documented deviation."""
        return findings_table(self.check(table), self.deviations(size))

    def unexplained(self, table: pd.DataFrame, *, size: str) -> list[Finding]:
        """Findings that did not hold and are not documented as deviations; timed and undecided ones are left out."""
        known = self.deviations(size)
        return [f for f in self.check(table) if f.counts and not f.held and f.name not in known]

    def figure_digest(self) -> str:
        """sha256 over the code that draws and checks the figure, and over its YAML file, comments left out."""
        drawing = closure(self.file.with_suffix(".py"), ("draw", "check", *(["stated"] if self.spec.stated else [])))
        return sha256(drawing.digest, self.spec.model_dump_json())

    def code(self) -> Closure:
        """The code that decides the rows: all definitions that `run` reaches."""
        return closure(self.sweep.file.with_suffix(".py"), ("run", "Config"))

    def note(self, size: str) -> str:
        """Caveats of a size: the note of the sweep and the figure's own."""
        specs = [self.home.spec, self.spec] if self.home else [self.spec]
        found = [spec.sizes.get(size) for spec in specs]  # pyright: ignore[reportArgumentType, reportCallIssue]
        return "; ".join(chosen.note for chosen in found if chosen is not None and chosen.note)

    def __repr__(self) -> str:
        return f"Experiment({self.name}: {self.spec.title})"

    def _repr_markdown_(self) -> str:
        spec = self.spec
        notes = "".join(f"\n\n*{size}*: {note}" for size in self.sweep.spec.sizes if (note := self.note(size)))
        return f"**{spec.title}** — {self.paper}, {spec.source}.\n\nClaim: {spec.claim}{notes}"

    def _validated(self, size: str, device: str | None, overrides: Mapping[str, Any] | None) -> list[PointConfig]:
        where = shown_path(self.file)
        try:
            found = grids(self.spec, size, device=device, overrides=overrides)
            given = [*(overrides or {}), *(["device"] if device else [])]
            return configs(found, self.module.Config, where, given)
        except ConfigError as error:
            raise ConfigError(str(error) if where in str(error) else f"{where}: {error}") from None

    def _point(self, config: PointConfig, size: str, code: str, told: Collection[str]) -> Point:
        plain = resolved(config)
        data: Any = dataset_of(config)  # frozen, so it can be hashed
        dataset = describe_dataset(data, stamps(data))
        tags = {
            **environment_tags(project_root()),
            "device": device_name(config.device),
            "paper": self.paper,
            "code": code,
            "columns": " ".join(self.spec.columns),
        }
        tags["load"] = load_average()
        key = point_key(code, plain, dataset.fingerprint if dataset else "")
        return Point(self.name, size, key, plain, self.views, dataset, tags, label(plain, told))

"""First runs on a store, in processes that are forked with all imports done, so that kills hit the work."""

import os
import signal
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

SWEEP = "toys/fig1"

_forkserver = get_context("forkserver")
_forkserver.set_forkserver_preload(
    [
        "tests.experiment.first_runs",
        "workbench.cli",
        "workbench.experiment.figure_loader",
        "workbench.experiment.summary",
        "workbench.tracking.mlflow_store",
        "mlflow.store.tracking.sqlalchemy_store",
        "plotly.graph_objects",
    ]
)


def start(uri: str, log: Path, *, die_at: str | None = None) -> BaseProcess:
    """Start `workbench run` on a store.

    Args:
        uri: of the store.
        log: file for stdout and stderr.
        die_at: a moment of `MOMENTS` at which the process kills itself.
    """
    process = _forkserver.Process(target=_main, args=(uri, str(log), dict(os.environ), die_at))
    process.start()
    return process


def _main(uri: str, log: str, environment: Mapping[str, str], die_at: str | None) -> None:
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    from workbench.cli import main

    if die_at is not None:
        MOMENTS[die_at]()
    status = main(["run", SWEEP, "--store", uri])
    os._exit(status)


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at_the_third_migration() -> None:
    from alembic.runtime.migration import HeadMaintainer

    own, seen = HeadMaintainer.update_to_step, []

    def update(self, step):
        own(self, step)
        seen.append(step)
        if len(seen) == 3:
            _die()

    HeadMaintainer.update_to_step = update


def _when_it_is_published() -> None:
    """A database that was built before is copied: to build one takes seconds."""
    from workbench.tracking import preflight as database
    from workbench.tracking.mlflow_store import MlflowStore

    def build(self, draft: Path) -> None:
        draft.write_bytes(Path(os.environ["BUILT_DATABASE"]).read_bytes())

    MlflowStore._build = build  # pyright: ignore[reportAttributeAccessIssue]
    own = database.write_file
    database.write_file = lambda *args: (own(*args), _die())


def _with_an_experiment_that_is_created() -> None:
    from mlflow import MlflowClient

    own = MlflowClient.create_experiment

    def create(self, *args, **kwargs):
        found = own(self, *args, **kwargs)
        _die()
        return found

    MlflowClient.create_experiment = create


def _before_a_run_is_finished() -> None:
    from mlflow import MlflowClient

    MlflowClient.set_terminated = _die


MOMENTS = {
    "third migration": _at_the_third_migration,
    "published": _when_it_is_published,
    "experiment created": _with_an_experiment_that_is_created,
    "rows written": _before_a_run_is_finished,
}
"""Names of moments, to functions that make the process kill itself then."""

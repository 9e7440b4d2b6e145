"""`track`: keeps what one's own code measures as a run, beside the runs of the figures."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from workbench.experiment.attempt import Attempt, described
from workbench.experiment.closure import point_key
from workbench.experiment.environment import device_name, environment_tags
from workbench.paths import project_root
from workbench.tracking.opening import open_store
from workbench.tracking.record import Point, plain_value
from workbench.tracking.store import NOTHING, Store


class TrackedRun:
    """The rows of a run that is being tracked."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def log(self, **values: Any) -> None:
        """Add a row; rows with a column `epoch` or `step` are the points of a curve.

        Args:
            values: numbers, strings, bools, None, or tensors and arrays of one element, by column; columns of bytes and
                seconds are named `…_bytes` and `…_seconds`.

        Raises:
            ValueError: a value of another type.
        """
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        self.rows.append({name: plain_value(value) for name, value in plain.items()})


@contextmanager
def track(
    sweep: str,
    config: Mapping[str, Any] = NOTHING,
    *,
    store: Store | None = None,
    size: str = "smoke",
    device: str = "cpu",
    label: str = "",
) -> Iterator[TrackedRun]:
    """Keep what a block of code logs as a run, with its configuration, commit, machine and versions.

    An exception marks the run as failed, and an interrupt as killed; both are raised again. `wb.compare` and `workbench
    compare` show the newest run of each configuration.

    Args:
        sweep: "project/name", of letters, digits, "_", "-" and ".".
        config: what the run depends on, JSON values by name.
        store: a store of runs; None: that of the figures, `wb.open_store()`.
        size: "smoke", "real" or "paper".
        device: "cpu", "cuda" or "cuda:N", whose model is noted.
        label: a short text that tells the run from the others of its sweep.

    Raises:
        ValueError: a sweep without a slash, an unknown size, or a configuration that is not JSON.
        StoreError: the store can't be written.

    >>> import tempfile, workbench as wb
    >>> store = wb.open_store(tempfile.mkdtemp() + "/runs.jsonl")
    >>> with wb.track("mine/mlp", {"width": 64}, store=store) as run:
    ...     run.log(loss=0.5)
    >>> wb.compare(store, sweep="mine/mlp").loss.tolist()
    [0.5]
    """
    try:
        config = json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"config is not JSON ({problem}); use numbers, strings, lists and mappings") from None
    tags = {**environment_tags(project_root()), "device": device_name(device)}
    point = Point(sweep, size, point_key(sweep, config, ""), config, (sweep,), None, tags, label)
    attempt, run = Attempt(point, store or open_store()), TrackedRun()
    try:
        yield run
    except Exception as error:
        attempt.fail(*described(error))
        raise
    except BaseException as interrupt:
        attempt.kill(type(interrupt).__name__)
        raise
    attempt.finish(run.rows)

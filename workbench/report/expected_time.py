"""What a sweep takes, known before it runs: time from recorded tables or `smoke-seconds.csv`, memory from sizes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.experiment.config import PointConfig
from workbench.experiment.experiment import Experiment
from workbench.experiment.needs import check_needs, expected_seconds as seconds_by_work
from workbench.experiment.recorded import recorded
from workbench.files import write_file
from workbench.paths import results_folder, shown_path

_STEPS = (5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600)  # seconds; then whole hours
_MACHINE = "two cores"


def seconds_file(paper: str) -> Path:
    """Returns the file of the seconds that a paper's sweeps take at the smoke size.

    Args:
        paper: name of the paper's folder.
    """
    return results_folder() / paper / "smoke-seconds.csv"


def write_smoke_seconds(paper: str, seconds: Mapping[str, float]) -> Path:
    """Writes the seconds of a paper's sweeps at the smoke size, rounded up coarsely: they vary from run to run.

    Args:
        paper: name of the paper's folder.
        seconds: "paper/figure" of a sweep to the sum of its points' seconds.

    Returns:
        The file.
    """
    rows = [(sweep, _rounded_up(taken)) for sweep, taken in seconds.items()]
    file = seconds_file(paper)
    write_file(file, pd.DataFrame(rows, columns=["sweep", "seconds"]).to_csv(index=False, lineterminator="\n"))
    return file


def smoke_seconds(experiments: Iterable[Experiment]) -> dict[str, float]:
    """Runs sweeps at the smoke size, as far as the store does not have their points, and sums up their seconds.

    Args:
        experiments: figures; those that show the rows of one sweep give one entry.

    Returns:
        "paper/figure" of a sweep to seconds.
    """
    sweeps = {experiment.sweep.name: experiment.sweep for experiment in experiments}
    runs = {name: sweep.runs(size="smoke") for name, sweep in sweeps.items()}
    return {name: sum(run.seconds or 0.0 for run in own) for name, own in runs.items()}


def expected_seconds(experiment: Experiment, size: str) -> float | None:
    """Seconds that the sweep of a figure took when it was recorded.

    Args:
        experiment: the figure.
        size: "smoke", "real" or "paper".

    Returns:
        Of several tables of the size, those of the fastest machine; None if no table of the size tells.
    """
    sweep = experiment.sweep.name
    found = [sum(seconds) for kept in recorded(sweep) if kept.size == size and (seconds := kept.point_seconds())]
    if size == "smoke" and (file := seconds_file(sweep.partition("/")[0])).exists():
        known: Any = pd.read_csv(file).set_index("sweep")["seconds"]
        found += [float(known[sweep])] if sweep in known else []
    return min(found, default=None)


def announcement(sweeps: Iterable[tuple[Experiment, int, int]], size: str) -> str:
    """One line before sweeps run: how many points, and about how long; "" if there are none, or the time is unknown.

    Args:
        sweeps: each with its number of points to run and of all points.
        size: "smoke", "real" or "paper".
    """
    pending = [(sweep, left, left / points) for sweep, left, points in sweeps if left]
    known = [(expected_seconds(sweep, size), share) for sweep, _, share in pending]
    told = [seconds * share for seconds, share in known if seconds is not None]
    if not told or len(told) < len(known):
        return ""
    total = sum(left for _, left, _ in pending)
    name = pending[0][0].sweep.name if len(pending) == 1 else f"{len(pending)} sweeps"
    return f"{name} at {size}: {total} point{'s' * (total > 1)} to run, {about(sum(told))}"


def needs(experiment: Experiment, points: Sequence[PointConfig]) -> list[str]:
    """Lines on what points of the paper's size need, before they run: memory of the device, and time.

    The time is that of the recorded table of size "real", scaled by the work of the points.

    Args:
        experiment: the figure.
        points: configurations of its sweep, with data sets that are available.

    Raises:
        CapacityError: a data set that has to be built exceeds the memory.
    """
    sweep = experiment.sweep
    lines = check_needs(points, shown_path(sweep.file))
    for kept in (table for table in recorded(sweep.name) if table.size == "real"):
        seconds = seconds_by_work(points, kept.table, sweep.points("real"))
        if seconds is not None:
            return [*lines, f"all points: {about(seconds)}, at the speed of the recorded size real"]
    return [*lines, "no table of size real is recorded, so the time is not known"]


def about(seconds: float) -> str:
    """An expected time in words, rounded up.

    Args:
        seconds: 0 or more.

    >>> about(7), about(70), about(4000)
    ('about 10 s on two cores', 'about 2 min on two cores', 'about 2 h on two cores')
    """
    rounded = _rounded_up(seconds)
    text = f"{rounded} s" if rounded < 60 else f"{rounded // 60} min" if rounded < 3600 else f"{rounded // 3600} h"
    return f"about {text} on {_MACHINE}"


def _rounded_up(seconds: float) -> int:
    return next((step for step in _STEPS if seconds <= step), -(-round(seconds) // 3600) * 3600)

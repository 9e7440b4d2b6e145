"""What one point of a sweep computes: its function's source, and the time that sweeps take."""

import inspect
from pathlib import Path
from typing import Any

from workbench.experiment.experiment import Experiment
from workbench.experiment.recorded import Recorded, recorded
from workbench.paths import shown_path
from workbench.report.expected_time import about, expected_seconds


def point_text(experiment: Experiment) -> str:
    """Returns Markdown: the `run` of a figure's sweep, which yields the rows of one point, and the expected times.

    Args:
        experiment: the figure; the function is that of the figure whose rows it shows.
    """
    run = experiment.sweep.module.run
    file = shown_path(Path(inspect.getsourcefile(run) or experiment.sweep.file))
    times = "; ".join(_time(kept) for kept in recorded(experiment.sweep.name) if "point_seconds" in kept.table)
    smoke = expected_seconds(experiment, "smoke")
    taken = f" All points of size smoke take {about(smoke)}." if smoke is not None else ""
    taken += f" As recorded: {times}." if times else ""
    return f"One point of the sweep is this function of `{file}`.{taken}\n\n```python\n{inspect.getsource(run)}```\n"


def _time(kept: Recorded) -> str:
    seconds: Any = kept.table["point_seconds"].drop_duplicates()  # the rows of a point share its seconds
    return f"{len(seconds)} points of size {kept.size} in {_rounded(seconds.sum())} on {kept.about['device']}"


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

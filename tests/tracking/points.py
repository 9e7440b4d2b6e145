"""Example points and runs."""

import subprocess
import sys
from typing import Any

from workbench.tracking.record import FINISHED, DatasetInfo, Point, Row, Run

DATASET = DatasetInfo("cora", "0123456789abcdef" * 4, "a folder of the user's", 2708, 10556)


def make_point(key: str = "c1", sweep: str = "betty/fig11", size: str = "smoke", **config: Any) -> Point:
    """Return a point whose nested configuration has every kind of JSON value."""
    full = {"dataset": {"name": "cora", "undirected": None}, "method": "reg", "num_parts": 8, "fanouts": [10, 25]}
    tags = {"device": "a CPU", "commit": "c0ffee", "dirty": "false"}
    return Point(sweep, size, key, {**full, "rate": 1e-5, **config}, (sweep, "betty/fig12"), DATASET, tags)


def ended(key: str = "c1", *rows: Row, started_at: float = 1000.25, **kwargs: Any) -> Run:
    """Return a finished run of another store."""
    return Run(make_point(key, **kwargs), f"of-{key}", FINISHED, rows, started_at=started_at, seconds=1.5)


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start another process, whose output the caller reads."""
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)

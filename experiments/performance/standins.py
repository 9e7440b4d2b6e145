"""How long stand-ins take to generate, in how much memory, and how near they come to their targets.

`python -m experiments.performance.standins [--quick] [NAME …]`: each in a process of its own, machine code cached.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

QUICK_SCALE = 0.02
FIGURES = ("edges", "largest degree", "clustering", "reciprocity", "homophily", "triples")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(name: str, scale: float) -> dict[str, Any]:
    """Generate one stand-in in this process.

    `peak_bytes` is the resident memory at most, less what the process held before; `missed` names figures outside their
    tolerance.
    """
    from workbench.datasets.standin import build_standin, compare, required_bytes

    before, start = _peak_bytes(), time.perf_counter()
    data = build_standin(name, scale=scale)
    seconds, peak = time.perf_counter() - start, _peak_bytes() - before
    figures = {figure.name: figure for figure in compare(data, scale=scale)}
    row: dict[str, Any] = {"name": name, "scale": scale, "seconds": seconds, "peak_bytes": peak}
    row["required_bytes"] = required_bytes(name, scale)[0]
    for key in FIGURES:
        label = key.replace(" ", "_")
        row[label] = figures[key].achieved if key in figures else None
        row[f"{label}_target"] = figures[key].target if key in figures else None
    return row | {"missed": [figure.name for figure in figures.values() if not figure.met]}


def run(quick: bool = False, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """One row per stand-in at its default scale, or at a fiftieth of it."""
    from workbench.datasets.standin import STANDINS

    rows = []
    for name in names or STANDINS:
        scale = STANDINS[name].default_scale * (QUICK_SCALE if quick else 1)
        if quick and name == "synthetic-reddit":
            scale = 0.05  # below, its mean degree is more than the nodes can hold
        command = [sys.executable, "-m", "experiments.performance.standins", "--one", name, str(scale)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.performance.standins", description=__doc__)
    parser.add_argument("names", nargs="*", help="stand-ins (default: all)")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the default sizes")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SCALE"), help="measure one in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], float(options.one[1]))))
        return
    for row in run(options.quick, tuple(options.names)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()

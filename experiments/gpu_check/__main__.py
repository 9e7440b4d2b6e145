"""`make gpu-check`: run every part within a time limit, and leave a folder that `workbench import` takes.

A part that fails or runs out of time is noted, and the next one runs. Time that a part leaves goes to those after it.
Run again with the same folder, it continues: programs that have passed with the present code, and points that have
finished, are not run again, so an interrupt loses the point that is running and no other.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

from experiments.gpu_check.parts import (
    NOT_RUN,
    OUT_OF_TIME,
    Ended,
    Part,
    Result,
    judge,
    keep_passed,
    parts,
    passed_before,
)
from experiments.gpu_check.summary import exit_status, headline, write_summary
from workbench.experiment.config import known_device
from workbench.experiment.environment import check_device
from workbench.files import write_file
from workbench.paths import project_root
from workbench.processes import KeptProcess

RUNS = "runs.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit status."""
    parser = argparse.ArgumentParser(prog="experiments.gpu_check", description="Check the library on a GPU.")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu, which takes small sizes")
    parser.add_argument(
        "--output", type=Path, default=project_root() / "build" / "gpu-check", help="folder of the results"
    )
    parser.add_argument("--seconds", type=float, default=480.0, help="limit of all parts together (default: 480)")
    parser.add_argument("--small", action="store_true", help="the sizes of a CPU on any device, as a dry run")
    parser.add_argument("--only", nargs="+", metavar="PART", help="names of parts, such as gpu_check/parity")
    chosen = parser.parse_args(arguments)
    try:
        check_device(known_device(chosen.device))
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    folder = chosen.output.absolute()
    found = parts(chosen.device, folder / RUNS, small=chosen.small)
    names = [part.name for part in found]
    if unknown := [name for name in chosen.only or () if name not in names]:
        parser.error(f"--only: no part is named {unknown[0]}; choose from {', '.join(names)}")
    wanted = [part for part in found if not chosen.only or part.name in chosen.only]
    try:
        results = run_parts(wanted, chosen.device, folder, chosen.seconds)
    except KeyboardInterrupt:
        print(f"interrupted; run it again to continue; {folder}/summary.md has what was done", file=sys.stderr)
        return 130
    again = "; run it again to continue" if any(result.status == OUT_OF_TIME for result in results) else ""
    print(f"{headline(results)}{again}; {folder}/summary.md; `workbench import {folder}` logs the runs")
    return exit_status(results)


def run_parts(wanted: Sequence[Part], device: str, folder: Path, seconds: float) -> list[Result]:
    """Run parts in order.

    Args:
        wanted: the parts.
        device: "cpu", "cuda" or "cuda:1".
        folder: of the results.
        seconds: limit of all parts together.
    """
    deadline, results = time.monotonic() + seconds, list[Result]()
    for position, part in enumerate(wanted):
        if (result := passed_before(part, device, folder / RUNS)) is None:
            left = deadline - time.monotonic()
            budget = left * part.weight / sum(later.weight for later in wanted[position:])
            print(f"{part.name}: up to {max(0.0, budget):.0f} s", file=sys.stderr, flush=True)
            result = _run(part, device, folder, budget) if left > 0 else judge(part, device, folder / RUNS, NOT_RUN)
            print(f"{part.name}: {result.status} ({result.seconds:.0f} s)", file=sys.stderr, flush=True)
            keep_passed(part, result, device, folder / RUNS)
        results.append(result)
        write_summary(folder, device, results)
    return results


def _run(part: Part, device: str, folder: Path, budget: float) -> Result:
    begin = time.monotonic()
    with TemporaryFile() as said:
        program = KeptProcess(part.command, cwd=project_root(), stdout=said, stderr=subprocess.STDOUT)
        try:
            status = program.wait(budget)
        finally:
            program.kill()
        said.seek(0)
        output = said.read()
    write_file(folder / "logs" / f"{part.name.replace('/', '-').replace(' ', '-')}.txt", output)
    last_line = (output.decode(errors="replace").strip().splitlines() or [""])[-1]
    return judge(part, device, folder / RUNS, Ended(status, time.monotonic() - begin, budget, last_line))


if __name__ == "__main__":
    sys.exit(main())

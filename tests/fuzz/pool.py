"""Runs cases in a worker process, which is restarted if it crashes or hangs."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CASE_SECONDS = 60.0
START_SECONDS = 300.0  # for imports and compilation of kernels
ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """`outcome` is "returned", "raised", "unhelpful", "crashed" or "hung"; `detail` explains it."""

    category: str
    seed: int
    outcome: str
    detail: str


class _Worker:
    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
        command = [sys.executable, "-m", "tests.fuzz.worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
        )
        self.is_new = True

    def run(self, category: str, seed: int) -> Result:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{category} {seed}\n".encode())
        self.process.stdin.flush()
        limit = START_SECONDS if self.is_new else CASE_SECONDS
        self.is_new = False
        if not select.select([self.process.stdout], [], [], limit)[0]:
            return Result(category, seed, "hung", f"no result within {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            return Result(category, seed, "crashed", f"exit status {self.process.wait()}")
        return Result(category, seed, *json.loads(line))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def run_cases(cases: Iterable[tuple[str, int]]) -> Iterator[Result]:
    """Yield the result of each case."""
    worker = _Worker()
    try:
        for category, seed in cases:
            result = worker.run(category, seed)
            if result.outcome in ("crashed", "hung"):
                worker.end()
                worker = _Worker()
            yield result
    finally:
        worker.end()

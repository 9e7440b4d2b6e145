"""After interrupts at random moments, all results equal those of a process that was never interrupted."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.interrupted import is_of_interrupt

QUICK = ("wide_sample", "split", "recover", "evaluate", "cache", "disk", "cached_rows")


def run(*options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.interrupted", *options], capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_as_uninterrupted(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["broken"] == []
    assert found["results"] == {name: [result] for name, result in expected.items()}


@pytest.mark.slow
def test_a_few_interrupts() -> None:
    found = run("--interrupts", "40", "--scenarios", *QUICK)
    assert_as_uninterrupted(found, run("--scenarios", *QUICK))
    assert sum(found["hits"].values()) >= 5  # the others arrived after the work was done


def test_errors_of_compiled_code_that_an_interrupt_causes_are_interrupts() -> None:
    outer, inner = SystemError("returned a result with an exception set"), SystemError()
    outer.__cause__ = inner
    assert not is_of_interrupt(outer)
    inner.__cause__ = KeyboardInterrupt()
    assert is_of_interrupt(outer) and is_of_interrupt(KeyboardInterrupt())


@pytest.mark.slow
def test_two_thousand_interrupts() -> None:
    found = run("--interrupts", "2000")
    assert_as_uninterrupted(found, run())
    assert all(hits >= 25 for hits in found["hits"].values())
    assert sum(found["hits"].values()) >= 1000

"""A rank that raises, hangs, exits or dies at any stage of a step or a macrobatch ends all; the error names both."""

import json
import subprocess
import sys

import pytest

from tests.distributed.test_failures import ENDS, SPARE_SECONDS

STAGES = {
    "faulty_step": ("start", "sampling", "ids", "features", "forward", "backward"),
    "faulty_macrobatch": ("start", "sampling", "request", "answer", "features", "forward", "backward"),
}
FATES = ("exits", "dies", "hangs", "raises", "exits", "dies", "raises")
TIMEOUT = {"hangs": 4.0}  # seconds; ranks that are forked start at once


def outcomes(module, cases):
    """Run the cases of a module one after the other: (stage, fate, number of ranks)."""
    orders = [(stage, fate, size, TIMEOUT.get(fate, 60.0)) for stage, fate, size in cases]
    command = [sys.executable, "-m", "tests.distributed.forked_ranks", module, json.dumps(orders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(stage, fate, size, found):
    head = found["message"].splitlines()[0]
    place = "import" if stage == "start" else f"{stage}, "
    assert f"rank {size - 1} ({place}" in head and ENDS[fate] in head, found["message"]
    assert found["seconds"] < TIMEOUT.get(fate, 60.0) + SPARE_SECONDS
    assert fate == "hangs" or (found["rank"] == size - 1 and found["stage"].startswith(place))
    assert (found["children"], found["ports"]) == (0, 0)
    assert ("misbehaving.py" in found["message"]) == (fate in ("raises", "hangs", "crashes"))


@pytest.mark.slow
@pytest.mark.parametrize("module", ["faulty_step", "faulty_macrobatch"])
def test_a_rank_that_fails_in_a_stage_ends_all_and_is_named(module):
    cases = [(stage, fate, 2) for stage, fate in zip(STAGES[module], FATES, strict=False)]
    *failed, without_fault = outcomes(module, [*cases, ("none", "none", 2)])
    assert without_fault["message"] == "no error"
    for case, found in zip(cases, failed, strict=True):
        check(*case, found)


@pytest.mark.slow
@pytest.mark.parametrize("module", STAGES)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("fate", ENDS)
def test_a_rank_that_fails_in_any_stage_in_any_way_ends_all(fate, size, module):
    cases = [(stage, fate, size) for stage in STAGES[module]]
    for case, found in zip(cases, outcomes(module, cases), strict=True):
        check(*case, found)

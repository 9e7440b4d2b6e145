"""Which process runs a point, and whether it still lives."""

import subprocess
import sys

import psutil
import pytest

from tests.tracking.points import start_python
from workbench.tracking.process import BOOT, HOST, PID, STARTED, is_dead, process_started, this_process


def test_this_process_lives() -> None:
    assert not is_dead(this_process())


def test_a_process_that_ended_is_dead() -> None:
    with start_python("import time; time.sleep(600)") as child:
        tags = {**this_process(), PID: str(child.pid), STARTED: process_started(child.pid)}
        alive = is_dead(tags)
        child.kill()
    assert (alive, is_dead(tags)) == (False, True)


def test_a_child_that_nobody_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=-1, stdout=-1, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        tags = {**this_process(), PID: str(child.pid), STARTED: process_started(child.pid)}
        child.kill()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            pass
        assert is_dead(tags)
    finally:
        child.communicate()


def test_a_number_used_again_is_another_process() -> None:
    own = this_process()
    assert is_dead({**own, STARTED: str(int(own[STARTED]) - 3600)})


def test_nothing_survives_a_restart_of_the_machine() -> None:
    assert is_dead({**this_process(), BOOT: "an earlier one"})


def test_nothing_is_known_of_other_hosts() -> None:
    assert not is_dead({**this_process(), HOST: "elsewhere", PID: "4194304"})
    assert not is_dead({})


def test_a_clock_that_is_set_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil derives when a process began from the machine's time."""
    tags = this_process()
    own = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: own(self) - 7200)
    assert not is_dead(tags)

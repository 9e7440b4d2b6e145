"""Identity and liveness of the process that runs a point."""

import subprocess
import sys

import psutil
import pytest

from tests.tracking.points import start_python
from workbench.tracking.process_identity import BOOT, HOST, PID, STARTED, is_dead, process_started, this_process


def test_this_process_is_alive() -> None:
    assert not is_dead(this_process())


def test_a_process_that_ended_is_dead() -> None:
    with start_python("import time; time.sleep(600)") as child:
        tags = {**this_process(), PID: str(child.pid), STARTED: process_started(child.pid)}
        alive = is_dead(tags)
        child.kill()
    assert (alive, is_dead(tags)) == (False, True)


def test_a_zombie_is_dead() -> None:
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


def test_a_reused_process_id_is_another_process() -> None:
    own = this_process()
    assert is_dead({**own, STARTED: str(int(own[STARTED]) - 3600)})


def test_no_process_survives_a_reboot() -> None:
    assert is_dead({**this_process(), BOOT: "an earlier one"})


def test_processes_of_other_hosts_are_not_dead() -> None:
    assert not is_dead({**this_process(), HOST: "elsewhere", PID: "4194304"})
    assert not is_dead({})


def test_changes_of_the_system_time_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil derives the start of a process from the system time."""
    tags = this_process()
    own = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: own(self) - 7200)
    assert not is_dead(tags)

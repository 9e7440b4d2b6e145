"""Kept processes: nothing of them is left, whatever ends them; they end as their program ended."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from workbench.processes import KeptProcess, how_it_ended

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="keepers adopt orphans on Linux alone")
pytestmark = on_linux

FAMILY = """
import os, signal, subprocess, sys, time
from pathlib import Path

grandparent = "import os, subprocess; subprocess.run(['sleep', '601'])"
children = [subprocess.Popen(["sleep", "601"]), subprocess.Popen(["sleep", "601"], start_new_session=True)]
children += [subprocess.Popen([sys.executable, "-S", "-c", grandparent], start_new_session=True)]
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(601)"
children += [subprocess.Popen([sys.executable, "-S", "-c", deaf])]
time.sleep(0.3)
os.kill(children[0].pid, signal.SIGSTOP)
Path(sys.argv[1]).with_suffix(".new").write_text(f"{os.getpid()} {os.getppid()}")
Path(sys.argv[1]).with_suffix(".new").rename(sys.argv[1])
END
"""
ENDS = {
    "returns": ("", 0),
    "exits": ("os._exit(3)", 3),
    "is killed": ("os.kill(os.getpid(), 9)", -9),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", -11),
    "raises": ("raise ArithmeticError", 1),
}


def wait_until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def marked(mark: str) -> list[str]:
    """Commands of running processes that inherited a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("FAMILY") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def family(tmp_path: Path, end: str = "time.sleep(601)") -> KeptProcess:
    """A program with children, one of which has a child, one a session of its own; one stopped, one deaf."""
    command = [sys.executable, "-c", FAMILY.replace("END", end), str(tmp_path / "ready")]
    return KeptProcess(command, environment={**os.environ, "FAMILY": str(tmp_path)})


@pytest.mark.parametrize("end", ENDS)
def test_all_descendants_end_with_the_program(tmp_path, end, capfd):
    code, status = ENDS[end]
    process = family(tmp_path, code)
    assert process.wait(60) == status and process.pid == int((tmp_path / "ready").read_text().split()[0])
    assert marked(str(tmp_path)) == []
    process.kill()


def test_all_descendants_end_when_the_program_is_killed(tmp_path):
    process = family(tmp_path)
    wait_until((tmp_path / "ready").exists)
    assert len(marked(str(tmp_path))) == 7, "keeper, program, four children, a grandchild"
    process.kill()
    assert marked(str(tmp_path)) == [] and process.status == -9
    process.kill()


PARENT = """
import os, sys, time
from pathlib import Path
from tests.test_processes import family

process = family(Path(sys.argv[1]))
if sys.argv[2] == "with a forked child":
    if not os.fork():
        time.sleep(30)  # has the parent's ends of all channels open
        os._exit(0)
time.sleep(601)
"""


@pytest.mark.parametrize("how", ["alone", "with a forked child"])
def test_all_descendants_end_with_a_parent_that_is_killed(tmp_path, how):
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), how]) as parent:
        wait_until((tmp_path / "ready").exists)
        forked = [child.pid for child in psutil.Process(parent.pid).children() if "keeper" not in str(child.cmdline())]
        assert len(forked) == (how != "alone")
        parent.kill()
    wait_until(lambda: marked(str(tmp_path)) == [], 5)
    for pid in forked:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_keeper_that_is_killed_takes_its_program_along(tmp_path):
    process = family(tmp_path)
    wait_until((tmp_path / "ready").exists)
    program, keeper = map(int, (tmp_path / "ready").read_text().split())
    assert process.pid == program
    os.kill(keeper, signal.SIGKILL)
    assert process.wait(5) == -9
    wait_until(lambda: not psutil.pid_exists(program), 5)
    for command in marked(str(tmp_path)):  # what left its session, nobody can find any more
        assert "sleep" in command
    for running in psutil.process_iter():
        with suppress(psutil.Error):
            if running.environ().get("FAMILY") == str(tmp_path):
                running.kill()


def test_a_forked_process_leaves_the_program_alone(tmp_path):
    process = family(tmp_path)
    wait_until((tmp_path / "ready").exists)
    if not (pid := os.fork()):
        process.kill()
        os._exit(process.status or 7)  # for it, the program is over
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 and process.status is None
    process.kill()
    assert marked(str(tmp_path)) == []


def test_a_request_to_end_reaches_the_program_and_its_group(tmp_path):
    end = "signal.signal(signal.SIGTERM, lambda *_: os._exit(5)); time.sleep(601)"
    process = family(tmp_path, f"Path(sys.argv[1] + '2').touch(); {end}")
    wait_until((tmp_path / "ready2").exists)
    time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 5 and marked(str(tmp_path)) == []


def test_a_program_that_does_not_exist_is_told(capfd):
    process = KeptProcess(["/no/such/program"])
    assert process.wait(60) == 127 and "/no/such/program can't be started: No such file" in capfd.readouterr().err
    process.kill()


def test_signals_without_a_name_are_told():
    assert how_it_ended(-40) == "crashed with signal 40" and how_it_ended(-11) == "crashed with SIGSEGV"

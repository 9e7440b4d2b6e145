"""Whatever is open when a process ends, in whatever way: it ends at once, leaves no process, loses nothing silently."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.manager import KernelManager

import workbench as wb
from tests.process_ends import ENDS, LEFT_SECONDS, OPEN, PATIENCE_SECONDS
from workbench.tracking.record import FAILED, FINISHED, KILLED, RUNNING

END_SECONDS = 5.0
STATUS = {"sys.exit": 3, "sys.exit, unreferenced": 3, "exception": 1, "os._exit": 4}
STATUS |= {"SIGINT": -signal.SIGINT, "SIGTERM": -signal.SIGTERM}
ABRUPT = ("SIGTERM", "os._exit")
"""Ends of which Python does not tell its programs."""

FOREIGN = {("DataLoader", "a forked child ends")}  # which ends the workers of its parent: torch and multiprocessing
MAY_ABORT = "DiskRows in a daemon"  # a thread of the user's own, which nobody can stop: torch then aborts the process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone"),
]


@pytest.mark.parametrize("what", OPEN)
def test_a_process_ends_whatever_is_open(what, tmp_path):
    orders = []
    for how in ENDS:
        if (what, how) not in FOREIGN:
            (folder := tmp_path / how).mkdir()
            orders.append((what, how, str(folder)))
    command = [sys.executable, "-m", "tests.process_ends", json.dumps(orders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    faults = {
        how: told
        for (_, how, name), one in zip(orders, found, strict=True)
        if (told := faults_of(what, how, one, Path(name)))
    }
    assert not faults


def faults_of(what: str, how: str, found: dict[str, Any], folder: Path) -> list[str]:
    """What is wrong with the end of a process."""
    faults = []
    if found["seconds"] is None or found["seconds"] > END_SECONDS or (found["child"] or [0, 0])[1] > END_SECONDS:
        faults.append(f"it took {found['seconds']} s, its child {found['child']}")
    if found["left"]:
        faults.append(f"it left {found['left']}")
    if found["status"] != STATUS.get(how, 0) and what != MAY_ABORT:
        faults.append(f"its status is {found['status']}")
    if found["child"] and found["child"][0] != 5 and what != MAY_ABORT:
        faults.append(f"the status of its child is {found['child'][0]}")
    if how not in ABRUPT and (lost := lost_of(what, folder)) and lost not in found["stderr"]:
        faults.append(f"{lost} is lost without a message")
    return [*faults, found["stderr"]] if faults else []


def lost_of(what: str, folder: Path) -> str:
    """What was not kept, as a message would call it; "" if nothing is lost."""
    if what == "learnt buffer":
        store = wb.outofcore.PartitionStore.open(folder / "store")
        ids = json.loads((folder / "written").read_text())
        assert store.damaged() == []
        return "" if bool((store.read()[ids] == 7).all()) else "store"
    if what.startswith("run in "):
        location = f"{folder}/runs.jsonl" if what == "run in a file" else f"sqlite:///{folder}/mlflow.db"
        runs = wb.open_store(location).runs(statuses=(FINISHED, FAILED, KILLED, RUNNING))
        assert [run.status for run in runs] == [KILLED]
        return "" if "unreferenced" in folder.name else "mine/open"
    return ""


@pytest.mark.parametrize("what", OPEN)
def test_a_kernel_of_a_notebook_is_restarted_whatever_is_open(what, tmp_path):
    kernel = KernelManager()
    kernel.start_kernel(cwd=str(Path(__file__).parents[1]), stderr=(log := (tmp_path / "stderr").open("w")))
    client = kernel.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_SECONDS)
        execute(
            client,
            "from pathlib import Path\nfrom tests.process_ends import OPEN\n"
            f"opened = OPEN[{what!r}](Path({str(tmp_path)!r}))\nfor _ in opened: break",
        )
        process = psutil.Process(kernel.provisioner.pid)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        family = process.children(recursive=True)
        begun = time.monotonic()
        client.shutdown(restart=True)
        while alive([process]):
            if what == "DataLoader" and time.monotonic() - begun > END_SECONDS:
                process.kill()  # as Jupyter does with a kernel whose forked workers keep it from ending
            assert time.monotonic() - begun < 2 * END_SECONDS, "the kernel has not ended"
            assert what == "DataLoader" or time.monotonic() - begun < END_SECONDS, "the kernel has not ended by itself"
            time.sleep(0.02)
        ended = time.monotonic()
        while alive(family):
            assert time.monotonic() - ended < LEFT_SECONDS, "a process that the kernel started has not ended"
            time.sleep(0.02)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
        log.close()
    if (lost := lost_of(what, tmp_path)) and lost not in (tmp_path / "stderr").read_text():
        pytest.fail(f"{lost} is lost without a message")


def execute(client: Any, code: str) -> None:
    reply = client.execute(code, reply=True, timeout=2 * PATIENCE_SECONDS)
    assert reply["content"]["status"] == "ok", reply["content"]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    def is_alive(process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [process for process in processes if is_alive(process)]

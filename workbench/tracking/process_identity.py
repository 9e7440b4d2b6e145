"""Identity of the process that runs a point, and a check whether it is still alive."""

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

_PREFIX = "mlflow.workbench_process."  # which MLflow's pages don't show
HOST, PID, STARTED, BOOT = (_PREFIX + name for name in ("host", "pid", "started", "boot"))

_START_FIELD = 19  # starttime in /proc/PID/stat, counted from the field after the name in brackets


def this_process() -> dict[str, str]:
    """Return tags that identify this process."""
    pid = os.getpid()
    return {HOST: host(), PID: str(pid), STARTED: process_started(pid), BOOT: _boot()}


def is_dead(tags: Mapping[str, str]) -> bool:
    """Return whether the process has ended; False for processes of other hosts, of which nothing is known.

    Args:
        tags: the process's tags from `this_process`.
    """
    if tags.get(HOST) != host():
        return False
    if tags.get(BOOT, "") != _boot():
        return True
    try:
        pid = int(tags[PID])
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return ended or process_started(pid) != tags[STARTED]  # a different start time means that the id was reused
    except (KeyError, ValueError, FileNotFoundError, psutil.NoSuchProcess):
        return True
    except (PermissionError, psutil.AccessDenied):
        return False


def process_started(pid: int) -> str:
    """Return the start time of a process: on Linux in clock ticks since boot, which do not depend on the system time.

    Args:
        pid: id of a running process.

    Raises:
        FileNotFoundError: on Linux, if the process does not exist.
        psutil.NoSuchProcess: on other systems, if the process does not exist.
    """
    if not Path("/proc/self/stat").exists():
        return f"{psutil.Process(pid).create_time():.2f}"
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()[_START_FIELD]


@cache
def host() -> str:
    """Return the host name of this machine."""
    return socket.gethostname()


@cache
def _boot() -> str:
    """Return the id of the current boot, or "" on systems without one."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""

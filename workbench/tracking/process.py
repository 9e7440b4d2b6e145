"""Which process runs a point, and whether it still lives."""

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

HOST, PID, STARTED, BOOT = "workbench.host", "workbench.pid", "workbench.process_started", "workbench.boot"

_START_FIELD = 19  # of /proc/PID/stat, counted from the one that follows the name in brackets


def this_process() -> dict[str, str]:
    """Tags by which a run's process is found again."""
    pid = os.getpid()
    return {HOST: host(), PID: str(pid), STARTED: process_started(pid), BOOT: _boot()}


def is_dead(tags: Mapping[str, str]) -> bool:
    """Whether a process of this host has ended; of those on other hosts nothing is known.

    Args:
        tags: of `this_process`, as that process had them.
    """
    if tags.get(HOST) != host():
        return False
    if tags.get(BOOT, "") != _boot():
        return True
    try:
        pid = int(tags[PID])
        ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return ended or process_started(pid) != tags[STARTED]  # else the number is reused
    except (KeyError, ValueError, FileNotFoundError, psutil.NoSuchProcess):
        return True
    except (PermissionError, psutil.AccessDenied):
        return False


def process_started(pid: int) -> str:
    """When a process began: on Linux in ticks since the machine started, which no setting of the clock changes.

    Args:
        pid: of a living process.

    Raises:
        FileNotFoundError: there is no such process.
        psutil.NoSuchProcess: likewise, on other systems.
    """
    if not Path("/proc/self/stat").exists():
        return f"{psutil.Process(pid).create_time():.2f}"
    about = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return about.rpartition(")")[2].split()[_START_FIELD]


@cache
def host() -> str:
    """This machine's name."""
    return socket.gethostname()


@cache
def _boot() -> str:
    """Changes when the machine starts anew; "" where it can't be told."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""

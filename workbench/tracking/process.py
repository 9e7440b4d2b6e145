"""Which process runs a point, and whether it still lives."""

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

HOST, PID, STARTED, BOOT = "workbench.host", "workbench.pid", "workbench.process_started", "workbench.boot"

_CLOCK_SECONDS = 5.0
"""The time a process began is told from the clock, which may be set right later by that much."""


def this_process() -> dict[str, str]:
    """Tags by which a run's process is found again."""
    own = psutil.Process(os.getpid())
    return {HOST: host(), PID: str(own.pid), STARTED: f"{own.create_time():.2f}", BOOT: _boot()}


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
        process = psutil.Process(int(tags[PID]))
        ended = process.status() == psutil.STATUS_ZOMBIE
        return ended or abs(process.create_time() - float(tags[STARTED])) > _CLOCK_SECONDS  # else the number is reused
    except (KeyError, ValueError, psutil.NoSuchProcess):
        return True
    except psutil.AccessDenied:
        return False


@cache
def host() -> str:
    """This machine's name."""
    return socket.gethostname()


@cache
def _boot() -> str:
    """Changes when the machine starts anew; "" where it can't be told."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""

"""Provenance of a run: device, versions of libraries, commit, load of the machine."""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ("torch", "numba", "numpy", "pymetis", "dgl", "triton")
_TABLES = ":(exclude)experiments/results"  # what recording writes is not code that runs
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def check_device(device: str) -> None:
    """Check that a device is available.

    Raises:
        RuntimeError: no GPU, or fewer than the device's number.
    """
    if device == "cpu":
        return
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(device.partition(":")[2] or 0)
    if number >= count:
        raise RuntimeError(f"device {device!r} is not here ({count} CUDA devices); choose --device cpu or another size")


def device_name(device: str) -> str:
    """A device's model name, for people."""
    if device == "cpu":
        return f"{_cpu_name()}, {os.cpu_count()} cores"
    import torch

    return torch.cuda.get_device_name(device)


def load_average() -> str:
    """Load average of the last minute and number of cores; seconds measured under load are not comparable."""
    return f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""


def waiting_of_threads() -> str:
    """How OpenMP's threads wait for work: "default", or the variables set that change it and, by that, all seconds.

    Where they sleep at once, torch's small operations take twice as long and DGL's short calls up to 1.6 times.
    """
    return " ".join(f"{name}={os.environ[name]}" for name in _WAITING if os.environ.get(name)) or "default"


def check_recordable() -> None:
    """Check that seconds measured here are those of a user's process, before a table is recorded.

    Raises:
        ValueError: a variable changes how OpenMP's threads wait.
    """
    if (found := waiting_of_threads()) != "default":
        names = ", ".join(setting.partition("=")[0] for setting in found.split())
        raise ValueError(
            f"--record with {found}: torch's and DGL's threads wait in another way than in a user's process, so that "
            f"recorded seconds would not be comparable; unset {names}"
        )


@cache
def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def environment_tags(root: Path) -> dict[str, str]:
    """Tags of commit, platform, threads, how they wait, and versions; "dirty" if files other than tables differ."""
    from workbench.kernels.threads import get_num_threads

    commit = _git(root, "rev-parse", "HEAD")
    tags = {
        "commit": commit or "unknown",
        "dirty": str(bool(_git(root, "status", "--porcelain", "--", ".", _TABLES))).lower() if commit else "unknown",
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "threads": str(get_num_threads()),
        "openmp": waiting_of_threads(),
    }
    return tags | {f"version.{name}": found for name in _LIBRARIES if (found := _version(name))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

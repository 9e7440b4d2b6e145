"""Where data lie and where the cache is."""

import os
import re
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """`root`, else WORKBENCH_DATA, else `workbench` below XDG_DATA_HOME (~/.local/share)."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(root or os.environ.get("WORKBENCH_DATA") or Path(home) / "workbench").absolute()


def cache_folder() -> Path:
    """WORKBENCH_CACHE, else `workbench` below XDG_CACHE_HOME (~/.cache); it may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WORKBENCH_CACHE") or Path(home) / "workbench").absolute()


def check_name(name: str) -> str:
    """A name that is one file's or folder's, not a path.

    Raises:
        ValueError: anything else.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a data set: up to 100 letters, digits, '.', '-' and '_', "
            "the first a letter or a digit; pass folders as root="
        )
    return name

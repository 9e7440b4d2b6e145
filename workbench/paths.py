"""Paths of the checkout, experiments, data sets and caches."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def project_root() -> Path:
    """Return the checkout that this package is imported from, or the current folder if there is none."""
    checkout = _PACKAGE.parent
    return checkout if (checkout / "pyproject.toml").exists() and (checkout / "experiments").is_dir() else Path.cwd()


def shown_path(file: Path) -> str:
    """Format a path for messages: relative to the project root if it is inside, otherwise absolute."""
    return str(file.relative_to(project_root())) if file.is_relative_to(project_root()) else str(file)


def experiments_folder() -> Path:
    """Return WORKBENCH_EXPERIMENTS, by default `experiments/` of the project."""
    setting = os.environ.get("WORKBENCH_EXPERIMENTS")
    return Path(setting).expanduser().resolve() if setting else project_root() / "experiments"


def results_folder() -> Path:
    """Return the folder of recorded tables."""
    return experiments_folder() / "results"


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of data sets: `root`, WORKBENCH_DATA, or `workbench` in XDG_DATA_HOME (~/.local/share)."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(root or os.environ.get("WORKBENCH_DATA") or Path(home) / "workbench").expanduser().absolute()


def cache_folder() -> Path:
    """Return WORKBENCH_CACHE, by default `workbench` in XDG_CACHE_HOME (~/.cache); it may be deleted at any time."""
    return Path(os.environ.get("WORKBENCH_CACHE") or _user_cache() / "workbench").expanduser().absolute()


def kernel_cache_folder() -> Path:
    """Return the folder of compiled kernels: `workbench-kernels` in NUMBA_CACHE_DIR, or by default the user's cache."""
    setting = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(setting) / "workbench-kernels" if setting else _user_cache() / "workbench" / "kernels"
    return folder.expanduser()


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

"""Where experiments, the store and results lie."""

import os
import re
from pathlib import Path

from workbench.tracking.store import project_root


def experiments_folder() -> Path:
    """WORKBENCH_EXPERIMENTS, else `experiments/` of the project."""
    given = os.environ.get("WORKBENCH_EXPERIMENTS")
    return Path(given).expanduser().resolve() if given else project_root() / "experiments"


def results_folder() -> Path:
    """Recorded tables."""
    return experiments_folder() / "results"


def experiment_names() -> list[str]:
    """All "paper/figure" below the experiments' folder, sorted naturally (fig2 before fig11)."""
    files = experiments_folder().glob("*/*.yaml")
    return sorted((f"{file.parent.name}/{file.stem}" for file in files), key=_natural)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def relative(file: Path) -> str:
    """A path as messages show it: from the project's root where it lies below."""
    return str(file.relative_to(project_root())) if file.is_relative_to(project_root()) else str(file)

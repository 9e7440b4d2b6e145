"""Where experiments, the store and results lie."""

import os
import re
from pathlib import Path

from workbench.experiment.problems import UnknownExperimentError
from workbench.tracking.store import project_root


def experiments_folder() -> Path:
    """WORKBENCH_EXPERIMENTS, else `experiments/` of the project."""
    given = os.environ.get("WORKBENCH_EXPERIMENTS")
    return Path(given).expanduser().resolve() if given else project_root() / "experiments"


def results_folder() -> Path:
    """Recorded tables."""
    return experiments_folder() / "results"


def experiment_names() -> list[str]:
    """All "paper/figure" below the experiments' folder, sorted naturally (fig2 before fig11).

    Raises:
        UnknownExperimentError: there is no such folder, as where the library is installed without a checkout.
    """
    if not experiments_folder().is_dir():
        raise UnknownExperimentError(
            f"there are no experiments in {experiments_folder()}: they come with a checkout of the repository, not "
            "with the installed package; run the command inside one, or set WORKBENCH_EXPERIMENTS to its experiments "
            "folder"
        )
    files = experiments_folder().glob("*/*.yaml")
    return sorted((f"{file.parent.name}/{file.stem}" for file in files), key=_natural)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def relative(file: Path) -> str:
    """A path as messages show it: from the project's root where it lies below."""
    return str(file.relative_to(project_root())) if file.is_relative_to(project_root()) else str(file)

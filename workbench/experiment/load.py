"""`load_experiment`: a pair of files, by the figure's name."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workbench.experiment.experiment import Experiment
from workbench.experiment.places import experiment_names, experiments_folder, relative
from workbench.experiment.problems import ConfigError, UnknownExperimentError
from workbench.experiment.spec import Spec, read_spec


def load_experiment(name: str) -> Experiment:
    """A figure by name.

    Args:
        name: "paper/figure", such as "betty/fig16"; `workbench list` shows them.

    Raises:
        UnknownExperimentError: no such pair of files; names those that exist.
        ConfigError: the YAML says what it may not, or the Python lacks what it needs.
    """
    names = experiment_names()
    if name not in names:
        raise UnknownExperimentError(f"there is no experiment {name!r}; choose from {', '.join(names) or 'none'}")
    file = experiments_folder() / f"{name}.yaml"
    spec = read_spec(file)
    module = _module(name, file.with_suffix(".py"))
    _check_module(module, spec)
    home = None if spec.rows_from is None else _home(spec.rows_from, file)
    return Experiment(name, spec, file, module, home, () if home else _views(name, names))


def _home(name: str, of: Path) -> Experiment:
    try:
        home = load_experiment(name)
    except UnknownExperimentError as error:
        raise ConfigError(f"{relative(of)}: rows_from: {error}") from None
    if home.home is not None:
        raise ConfigError(f"{relative(of)}: rows_from: {name} is a view itself; name {home.home.name}")
    return home


def _views(home: str, names: list[str]) -> tuple[str, ...]:
    """A file that can't be read is no view; loading it says why."""
    found = []
    for name in names:
        try:
            rows_from = read_spec(experiments_folder() / f"{name}.yaml").rows_from
        except ConfigError:
            continue
        if home in (name, rows_from):
            found.append(name)
    return tuple(found)


def _module(name: str, file: Path) -> ModuleType:
    """The Python half, imported anew: its text may have changed in an interactive session."""
    if not file.exists():
        raise ConfigError(f"{relative(file)} is missing; an experiment is a pair of .yaml and .py")
    spec = importlib.util.spec_from_file_location(f"experiments.{name.replace('/', '.')}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic resolves annotations there
    spec.loader.exec_module(module)
    return module


def _check_module(module: ModuleType, spec: Spec) -> None:
    needed = ("draw", "check", "compare") if spec.rows_from else ("Config", "run", "draw", "check", "compare")
    missing = [name for name in needed if not hasattr(module, name)]
    if missing:
        raise ConfigError(f"{relative(Path(str(module.__file__)))}: lacks {', '.join(missing)}")

"""`load_experiment`: a figure by name, from its YAML and Python files and its paper's index."""

from types import ModuleType

from workbench.experiment.config_errors import ConfigError
from workbench.experiment.experiment import Experiment
from workbench.experiment.figure_module import import_figure
from workbench.experiment.figure_spec import read_spec
from workbench.experiment.index import find_figure
from workbench.paths import experiments_folder, shown_path


def load_experiment(name: str) -> Experiment:
    """Load a figure, and the figure whose rows it shows.

    Reads the figure's own files, those of the figure whose rows it shows, and their paper's index, and no others.

    Args:
        name: "paper/figure", such as "betty/fig16"; `workbench list` shows all.

    Raises:
        UnknownExperimentError: no such figure; the message names those that exist.
        ConfigError: an invalid YAML file, a file that the index does not list or that does not exist, or a Python
            module without a function that it needs.
    """
    index, file = find_figure(name)
    paper, _, figure = name.partition("/")
    home = index.views.get(figure)
    spec, module = read_spec(file), import_figure(name, experiments_folder())
    _check_module(module, is_view=home is not None)
    if home is None:
        views = tuple(f"{paper}/{view}" for view in index.views_of(figure))
        return Experiment(name, index.title, spec, file, module, views=views, requires=index.requires.get(figure))
    if spec.has_grid:
        raise ConfigError(
            f"{shown_path(file)}: fixed and sweep have no effect, because its rows come from {home}; move them there"
        )
    return Experiment(name, index.title, spec, file, module, home=load_experiment(f"{paper}/{home}"))


def _check_module(module: ModuleType, *, is_view: bool) -> None:
    needed = [*(() if is_view else ("Config", "run")), "draw", "check", "compare"]
    if missing := [name for name in needed if not hasattr(module, name)]:
        raise ConfigError(f"{module.__file__} does not define {', '.join(missing)}; add it")

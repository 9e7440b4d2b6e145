"""`load_experiment`: a figure by name, from its YAML and Python files and its paper's index."""

import hashlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

from workbench.experiment.config_errors import ConfigError
from workbench.experiment.experiment import Experiment
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


PACKAGE = "experiments"

_folders: set[str] = set()

_imported: dict[str, tuple[ModuleType, str]] = {}
"""Modules as this file imported them, with the sha256 of their text."""


def import_figure(name: str, folder: Path) -> ModuleType:
    """Import a figure's module and the modules of experiments that it uses.

    Modules stay imported until the text of any of them changes; then all are imported again.

    Args:
        name: "paper/figure".
        folder: experiments folder, which contains the papers' packages.
    """
    _find_in(folder)
    if any(_digest(module) != digest for module, digest in _imported.values()):
        _forget()
    try:
        with _without_bytecode():
            return importlib.import_module(f"{PACKAGE}.{name.replace('/', '.')}")
    finally:
        for found, module in _loaded_from({str(folder)}):
            if getattr(module, "__file__", None) and _imported.get(found, (None,))[0] is not module:
                _imported[found] = module, _digest(module)


def _find_in(folder: Path) -> None:
    """Make the package `experiments` look into a folder first: installed, the library does not bring the package."""
    if PACKAGE not in sys.modules:
        spec = ModuleSpec(PACKAGE, None, is_package=True)
        sys.modules[PACKAGE] = module_from_spec(spec)
    package = sys.modules[PACKAGE]
    if str(folder) not in list(package.__path__)[:1]:
        _forget()
        package.__path__ = [str(folder), *(path for path in package.__path__ if path not in _folders)]
    _folders.add(str(folder))


def _loaded_from(folders: set[str]) -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{PACKAGE}."):
            places = [module.__file__] if getattr(module, "__file__", None) else [*getattr(module, "__path__", [])]
            if any(not folders.isdisjoint(map(str, Path(str(place)).parents)) for place in places):
                yield name, module


def _forget() -> None:
    for name, _ in _loaded_from(_folders):
        del sys.modules[name]
    _imported.clear()
    importlib.invalidate_caches()


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Bytecode notes its source's time in whole seconds, so an edit within the same second would go unnoticed."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _digest(module: ModuleType) -> str:
    file = Path(str(module.__file__))
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""

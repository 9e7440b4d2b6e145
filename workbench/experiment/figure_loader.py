"""The index of a paper, `experiments/<paper>/index.yaml`: its figures in order, and which of them are views."""

import hashlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from workbench.core.suggestions import unknown
from workbench.core.yaml_file import ConfigError, read_yaml
from workbench.experiment.figure_spec import Strict, UnknownExperimentError, read_spec
from workbench.paths import experiments_folder, shown_path

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

_FILE = "index.yaml"


class PaperIndex(Strict):
    """One paper.

    Args:
        paper: its name.
        venue: conference or journal and year; empty for what was not published.
        figures: names of its figures and tables, in the order that people see them in.
        views: name of a figure to the name of the figure whose rows it shows.
        requires: name of a figure to the optional module that its run imports.
    """

    paper: str
    venue: str = ""
    figures: list[str] = Field(min_length=1)
    views: dict[str, str] = Field(default_factory=dict)
    requires: dict[str, str] = Field(default_factory=dict)

    @property
    def title(self) -> str:
        """The paper as people cite it: "Betty (ASPLOS 2023)"."""
        return f"{self.paper} ({self.venue})" if self.venue else self.paper

    def views_of(self, figure: str) -> list[str]:
        """The figures that show a figure's rows, itself included."""
        return [name for name in self.figures if figure in (name, self.views.get(name))]

    @model_validator(mode="after")
    def _figures_are_unique(self) -> Self:
        if twice := [name for name in dict.fromkeys(self.figures) if self.figures.count(name) > 1]:
            raise ValueError(f"figures lists {twice[0]} {self.figures.count(twice[0])} times; list it once")
        return self

    @model_validator(mode="after")
    def _required_modules_are_of_figures(self) -> Self:
        if unlisted := [name for name in self.requires if name not in self.figures]:
            raise ValueError(f"requires.{unlisted[0]}: figures does not list {unlisted[0]}; add it")
        return self

    @model_validator(mode="after")
    def _views_show_figures_with_rows(self) -> Self:
        for view, home in self.views.items():
            if unlisted := [name for name in (view, home) if name not in self.figures]:
                raise ValueError(f"views.{view}: figures does not list {unlisted[0]}; add it")
            if home in self.views:
                raise ValueError(f"views.{view}: {home} is a view itself; name {self.views[home]}")
        return self


def experiment_names() -> list[str]:
    """All "paper/figure": papers by name, the figures of each in the order of its index.

    Raises:
        UnknownExperimentError: no experiments folder, as where the library is installed without a checkout.
        ConfigError: an invalid index.
    """
    folder = experiments_folder()
    if not folder.is_dir():
        raise UnknownExperimentError(
            f"there are no experiments in {folder}: they come with a checkout of the repository, not with the "
            "installed package; run the command inside one, or set WORKBENCH_EXPERIMENTS to its experiments folder"
        )
    papers = sorted(file.parent.name for file in folder.glob(f"*/{_FILE}"))
    return [f"{paper}/{figure}" for paper in papers for figure in read_index(paper).figures]


def read_index(paper: str) -> PaperIndex:
    """Read and validate the index of a paper.

    Raises:
        ConfigError: invalid YAML, an unknown or missing key, a view of a figure that is not listed.
    """
    return read_yaml(index_file(paper), PaperIndex)


def find_figure(name: str) -> tuple[PaperIndex, Path]:
    """The index that lists a figure, and the figure's YAML file.

    Raises:
        UnknownExperimentError: no such figure; the message names those that exist.
        ConfigError: the index and the files disagree about the figure; the message names both.
    """
    paper, _, figure = name.partition("/")
    file, index = experiments_folder() / paper / f"{figure}.yaml", index_file(paper)
    listed = index.is_file() and figure in (found := read_index(paper)).figures
    if not listed:
        if figure != index.stem and file.is_file():
            raise ConfigError(
                f"{shown_path(index)} does not list {figure}, but {shown_path(file)} exists; list it there"
            )
        raise UnknownExperimentError(unknown_figure(name))
    for half in (file, file.with_suffix(".py")):
        if not half.is_file():
            raise ConfigError(f"{shown_path(index)} lists {figure}, but {shown_path(half)} does not exist; add it")
    return found, file


def full_name(name: str) -> str:
    """The "paper/figure" of a figure that is named alone; other names are unchanged.

    Args:
        name: "fig16" or "betty/fig16".

    Raises:
        UnknownExperimentError: no such figure, or several papers have it.
    """
    if "/" in name:
        return name
    found = [each for each in experiment_names() if each.partition("/")[2] == name]
    if len(found) != 1:
        raise UnknownExperimentError(unknown_figure(name))
    return found[0]


def unknown_figure(name: str) -> str:
    """The message that there is no such figure: which was probably meant, and how to list all."""
    return f"{unknown('figure', name, experiment_names())} (`workbench list` shows all)"


def index_file(paper: str) -> Path:
    """File of a paper's index."""
    return experiments_folder() / paper / _FILE


def load_experiment(name: str) -> "Experiment":
    """Load a figure, and the figure whose rows it shows.

    Reads the figure's own files, those of the figure whose rows it shows, and their paper's index, and no others.

    Args:
        name: "paper/figure", such as "betty/fig16"; `workbench list` shows all.

    Raises:
        UnknownExperimentError: no such figure; the message names those that exist.
        ConfigError: an invalid YAML file, a file that the index does not list or that does not exist, or a Python
            module without a function that it needs.
    """
    from workbench.experiment.experiment import Experiment  # here: completion of names in a shell loads no torch

    index, file = find_figure(name)
    paper, _, figure = name.partition("/")
    home = index.views.get(figure)
    spec, module = read_spec(file), import_figure(name, experiments_folder())
    _check_module(module, is_view=home is not None, is_sized=bool(spec.stated))
    if home is None:
        views = tuple(f"{paper}/{view}" for view in index.views_of(figure))
        return Experiment(name, index.title, spec, file, module, views=views, requires=index.requires.get(figure))
    if spec.has_grid:
        raise ConfigError(
            f"{shown_path(file)}: fixed and sweep have no effect, because its rows come from {home}; move them there"
        )
    return Experiment(name, index.title, spec, file, module, home=load_experiment(f"{paper}/{home}"))


def _check_module(module: ModuleType, *, is_view: bool, is_sized: bool) -> None:
    needed = [*(() if is_view else ("Config", "run")), "draw", "check", "compare", *(["stated"] if is_sized else [])]
    if missing := [name for name in needed if not hasattr(module, name)]:
        raise ConfigError(f"{module.__file__} does not define {', '.join(missing)}; add it")


PACKAGE = "experiments"

_folders: set[str] = set()

_imported: dict[str, tuple[ModuleType, str]] = {}
"""Modules as this file imported them, with the sha256 of their text."""


def import_figure(name: str, folder: Path) -> ModuleType:
    """Import a figure's module and the modules of experiments that it uses.

    Modules stay imported until the text of any of them changes; then all are imported again.
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
            if any(not folders.isdisjoint(_folders_above(str(place))) for place in places):
                yield name, module


@cache  # every import of a figure looks at all modules of experiments
def _folders_above(place: str) -> frozenset[str]:
    return frozenset(map(str, Path(place).parents))


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

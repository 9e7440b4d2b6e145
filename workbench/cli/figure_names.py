"""Papers and figures on the command line: loading and completion."""

from collections.abc import Sequence
from typing import Any

import click


def load_figures(names: Sequence[str]) -> list[Any]:
    """Loads the experiments of papers and figures, in the order of `workbench list`.

    Args:
        names: "paper" or "paper/figure" each; empty: all figures of all papers.

    Raises:
        ValueError: an unknown paper or figure.
    """
    from workbench.experiment.figure_loader import experiment_names, load_experiment

    known = experiment_names()
    chosen = {_known_name(name, known) for name in names}
    return [load_experiment(name) for name in known if not names or {name, name.partition("/")[0]} & chosen]


def load_figure(name: str) -> Any:
    """Loads one experiment.

    Args:
        name: "paper/figure", or the figure alone if one paper has it.

    Raises:
        ValueError: an unknown figure, or one that several papers have.
    """
    from workbench.experiment.figure_loader import full_name, load_experiment

    return load_experiment(full_name(name))


def _known_name(name: str, known: Sequence[str]) -> str:
    """A paper, or the full name of a figure."""
    from workbench.core.suggestions import unknown
    from workbench.experiment.figure_loader import full_name, unknown_figure

    papers = dict.fromkeys(each.partition("/")[0] for each in known)
    if name in papers:
        return name
    if "/" in name:
        if name not in known:
            raise ValueError(unknown_figure(name))
        return name
    if any(each.endswith(f"/{name}") for each in known):
        return full_name(name)
    raise ValueError(unknown("paper", name, papers))


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes figures and, for an argument that accepts several names, papers.

    Args:
        ctx: of the command.
        param: the argument.
        incomplete: the characters typed so far.
    """
    from workbench.experiment.figure_loader import experiment_names

    try:
        figures = experiment_names()
    except ValueError:  # no experiments here, or an invalid index: nothing to offer, and no place to say so
        return []
    papers = dict.fromkeys(name.partition("/")[0] for name in figures) if param.nargs == -1 else []
    return [name for name in [*papers, *figures] if name.startswith(incomplete)]

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
    from workbench.core.errors import check_choice
    from workbench.experiment.figure_loader import load_experiment
    from workbench.experiment.index import experiment_names

    known = experiment_names()
    papers = {name.partition("/")[0] for name in known}
    for name in names:
        check_choice(*(("figure", name, known) if "/" in name else ("paper", name, papers)))
    return [load_experiment(name) for name in known if not names or {name, name.partition("/")[0]} & set(names)]


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completes figures and, for an argument that accepts several names, papers.

    Args:
        ctx: of the command.
        param: the argument.
        incomplete: the characters typed so far.
    """
    from workbench.experiment.index import experiment_names

    try:
        figures = experiment_names()
    except ValueError:  # no experiments here, or an invalid index: nothing to offer, and no place to say so
        return []
    papers = dict.fromkeys(name.partition("/")[0] for name in figures) if param.nargs == -1 else []
    return [name for name in [*papers, *figures] if name.startswith(incomplete)]

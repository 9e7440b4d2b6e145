"""Options and arguments that commands share: their values, completion, and the figures that they name."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

# Repeated from where they belong, so that help and completion need not import torch; a test compares both.
SIZES = ("smoke", "real", "paper")
FORMATS = ("svg", "pdf", "png", "csv", "tex")
EXECUTORS = ("processes", "ray")
MODELS = ("sage-mean", "sage-gcn", "sage-pool", "sage-lstm", "gcn", "gin", "gat", "rgcn")
PARTITIONERS = (
    "range",
    "random",
    "metis",
    "reg",
    "reg_unweighted",
    "reg_normalized",
    "star",
    "star_refined",
    "hypergraph",
    "hypergraph_deep",
    "hypergraph_refined",
)
FAST_PARTITIONERS = tuple(name for name in PARTITIONERS if not name.startswith("hypergraph"))
OPTIMIZERS = ("adam", "adamw", "sgd")
STRATEGIES = ("even", "split")
LSTMS = ("onednn", "native", "cudnn")


_MOST_SHOWN = 60  # columns


class NameChoice(click.Choice):
    """One of some names; the error about another one asks about the name that was probably meant.

    Args:
        names: known names.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """The names, or one word for names that would not fit into a line: help does not wrap it.

        Args:
            param: the option.
            ctx: of the command.
        """
        shown = super().get_metavar(param, ctx)
        return shown if shown is None or len(shown) <= _MOST_SHOWN else "NAME"

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The message of a usage error.

        Args:
            value: the name that was given.
            ctx: of the command.
        """
        from workbench.core.suggestions import did_you_mean

        meant = did_you_mean(value, self.choices)
        return f"{super().get_invalid_choice_message(value, ctx)} {meant[:1].upper()}{meant[1:]}".rstrip()


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
    if name in papers or name in known:
        return name
    if "/" in name:
        raise ValueError(unknown_figure(name))
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


figure_argument = click.argument("figure", metavar="PAPER/FIGURE", shell_complete=complete_names)

names_argument = click.argument("names", metavar="[PAPER|PAPER/FIGURE]...", nargs=-1, shell_complete=complete_names)

data_folder_option = click.option(
    "--root", metavar="FOLDER", show_default="WORKBENCH_DATA, else ~/.local/share/workbench", help="Data folder."
)

_DATA_OPTIONS = [
    data_folder_option,
    click.option("--scale", type=float, show_default="the set's own", help="Size of a synthetic-* set, in (0, 1]."),
    click.option("--undirected", is_flag=True, help="Add reverse edges."),
    click.option("--features", default="given", help="given, degree or random:WIDTH."),
]
_MODEL_OPTIONS = [
    click.option("--model", default="sage-mean", type=NameChoice(MODELS), help="Layer type."),
    click.option("--hidden", default=256, help="Hidden channels."),
    click.option("--heads", default=1, help="Attention heads of gat."),
    click.option("--bases", type=int, show_default="one per relation", help="Bases of rgcn."),
    click.option("--dropout", default=0.0, help="Dropout probability."),
    click.option("--norm", type=NameChoice(("batch", "layer")), show_default="none", help="Normalization."),
    click.option("--optimizer", default="adam", type=NameChoice(OPTIMIZERS), help="Optimizer, for its state."),
]

store_option = click.option(
    "--store",
    metavar="URI",
    show_default="MLFLOW_TRACKING_URI, else mlflow.db of the project",
    help="Store of runs: a tracking URI or a .jsonl file.",
)

page_option = click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    show_default="build/report.html of the project",
    help="HTML page to write.",
)


def _recordable(context: click.Context, option: click.Parameter, record: bool) -> bool:
    from workbench.experiment.environment import check_recordable

    if record:
        check_recordable()
    return record


_SWEEP_OPTIONS = [
    click.option(
        "--size",
        type=NameChoice(SIZES),
        default="smoke",
        help="smoke: synthetic data, seconds; real: real graphs, minutes to hours; paper: the paper's setup on a GPU.",
    ),
    click.option("--device", show_default="the size's device", help="cpu, cuda or cuda:N."),
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Points to run at a time; more than one run in processes of their own and share the cores.",
    ),
    click.option(
        "--executor",
        type=NameChoice(EXECUTORS),
        default="processes",
        help="processes: of this machine; ray: workers of the Ray cluster that RAY_ADDRESS names or that runs here.",
    ),
    click.option(
        "--time-limit",
        "time_limit_seconds",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        show_default="the size's, else none",
        help="Stop a point that runs longer and count it as failed.",
    ),
    click.option("--record", is_flag=True, callback=_recordable, help="Also write the tables to experiments/results/."),
]


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that runs sweeps: the keywords of `Experiment.runs`, and `record`."""
    return _with(command, _SWEEP_OPTIONS)


def data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of how a data set is loaded."""
    return _with(command, _DATA_OPTIONS)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a model of `build_model`, and its optimizer."""
    return _with(command, _MODEL_OPTIONS)


def _with(command: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command

"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path

import click

from workbench.cli.figure_names import complete_names
from workbench.cli.name_choice import NameChoice
from workbench.cli.option_values import EXECUTORS, SIZES

figure_argument = click.argument("figure", metavar="PAPER/FIGURE", shell_complete=complete_names)
names_argument = click.argument("names", metavar="[PAPER|PAPER/FIGURE]...", nargs=-1, shell_complete=complete_names)
data_folder_option = click.option(
    "--root", metavar="FOLDER", show_default="WORKBENCH_DATA, else ~/.local/share/workbench", help="Data folder."
)
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
_SWEEP_OPTIONS = [
    click.option(
        "--size",
        type=NameChoice(SIZES),
        default="smoke",
        help="smoke: synthetic data, seconds; real: real graphs, minutes on a CPU; paper: the paper's setup on a GPU.",
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
    click.option("--record", is_flag=True, help="Also write the tables to experiments/results/."),
]


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that runs sweeps: the keywords of `Experiment.runs`, and `record`."""
    for option in reversed(_SWEEP_OPTIONS):
        command = option(command)
    return command

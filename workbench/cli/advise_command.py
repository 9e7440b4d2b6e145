"""`workbench advise`: which ideas help a data set and a model on a machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from workbench.cli.command_group import write_error, write_lines
from workbench.cli.options import data_options, model_options


@click.command()
@click.argument("dataset")
@data_options
@model_options
@click.option("--fanouts", default="10,10", metavar="A,B,...", help="Fanouts, input layer first; -1: all neighbours.")
@click.option("--batch-size", default=1024, help="Training nodes per batch and device.")
@click.option(
    "--machine",
    default="here",
    metavar="NAME|FILE",
    show_default="this one, measured",
    help='A100, H100, V100, L4, "RTX 4090" or a YAML file; `workbench machine` shows them.',
)
@click.option("--memory", metavar="SIZE", show_default="the machine's", help="Memory of a device, such as 8GiB.")
@click.option("--host-memory", metavar="SIZE", show_default="the machine's", help="Memory of the host for the data.")
@click.option("--devices", "--gpus", default=1, help="Number of devices.")
@click.option("--batches", default=24, help="Batches to sample of every way of sampling.")
@click.option("--seed", default=0, help="Seed of the data set, the order of batches and the partitions.")
@click.option(
    "--code", metavar="FILE", type=click.Path(path_type=Path), help="Write the program of the best configuration."
)
@click.option("--all", "all_rows", is_flag=True, help="Show all configurations.")
def advise(code: Path | None, all_rows: bool, **options: Any) -> None:
    """Say which ideas help a graph, a model and a machine.

    Samples some batches of DATASET (`workbench data list` names them) and prices every configuration from counts:
    memory, bytes moved and seconds per epoch, best first, and why the other ideas do not help. Nothing is trained.
    """
    from workbench.cli.advising import advise_on, check_folder, save_program, table_and_sentences

    if code is not None:
        check_folder(code)
    advised = advise_on(SimpleNamespace(**options), report=write_error)
    write_lines(table_and_sentences(advised.advice, all_rows))
    _ = advised.advice.best  # an error if nothing fits
    if code is not None:
        save_program(advised, code)
        write_lines(["", f"the program of the best configuration is in {code}"])

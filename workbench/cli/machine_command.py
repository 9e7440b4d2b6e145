"""`workbench machine`: the speeds of a machine, and how each was found."""

from pathlib import Path

import click

from workbench.cli.command_group import write_lines


@click.command()
@click.argument("machine", metavar="[NAME|FILE]", default="here")
@click.option("--folder", metavar="FOLDER", show_default="the cache", help="Folder on the disk to measure.")
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="YAML file to write the machine to.")
def machine(machine: str, folder: str | None, save: Path | None) -> None:
    """Show the speeds of a machine and how each was found.

    Measures this machine in some seconds, unless a known one (A100, H100, V100, L4, "RTX 4090") or a YAML file is
    given.
    """
    from workbench.cli.machines import describe_machine

    write_lines(describe_machine(machine, folder, save))

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
    import pandas as pd

    import workbench as wb
    from workbench.advisor.machine import HERE, resolve_machine
    from workbench.report.terminal import fitted_table, terminal_width

    if folder is not None and machine != HERE:
        raise ValueError(f"--folder is {folder!r}, but {machine} is not measured; leave out either of both")
    found = resolve_machine(machine) if folder is None else wb.Machine.here(folder)
    if save is not None:
        found.save(save)
    table = pd.DataFrame(found.rows()).drop(columns="field").rename(columns={"source": "how it was found"})
    saved = [] if save is None else ["", f"saved in {save}"]
    write_lines([found.name or "a machine without a name", "", *fitted_table(table, terminal_width()), *saved])

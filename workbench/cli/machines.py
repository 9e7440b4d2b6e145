"""The work of `workbench machine`."""

from pathlib import Path

import pandas as pd

import workbench as wb
from workbench.advisor.machine import HERE, resolve_machine
from workbench.report.terminal import fitted_table, terminal_width


def describe_machine(name: str, folder: str | None, save: Path | None) -> list[str]:
    """Describes a machine.

    Args:
        name: "here", a known name or a YAML file.
        folder: on the disk to measure; None: the default one.
        save: file to write the machine to, or None.

    Returns:
        Lines to print: its name, and a table of its speeds and sizes.

    Raises:
        ValueError: an unknown name, an invalid file, or a folder for another machine than this one.
        OSError: a file or the folder can't be read or written.
    """
    if folder is not None and name != HERE:
        raise ValueError(f"--folder is {folder!r}, but {name} is not measured; leave out either of both")
    machine = resolve_machine(name) if folder is None else wb.Machine.here(folder)
    if save is not None:
        machine.save(save)
    table = pd.DataFrame(machine.rows()).drop(columns="field").rename(columns={"source": "how it was found"})
    saved = [] if save is None else ["", f"saved in {save}"]
    return [machine.name or "a machine without a name", "", *fitted_table(table, terminal_width()), *saved]

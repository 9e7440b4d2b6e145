"""The command `workbench`: one module per command, and the options and messages that they share.

Commands are thin: they parse options, call the library and print; mistyped names are answered with "did you mean".
"""

from collections.abc import Sequence

import click

from workbench import __version__
from workbench.cli.command_group import CommandGroup, escape_unencodable_output
from workbench.cli.data_command import data
from workbench.cli.experiment_commands import list_figures, reproduce, run
from workbench.cli.plan_commands import advise, buffer, machine, plan
from workbench.cli.report_commands import export_figure, report
from workbench.cli.tracking_commands import compare, import_runs

_HELP = """Train graph neural networks on graphs too big for one GPU.

Complete commands, options and their values with the Tab key: add this line to ~/.bashrc (zsh_source for zsh,
fish_source for fish):

    eval "$(_WORKBENCH_COMPLETE=bash_source workbench)"
"""
_COMMANDS = [
    list_figures,
    run,
    reproduce,
    compare,
    report,
    export_figure,
    import_runs,
    data,
    advise,
    plan,
    buffer,
    machine,
]

command = CommandGroup(
    commands={str(each.name): each for each in _COMMANDS},
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 120},
)
command = click.version_option(__version__, prog_name="gnn-workbench", message="%(prog)s %(version)s")(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
        arguments: the command's words; None: those of this process.

    Returns:
        0 on success; 1 if a point failed or an error was reported in one line on stderr; 2 after a usage error; 130 if
        interrupted; 141 if stdout is closed early (broken pipe).
    """
    escape_unencodable_output()
    try:
        command.main(arguments, prog_name="workbench")
    except SystemExit as end:
        return int(end.code or 0)

"""The group of all commands, which turns errors into one line on stderr and an exit status."""

import io
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from workbench.error_text import text_of

_DATA_PAGE = "docs/data.md"
_ERROR_CHARS = 100_000  # with the stacks of ranks

INTERRUPTED, BROKEN_PIPE = 130, 141
"""Exit statuses as shells report them: 128 plus the number of the signal."""


class CommandGroup(click.Group):
    """Runs a command and ends with the exit status of `workbench.cli.main`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lists the commands in the order of a typical session, not of the alphabet."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command and reports expected errors in one line; click itself reports usage errors."""
        try:
            return super().invoke(ctx)
        except click.exceptions.Exit:
            raise
        except BrokenPipeError:
            _discard_output()
            ctx.exit(BROKEN_PIPE)
        except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
            write_error(f"workbench: {_without_absent_pages(text_of(error, _ERROR_CHARS)) or type(error).__name__}")
            ctx.exit(1)
        except KeyboardInterrupt:
            write_error("workbench: interrupted; finished points are kept; run the same command to resume")
            ctx.exit(INTERRUPTED)


def write_lines(lines: Iterable[str]) -> None:
    """Writes lines to stdout, wrapped to the terminal, and flushes it, so that a closed pipe ends a long command early.

    Args:
        lines: without line ends.
    """
    from workbench.report.terminal import terminal_width, wrapped

    shown = lines if (width := terminal_width()) is None else wrapped(lines, width)
    click.echo("\n".join(shown), file=sys.stdout)  # given no stream, click sends UTF-8 to an ASCII terminal


def write_error(line: str) -> None:
    """Writes a line to stderr: an error or the progress of a long command.

    Args:
        line: without a line end.
    """
    click.echo(line, file=sys.stderr)


def escape_unencodable_output() -> None:
    r"""Shows ✓ as \u2713 on an ASCII terminal instead of raising an error after the work is done."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _without_absent_pages(message: str) -> str:
    """Outside a checkout there is no docs/ to read: messages then name the command that shows the same."""
    from workbench.paths import project_root

    here = (project_root() / _DATA_PAGE).exists()
    return message if here else message.replace(f"in {_DATA_PAGE}", "by `workbench data format`")


def _discard_output() -> None:
    """Python flushes both streams on exit and would report the broken pipe again."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(devnull, stream.fileno())
    os.close(devnull)

"""The command `workbench`."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

from workbench.cli import data, experiments, plan
from workbench.core.errors import CapacityError

INTERRUPTED, BROKEN_PIPE = 130, 141
"""As shells report them: 128 and the number of the signal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: of the command; default: those of this process.

    Returns:
        0; 1 with one line of what is wrong on stderr; 130 if interrupted; 141 if nobody reads the output any more.
    """
    asked = _parser().parse_args(arguments)
    _escape_what_stdout_cannot_encode()
    try:
        outcome = asked.run(asked)
        lines, status = outcome if isinstance(outcome, tuple) else (outcome, 0)
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except (ValueError, OSError, RuntimeError, CapacityError, ImportError) as error:
        sys.stderr.write(f"workbench: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("workbench: interrupted; what was finished is kept, the same command goes on from there\n")
        return INTERRUPTED


def _escape_what_stdout_cannot_encode() -> None:
    """A terminal of ASCII shows ✓ as \\u2713; the work is done by then, and its table must not be lost."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Python flushes both streams when it ends, and would report the broken pipe again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workbench", description="Train graph neural networks on graphs too big for one GPU."
    )
    areas = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    experiments.add(areas)
    data.add(areas)
    plan.add(areas)
    return parser

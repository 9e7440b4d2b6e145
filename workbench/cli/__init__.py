"""The command `workbench`."""

import argparse
import sys
from collections.abc import Sequence

from workbench.cli import data, experiments, plan
from workbench.core.errors import CapacityError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0; 1 with one line of what is wrong on stderr; 130 if interrupted.

    Args:
        arguments: of the command; default: those of this process.
    """
    asked = _parser().parse_args(arguments)
    try:
        outcome = asked.run(asked)
    except (ValueError, OSError, RuntimeError, CapacityError, ImportError) as error:
        sys.stderr.write(f"workbench: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("workbench: interrupted; what was finished is kept, the same command goes on from there\n")
        return INTERRUPTED
    lines, status = outcome if isinstance(outcome, tuple) else (outcome, 0)
    sys.stdout.write("\n".join(lines) + "\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workbench", description="Train graph neural networks on graphs too big for one GPU."
    )
    areas = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    experiments.add(areas)
    data.add(areas)
    plan.add(areas)
    return parser

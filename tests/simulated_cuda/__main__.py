"""Run a module with a simulated GPU, in this program and in all that it starts:

    python -m tests.simulated_cuda experiments.gpu_check --device cuda

Results are *simulated*: they show that the path runs, never how fast, and never that a GPU gives the same.
"""

import os
import sys
from pathlib import Path

from tests.simulated_cuda import environment


def main(arguments: list[str]) -> None:
    """Replace this program by `python -m` of a module and its arguments."""
    if not arguments:
        raise SystemExit("usage: python -m tests.simulated_cuda MODULE [ARGUMENT …]")
    os.execve(sys.executable, [sys.executable, "-m", *arguments], {**os.environ, **environment()})


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main(sys.argv[1:])

"""Processes that are killed or run at once."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench import files

DRAFT = f".graph.{'0' * 32}.new"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def folder_of(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "a").write_text(text)
    (path / "b").write_text(text)
    return path


def replace_folder(target: Path, text: str) -> None:
    with files.new_folder(target) as draft:
        for name in ("a", "b"):
            files.write_new_file(draft / name, text)


def content(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in ("a", "b")]


@contextmanager
def in_another_process(code: str, *args: object, after: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run code in another process that prints a line when it is ready, then waits for the end of its input."""
    whole = f"import sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n{after}"
    with subprocess.Popen([sys.executable, "-c", whole, *map(str, args)], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process

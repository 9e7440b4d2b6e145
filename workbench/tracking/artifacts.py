"""Files of a run, from contents or from files elsewhere."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from workbench.files import write_file
from workbench.tracking.store import Artifacts

_PIECE = 1 << 20  # bytes


@contextmanager
def in_a_folder(artifacts: Artifacts) -> Iterator[str]:
    """A temporary folder that holds artifacts under their names."""
    with tempfile.TemporaryDirectory() as folder:
        write_artifacts(Path(folder), artifacts)
        yield folder


def write_artifacts(folder: Path, artifacts: Artifacts) -> None:
    """Write a run's files, each completely or not at all, down to the disk: a power cut does not empty them.

    Raises:
        ValueError: a name that leads out of the folder; nothing is written.
    """
    for name in artifacts:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"artifact {name!r} would lie outside of its run; name it relative to the run")
    for name, content in artifacts.items():
        write_file(folder / name, _pieces(content) if isinstance(content, Path) else content.encode(errors="replace"))


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while piece := source.read(_PIECE):
            yield piece

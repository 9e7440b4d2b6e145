"""Writing a run's artifacts, from contents or by copying files."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from workbench.files import write_file
from workbench.tracking.store import Artifacts

_CHUNK_BYTES = 1 << 20


@contextmanager
def in_a_folder(artifacts: Artifacts) -> Iterator[str]:
    """Write artifacts to a temporary folder and yield its path."""
    with tempfile.TemporaryDirectory() as folder:
        write_artifacts(Path(folder), artifacts)
        yield folder


def write_artifacts(folder: Path, artifacts: Artifacts) -> None:
    """Write a run's files, each atomically and synced to disk, so that a power cut does not leave empty files.

    Args:
        folder: folder of the run's artifacts.
        artifacts: contents, or files to copy, by name.

    Raises:
        ValueError: if a name points outside the folder; nothing is written then.
    """
    for name in artifacts:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"artifact {name!r} would be outside of its run; pass a name relative to the run")
    for name, content in artifacts.items():
        write_file(folder / name, _chunks(content) if isinstance(content, Path) else content.encode(errors="replace"))


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk

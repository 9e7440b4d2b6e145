"""Files of a run, from contents or from files elsewhere."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from workbench.tracking.store import Artifacts


@contextmanager
def in_a_folder(artifacts: Artifacts) -> Iterator[str]:
    """A temporary folder that holds artifacts under their names."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in artifacts.items():
            write_artifact(Path(folder), name, content)
        yield folder


def write_artifact(folder: Path, name: str, content: str | Path) -> None:
    """Write one of a run's files.

    Raises:
        ValueError: a name that leads out of the folder.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"artifact {name!r} would lie outside of its run; name it relative to the run")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, file)
    else:
        file.write_text(content, encoding="utf-8")

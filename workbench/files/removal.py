"""Deletion of files and folders that the library created."""

import re
import shutil
from contextlib import suppress
from pathlib import Path


def remove(path: Path, *, inside: Path, named: str) -> None:
    """Delete a file or folder that the library created, if it exists; symbolic links are deleted, never followed.

    Args:
        path: a direct child of `inside`.
        inside: a folder that the library owns.
        named: regular expression that must match the child's whole name.

    Raises:
        ValueError: if `path` is not such a child; nothing is deleted then.
        OSError: if it can't be deleted.
    """
    if path.parent != inside or path.name in ("", ".", "..") or not re.fullmatch(named, path.name):
        raise ValueError(f"{path} is not deleted: it must be a child of {inside} with a name that matches {named}")
    while path.is_dir() and not path.is_symlink():
        with suppress(FileNotFoundError):  # another process is deleting it, too
            shutil.rmtree(path)
    path.unlink(missing_ok=True)

"""When a point is done: a key over everything that decides its rows."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def library_digest() -> str:
    """sha256 over the library's Python files, as they were when first asked."""
    return files_digest(_PACKAGE.rglob("*.py"), _PACKAGE)


def files_digest(files: Iterable[Path], folder: Path) -> str:
    """sha256 over names and contents of files.

    Args:
        files: in any order.
        folder: names are relative to it.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def figure_digest(pair: Iterable[Path]) -> str:
    """sha256 over the library and an experiment's pair of files: all that decides how a figure looks."""
    pair = list(pair)
    return _sha256(library_digest(), files_digest(pair, pair[0].parent))


def point_key(code: str, config: Mapping[str, Any], fingerprint: str) -> str:
    """The key of a grid point.

    Args:
        code: of `workbench.experiment.closure.closure_digest`.
        config: resolved, JSON values.
        fingerprint: of the data set.
    """
    return _sha256(code, json.dumps(config, sort_keys=True), fingerprint)


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()

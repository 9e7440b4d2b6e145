"""Compilation of CPU kernels: `nogil`, cached on disk under a key that covers every kernel source."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numba
from numba.core import config

_PACKAGE = Path(__file__).resolve().parent.parent
_KEPT_CACHES = 3


def _sources_digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        text = path.read_bytes()
        if b"@compiled" in text:
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + text)
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Folder of the machine code of these sources: below NUMBA_CACHE_DIR if set, else below the user's cache folder."""
    home = os.environ.get("NUMBA_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench"
    return Path(home) / "kernels" / _sources_digest()


def _prepare(folder: Path) -> str:
    """Create the folder and drop all but the newest few of earlier sources."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    others = sorted(folder.parent.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in others[_KEPT_CACHES:]:
        shutil.rmtree(old, ignore_errors=True)
    return str(folder)


try:
    _CACHE: str | None = _prepare(cache_folder())
except OSError:  # a read-only home: compile in every process rather than fail
    _CACHE = None


def compiled(function: Any = None, **options: Any) -> Any:
    """Compile `function` with numba, without the interpreter lock.

    Numba's own cache does not see an edit in a helper that lives in another file, so the cache folder is keyed by a digest
    of all sources that hold kernels. Numba's setting is changed only while the function is registered: other numba users in
    the process keep theirs.
    """
    if function is None:
        return lambda f: compiled(f, **options)
    before = config.CACHE_DIR
    config.CACHE_DIR = _CACHE or before
    try:
        return numba.njit(nogil=True, cache=_CACHE is not None, **options)(function)
    finally:
        config.CACHE_DIR = before

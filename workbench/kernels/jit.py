"""Compilation of CPU kernels: `nogil`, cached on disk under a key that covers every kernel source."""

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import config as numba_config

_PACKAGE = Path(__file__).resolve().parent.parent
_KEPT_CACHES = 3
_DAY_SECONDS = 86400


def _sources_digest(package: Path = _PACKAGE) -> str:
    """Digest of all files that hold kernels; what a kernel takes from elsewhere is frozen into it unseen."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if b"compiled" in text:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + text)
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Folder of the machine code of these sources: below NUMBA_CACHE_DIR if set, else below the user's cache folder."""
    home = Path(os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "workbench" / _sources_digest()


def _prepare(folder: Path) -> str:
    """Create the folder; drop those of earlier sources but the newest, and those that may still be in use."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    with suppress(OSError):  # another process may be dropping the same ones
        newest_first = sorted(folder.parent.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in newest_first[_KEPT_CACHES:]:
            if time.time() - old.stat().st_mtime > _DAY_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    return str(folder)


try:
    _CACHE: str | None = _prepare(cache_folder())
except (OSError, RuntimeError):  # no home, or a read-only one: compile in every process rather than fail
    _CACHE = None


def compiled(function: Any = None, **options: Any) -> Any:
    """Compile `function` with numba, without the interpreter lock.

    Numba's own cache does not see an edit in a helper that lives in another file, so the cache folder is keyed by a
    digest of all sources that hold kernels. Numba's setting is changed only while the function is registered: other
    numba users in the process keep theirs.
    """
    if function is None:
        return lambda f: compiled(f, **options)
    settings: Any = numba_config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = _CACHE or before
    try:
        return numba.njit(nogil=True, cache=_CACHE is not None, **options)(function)
    finally:
        settings.CACHE_DIR = before

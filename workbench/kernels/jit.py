"""Compilation of CPU kernels: `nogil`, cached on disk under a key that covers every kernel source."""

import hashlib
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba

from workbench import files
from workbench.kernels.code_cache import SUFFIX, CodeCache

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDER = "[0-9a-f]{16}"
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
    """Folder of the machine code of these sources; its siblings are those of other sources, and nothing else.

    They are in `workbench-kernels` below NUMBA_CACHE_DIR if set, else in `workbench/kernels` below the user's cache
    folder.
    """
    if numba_folder := os.environ.get("NUMBA_CACHE_DIR"):
        home = Path(numba_folder) / "workbench-kernels"
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench" / "kernels"
    return home.absolute() / _sources_digest()


def _prepare(folder: Path) -> Path:
    """Create the folder; delete those of earlier sources except the newest and those used within a day."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    with suppress(OSError):  # another process may be deleting the same ones
        caches = [path for path in folder.parent.iterdir() if re.fullmatch(_FOLDER, path.name)]
        for old in sorted(caches, key=_modified, reverse=True)[_KEPT_CACHES:]:
            if time.time() - _modified(old) > _DAY_SECONDS and _is_cache(old):
                files.remove(old, inside=folder.parent, named=_FOLDER)  # a process that still uses it compiles again
    for kernels in folder.iterdir():
        files.remove_unfinished(kernels)
    return folder


def _is_cache(folder: Path) -> bool:
    """Whether all files in a folder are machine code, or drafts of such files."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(path.is_dir() or path.suffix in (SUFFIX, ".new") for path in folder.rglob("*"))


def _modified(path: Path) -> float:
    return path.stat().st_mtime


try:
    _CACHE: Path | None = _prepare(cache_folder())
except (OSError, RuntimeError):  # no home, or a read-only one: compile in every process rather than fail
    _CACHE = None


def compiled(function: Any = None, **options: Any) -> Any:
    """Compile `function` with numba, without the interpreter lock.

    Numba's own cache does not see an edit in a helper that lives in another file, so the cache folder is keyed by a
    digest of all sources that hold kernels.
    """
    if function is None:
        return lambda f: compiled(f, **options)
    kernel: Any = numba.njit(nogil=True, **options)(function)
    if _CACHE is not None and hasattr(kernel, "enable_caching"):  # NUMBA_DISABLE_JIT: the function itself
        with suppress(OSError, RuntimeError):  # no room, or no source file: compile in every process
            kernel._cache = CodeCache(function, _CACHE)
    return kernel

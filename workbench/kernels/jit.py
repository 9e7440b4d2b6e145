"""Compilation of CPU kernels without the interpreter lock, cached on disk under a digest of all kernel sources."""

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
from workbench.paths import kernel_cache_folder

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDER = "[0-9a-f]{16}"
_MAX_CACHES = 3
_DAY_SECONDS = 86400


def _sources_digest(package: Path = _PACKAGE) -> str:
    """Return a digest of all files with kernels, because numba inlines code of other files without noticing edits."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if b"compiled" in text:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + text)
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return the folder of this version's machine code, in `kernel_cache_folder()`, next to those of other versions."""
    return kernel_cache_folder().absolute() / _sources_digest()


def _prepare(folder: Path) -> Path:
    """Create the folder, and delete the caches of other versions except the newest and those used within a day."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    with suppress(OSError):  # another process may be deleting the same folders
        caches = [path for path in folder.parent.iterdir() if re.fullmatch(_FOLDER, path.name)]
        for old in sorted(caches, key=_modified, reverse=True)[_MAX_CACHES:]:
            if time.time() - _modified(old) > _DAY_SECONDS and _is_cache(old):
                files.remove(old, inside=folder.parent, named=_FOLDER)  # a process that still uses it recompiles
    for kernels in folder.iterdir():
        files.remove_unfinished(kernels)
    return folder


def _is_cache(folder: Path) -> bool:
    """Return whether all files in a folder are machine code or drafts of it."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(path.is_dir() or path.suffix in (SUFFIX, ".new") for path in folder.rglob("*"))


def _modified(path: Path) -> float:
    return path.stat().st_mtime


try:
    _CACHE: Path | None = _prepare(cache_folder())
except (OSError, RuntimeError):  # no writable home folder: compile in every process instead of failing
    _CACHE = None


def compiled(function: Any = None, **options: Any) -> Any:
    """Compile a function with numba so that it releases the interpreter lock; usable as a decorator.

    Numba's own cache does not notice edits of helpers in other files, hence the digest of all kernel sources.

    Args:
        function: the function to compile; None when used as a decorator with options.
        options: options of `numba.njit`.
    """
    if function is None:
        return lambda f: compiled(f, **options)
    kernel: Any = numba.njit(nogil=True, **options)(function)
    if _CACHE is not None and hasattr(kernel, "enable_caching"):  # under NUMBA_DISABLE_JIT it is the function itself
        with suppress(OSError, RuntimeError):  # no disk space, or no source file: compile in every process
            kernel._cache = CodeCache(function, _CACHE)
    return kernel


def compiled_inline(function: Any) -> Any:
    """Compile a function that becomes part of every kernel that calls it, for calls per row or edge.

    It can't allocate arrays, because it doesn't count references: each array passed to a function that does costs two
    atomic operations. A division by zero gives infinity instead of an exception.

    Args:
        function: the function to compile.
    """
    return compiled(function, forceinline=True, error_model="numpy", _nrt=False)

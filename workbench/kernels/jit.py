"""Compilation of CPU kernels without the interpreter lock, cached on disk under a digest of all kernel sources."""

import hashlib
import importlib
import os
import pickle
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numba
import torch
from numba.core import config as numba_config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.serialize import dumps

from workbench import files
from workbench.paths import kernel_cache_folder

_PACKAGE = Path(__file__).resolve().parent.parent

_FOLDER = "[0-9a-f]{16}"

_KERNEL = re.compile(rb"^\s*@(compiled|intrinsic)", re.MULTILINE)

_MAX_CACHES = 3

_DAY_SECONDS = 86400


def _sources_digest(package: Path = _PACKAGE) -> str:
    """Return a digest of all files with kernels, because numba inlines code of other files without noticing edits."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if _KERNEL.search(text) or path == Path(__file__).resolve():
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
    """
    return compiled(function, forceinline=True, error_model="numpy", _nrt=False)


SUFFIX = ".nbi"

_CHECKSUM_BYTES = 32


class _CodeFiles:
    """Serialized kernels, one file per key; replaces numba's `IndexDataCacheFile`.

    Args:
        folder: folder that contains nothing else.
        base: prefix of the file names.
        stamp: stamp of the source file, compared on loading.
    """

    def __init__(self, folder: Path, base: str, stamp: Any) -> None:
        self._folder, self._base, self._stamp = folder, base, stamp

    def save(self, key: Any, data: Any) -> None:
        content = dumps((self._stamp, key, data))
        files.write_file(self._path(key), [hashlib.sha256(content).digest(), content])

    def load(self, key: Any) -> Any:
        """Return the data saved under a key, or None if there is none that is intact and from this source."""
        path = self._path(key)
        stored = path.read_bytes() if path.exists() else b""
        checksum, content = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        if checksum != hashlib.sha256(content).digest():
            return None
        stamp, stored_key, data = pickle.loads(content)
        return data if (stamp, stored_key) == (self._stamp, key) else None

    def _path(self, key: Any) -> Path:
        signature, machine, hashes = key
        return self._folder / f"{self._base}-{files.digest(str(signature), machine, hashes)}{SUFFIX}"


class _Impl(CompileResultCacheImpl):
    _locator_classes: ClassVar = [UserProvidedCacheLocator]


class CodeCache(FunctionCache):
    """The cache of one kernel.

    Args:
        function: function to compile.
        folder: folder of the machine code of all kernels.

    Raises:
        OSError: if the folder can't be written.
        RuntimeError: if numba finds no usable cache folder, or the function has no source file.
    """

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        settings: Any = numba_config
        before = settings.CACHE_DIR
        settings.CACHE_DIR = str(folder)  # only while numba locates the folder: other users of numba keep theirs
        try:
            super().__init__(function)
        finally:
            settings.CACHE_DIR = before
        impl: Any = self._impl
        self._cache_file = _CodeFiles(Path(self.cache_path), impl.filename_base, impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel of a signature, or None if it must be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # an invalid or unreadable file, which `save_overload` replaces
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel; if that fails, the next process recompiles it."""
        with suppress(OSError):
            super().save_overload(sig, data)


def triton_kernels(name: str, tensor: torch.Tensor) -> Any:
    """Return a module of Triton kernels, or None where they can't read a tensor: on the CPU, or without Triton.

    Args:
        name: of the module in this package.
        tensor: that the kernels are to read; of a subclass they would not see what it wraps.
    """
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return _imported(name) if is_plain and tensor.device.type == "cuda" else None


@cache
def _imported(name: str) -> Any:
    try:
        return importlib.import_module(f"workbench.kernels.{name}")
    except ImportError:
        return None


F = TypeVar("F", bound=Callable[..., Any])


def runs_eagerly(function: F) -> F:
    """Decorate a function to run eagerly in a compiled model, where it causes a graph break.

    `torch.compiler.disable` does the same, but imports the compiler, which takes seconds; here only models that are
    compiled pay for that.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]

"""Machine code on disk: one file per kernel and signature, with a checksum; whatever is wrong with it, numba compiles.

Numba's own cache fails the call when a file is truncated or the disk is full, runs altered machine code, and keeps the
signatures of a kernel in an index that two processes overwrite in turn.
"""

import hashlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from numba.core import config as numba_config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.serialize import dumps

from workbench import files

SUFFIX = ".nbi"
_CHECKSUM_BYTES = 32


class _CodeFiles:
    """Serialized kernels, one file for each key; stands in for numba's `IndexDataCacheFile`.

    Args:
        folder: that holds nothing but such files.
        base: what their names begin with.
        stamp: of the source file, compared on loading.
    """

    def __init__(self, folder: Path, base: str, stamp: Any) -> None:
        self._folder, self._base, self._stamp = folder, base, stamp

    def save(self, key: Any, data: Any) -> None:
        content = dumps((self._stamp, key, data))
        files.write_file(self._path(key), [hashlib.sha256(content).digest(), content])

    def load(self, key: Any) -> Any:
        """The data saved under a key, None if there are none that are intact and made from this source."""
        path = self._path(key)
        stored = path.read_bytes() if path.exists() else b""
        checksum, content = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        if checksum != hashlib.sha256(content).digest():
            return None
        stamp, found, data = pickle.loads(content)
        return data if (stamp, found) == (self._stamp, key) else None

    def _path(self, key: Any) -> Path:
        signature, machine, hashes = key
        return self._folder / f"{self._base}-{files.digest(str(signature), machine, hashes)}{SUFFIX}"


class _Impl(CompileResultCacheImpl):
    _locator_classes: ClassVar = [UserProvidedCacheLocator]


class CodeCache(FunctionCache):
    """The cache of one kernel.

    Args:
        function: to be compiled.
        folder: for the machine code of all kernels.

    Raises:
        OSError: the folder cannot be written.
        RuntimeError: likewise, or the function has no source file.
    """

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        settings: Any = numba_config
        before = settings.CACHE_DIR
        settings.CACHE_DIR = str(folder)  # only while numba looks for the folder: its other users keep theirs
        try:
            super().__init__(function)
        finally:
            settings.CACHE_DIR = before
        impl: Any = self._impl
        self._cache_file = _CodeFiles(Path(self.cache_path), impl.filename_base, impl.locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel of a signature, None if it has to be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a foreign or unreadable file; `save_overload` replaces it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel; without it, the next process compiles again."""
        with suppress(OSError):
            super().save_overload(sig, data)

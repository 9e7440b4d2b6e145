"""Machine code on disk: one file per kernel and signature, with a checksum; on any error the kernel is recompiled.

Numba's own cache raises an error if a file is truncated or the disk is full, runs corrupted machine code, and stores
the signatures of a kernel in an index that concurrent processes overwrite.
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

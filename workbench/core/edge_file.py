"""`EdgeFile`: an edge list on disk, read in chunks."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.edge_stream import CHUNK_EDGES
from workbench.core.errors import DataError, check_at_least, check_choice

_DTYPES = {"int32": np.int32, "int64": np.int64}
_RAW = (".bin", ".raw")


@dataclass(frozen=True)
class EdgeFile:
    """An edge list on disk, of which one chunk is in memory at a time; iterating begins at the first edge again.

    Formats by the file's suffix:
    - `.npy`: an int32 or int64 array of shape [2, num_edges] (sources, destinations) or [num_edges, 2];
    - `.bin`, `.raw`: pairs source, destination in the machine's byte order and nothing else; needs `dtype`;
    - any other: text with an edge per line, source and destination first, separated by blanks, tabs, commas or
      semicolons; lines that begin with the same `#` or `%` as the first line are comments; may be compressed (`.gz`).

    Args:
        path: the file.
        dtype: "int32" or "int64", of a raw file.
        chunk_edges: edges per chunk, at least 1. Results of streaming algorithms do not depend on it.

    Raises:
        FileNotFoundError: if there is no such file.
        DataError: if the file does not have its format; for text, when the line is read.
        ValueError: if `dtype` is missing, or given for a file that is not raw.

    >>> list(EdgeFile(tmp_path / "edges.txt"))  # doctest: +SKIP
    [(array([0, 2]), array([1, 1]))]
    """

    path: str | os.PathLike[str]
    dtype: str | None = None
    chunk_edges: int = CHUNK_EDGES

    def __post_init__(self) -> None:
        check_at_least("chunk_edges", self.chunk_edges, 1)
        if not self._file.is_file():
            raise FileNotFoundError(f"{self._file} is not a file; pass the path of an edge list")
        if self._is_raw != (self.dtype is not None):
            needed = 'pass dtype="int32" or "int64"' if self._is_raw else f"only {' and '.join(_RAW)} files need one"
            raise ValueError(f"dtype is {self.dtype!r} for {self._file.name}; {needed}")
        if self.dtype is not None:
            check_choice("dtype", self.dtype, _DTYPES)
        if not self._is_text:
            self._pairs()

    @property
    def num_edges(self) -> int | None:
        """Number of edges; None for text, which tells it only at its end."""
        return None if self._is_text else self._pairs().shape[1]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield sources and destinations of consecutive edges."""
        if self._is_text:
            yield from self._text_chunks()
            return
        pairs = self._pairs()
        for start in range(0, pairs.shape[1], self.chunk_edges):
            src, dst = pairs[:, start : start + self.chunk_edges]
            yield np.array(src), np.array(dst)  # copies: pages of the file do not stay in memory

    @property
    def _file(self) -> Path:
        return Path(self.path)

    @property
    def _is_raw(self) -> bool:
        return self._file.suffix in _RAW

    @property
    def _is_text(self) -> bool:
        return not self._is_raw and self._file.suffix != ".npy"

    def _pairs(self) -> np.ndarray:
        """Map the file of a binary format: [2, num_edges]."""
        pairs = self._raw_pairs() if self._is_raw else self._npy_pairs()
        return pairs if pairs.shape[0] == 2 else pairs.T

    def _raw_pairs(self) -> np.ndarray:
        dtype = np.dtype(_DTYPES[str(self.dtype)])
        size = self._file.stat().st_size
        if size % (2 * dtype.itemsize):
            raise DataError(
                f"{self._file} has {size} bytes, no multiple of {2 * dtype.itemsize}, a pair of {dtype}; it is "
                "truncated or of another dtype"
            )
        if not size:
            return np.empty((2, 0), dtype)
        with self._file.open("rb") as file:
            return _mapped(file, dtype).reshape(-1, 2).T

    def _npy_pairs(self) -> np.ndarray:
        try:
            array = np.load(self._file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise DataError(f"{self._file} is not a .npy file ({error}); save the edges with numpy.save") from error
        if array.ndim != 2 or 2 not in array.shape or array.dtype not in (np.int32, np.int64):
            raise DataError(
                f"{self._file} is {array.dtype} {array.shape}; edges must be int32 or int64 of shape [2, num_edges] or "
                "[num_edges, 2]"
            )
        return array

    def _text_chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        import pandas as pd

        options: dict[str, Any] = {"header": None, "usecols": [0, 1], "dtype": np.int64, **self._dialect()}
        try:
            reader: Any = pd.read_csv(self._file, chunksize=self.chunk_edges, **options)
            with reader:
                for frame in reader:
                    yield frame[0].to_numpy(), frame[1].to_numpy()
        except pd.errors.EmptyDataError:
            return
        except (ValueError, OverflowError, OSError) as error:
            raise DataError(
                f"{self._file} is not an edge list ({error}); every line must begin with two whole numbers"
            ) from error

    def _dialect(self) -> dict[str, Any]:
        """The separator and the character of comments, from the first lines."""
        from pandas.io.common import get_handle

        comment = None
        with get_handle(self._file, "r", compression="infer") as handles:
            for line in handles.handle:
                if line[:1] in ("#", "%"):
                    comment = comment or line[0]
                elif line.strip():
                    separator = next((mark for mark in ",;" if mark in line), r"\s+")
                    return {"sep": separator, "comment": comment}
        return {"comment": comment}


def _mapped(file: Any, dtype: np.dtype) -> np.ndarray:
    import mmap

    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)

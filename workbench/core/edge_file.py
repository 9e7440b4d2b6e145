"""`EdgeFile`: an edge list on disk, read in chunks."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.edge_layout import Columns, LayoutOptions
from workbench.core.edge_stream import CHUNK_EDGES
from workbench.core.edge_text import EdgeText
from workbench.core.errors import DataError, check_at_least, check_choice
from workbench.core.text_file import TextFile

_DTYPES = {"int32": np.int32, "int64": np.int64}
_RAW = (".bin", ".raw")


@dataclass(frozen=True)
class EdgeFile:
    """An edge list on disk, of which one chunk is in memory at a time; iterating begins at the first edge again.

    Formats by the file's suffix:
    - `.npy`: an int32 or int64 array of shape [2, num_edges] (sources, destinations) or [num_edges, 2];
    - `.bin`, `.raw`: pairs source, destination in the machine's byte order and nothing else; needs `dtype`;
    - any other: text, which may be compressed (gzip, bzip2, xz, or a ZIP archive of one file).

    Text has an edge per line, separated by blanks, tabs, commas, semicolons or bars, in any order of lines. Blank lines
    and lines that begin with `#` or `%` are passed over. A line with more than source and destination needs `columns`,
    unless a header names both ("source,target,weight", "# FromNodeId ToNodeId Sign"); such a header is recognised. The
    banner of Matrix Market is honoured: ids from 1, both directions of a symmetric matrix, row = source; files named
    `.graph` or `.metis` are adjacency lists as METIS reads them. Everything else is refused with its line.

    Args:
        path: the file.
        dtype: "int32" or "int64", of a raw file.
        chunk_edges: edges per chunk, at least 1. Results of streaming algorithms do not depend on it.
        columns: of text, source and destination, and optionally weight: positions, from 0, or names in the header.
        skip: of text, lines before everything else that are not read.
        base: of text, the id of the first node, 0 or 1, which becomes 0; None: 0, or that of the format.
        encoding: of text; None: UTF-8, or that of the file's byte order mark.

    Raises:
        FileNotFoundError: if there is no such file.
        DataError: if the file does not have its format; for text, when the line is read.
        ValueError: if `dtype` is missing, or given for a file that is not raw; or an argument of text is given for
            another file, or out of range.

    >>> list(EdgeFile(tmp_path / "edges.txt"))  # doctest: +SKIP
    [(array([0, 2]), array([1, 1]))]
    """

    path: str | os.PathLike[str]
    dtype: str | None = None
    chunk_edges: int = CHUNK_EDGES
    columns: Columns | None = field(default=None, kw_only=True)
    skip: int | None = field(default=None, kw_only=True)
    base: int | None = field(default=None, kw_only=True)
    encoding: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_at_least("chunk_edges", self.chunk_edges, 1)
        if not self._file.is_file():
            raise FileNotFoundError(f"{self._file} is not a file; pass the path of an edge list")
        if self._is_raw != (self.dtype is not None):
            needed = 'pass dtype="int32" or "int64"' if self._is_raw else f"only {' and '.join(_RAW)} files need one"
            raise ValueError(f"dtype is {self.dtype!r} for {self._file.name}; {needed}")
        if self.dtype is not None:
            check_choice("dtype", self.dtype, _DTYPES)
        if self._is_text:
            self._check_columns()
            self._text()
        else:
            self._check_binary()

    @property
    def num_edges(self) -> int | None:
        """Number of edges; None for text, which tells it only at its end."""
        return None if self._is_text else self._pairs().shape[1]

    @property
    def num_nodes(self) -> int | None:
        """Number of nodes, if the format tells it: Matrix Market and METIS."""
        return self._text().num_nodes() if self._is_text else None

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield sources and destinations of consecutive edges."""
        if self._is_text:
            for src, dst, _ in self._text().chunks(self.chunk_edges):
                yield src, dst
            return
        pairs = self._pairs()
        for start in range(0, pairs.shape[1], self.chunk_edges):
            src, dst = pairs[:, start : start + self.chunk_edges]
            yield np.array(src), np.array(dst)  # copies: pages of the file do not stay in memory

    def with_weights(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield sources, destinations and weights, float64, of consecutive edges of a text.

        Weights are those of Matrix Market (1 for a pattern), or those of the third of `columns`.

        Raises:
            ValueError: the file has no weights that are known.
            DataError: a line does not have its format.
        """
        if not self._is_text:
            raise ValueError(f"{self._file.name} has no weights; only text has")
        for src, dst, weight in self._text().chunks(self.chunk_edges, weights=True):
            assert weight is not None
            yield src, dst, weight

    def line_of(self, limit: int) -> str | None:
        """Return the file and line of the first edge with an id of at least `limit`, for messages; None: not known."""
        if self._is_text:
            try:
                for _ in self._text(limit).chunks(self.chunk_edges):
                    pass
            except DataError as error:
                return str(error)
        return None

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

    def _text(self, limit: int | None = None) -> EdgeText:
        options = LayoutOptions(self.columns, self.skip, self.base)
        return EdgeText(TextFile(self._file, self.encoding), options, limit)

    def _check_columns(self) -> None:
        """Check the arguments of text."""
        if self.skip is not None:
            check_at_least("skip", self.skip, 0)
        if self.base is not None:
            check_at_least("base", self.base, 0, most=1)
        if self.columns is None:
            return
        columns = tuple(self.columns) if isinstance(self.columns, Sequence) else ()
        if isinstance(self.columns, str) or not 2 <= len(columns) <= 3 or len(set(columns)) < len(columns):
            raise ValueError(f"columns is {self.columns!r}; it must be (source, destination) or these and a weight")
        for column in columns:
            if not isinstance(column, str):
                check_at_least("columns", column, 0)
        object.__setattr__(self, "columns", tuple(c if isinstance(c, str) else int(c) for c in columns))

    def _check_binary(self) -> None:
        given = {name: getattr(self, name) for name in ("columns", "skip", "base", "encoding")}
        if passed := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{passed[0]} is {given[passed[0]]!r}, but {self._file.name} is not text; omit it")
        self._pairs()


def _mapped(file: Any, dtype: np.dtype) -> np.ndarray:
    import mmap

    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)

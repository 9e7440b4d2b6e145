"""`EdgeFile`: an edge list on disk, read in chunks."""

import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from workbench.core.edge_stream import CHUNK_EDGES
from workbench.core.errors import INT64_MAX, DataError, check_at_least, check_choice
from workbench.core.text_file import TextFile, columns_named, shown
from workbench.kernels.jit import compiled, compiled_inline

_DTYPES = {"int32": np.int32, "int64": np.int64}

_RAW = (".bin", ".raw")

Columns = tuple[int | str, ...]


class Edges(NamedTuple):
    """Consecutive edges: int64 [n] each, and float64 [n] if weights are read."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None


@dataclass(frozen=True)
class LayoutOptions:
    """What the caller says about a text.

    Args:
        columns: positions, from 0, or names of source, destination and, if it is to be read, weight; None: known by
            the header or the format, or there are two.
        skip: lines that are passed over before anything is recognised; None: none.
        base: the smallest id; None: 0, or that of the format.
    """

    columns: Columns | None = None
    skip: int | None = None
    base: int | None = None


@dataclass(frozen=True)
class EdgeText:
    """An edge list as text.

    Args:
        file: the text.
        options: what the caller says about it.
        limit: exclusive upper bound of the ids, which names the line of a larger one; None: that of the format.
    """

    file: TextFile
    options: LayoutOptions
    limit: int | None = None

    def chunks(self, size: int, *, weights: bool = False) -> Iterator[Edges]:
        """Yield `size` edges at a time, and at last the rest.

        Args:
            weights: read the weights, too: 1 where the format has none.
        """
        pieces, count = list[Edges](), 0
        for edges in self._blocks(weights):
            low = 0
            while low < len(edges.src):
                piece = cut(edges, low, low + size - count)
                pieces.append(piece)
                low, count = low + len(piece.src), count + len(piece.src)
                if count == size:
                    yield joined(pieces)
                    pieces, count = [], 0
        if count:
            yield joined(pieces)

    def num_nodes(self) -> int | None:
        """Return the number of nodes, if the format tells it."""
        begun = b""
        for block in self.file.blocks():
            begun += block  # comments may be longer than one
            layout = find_layout(self.file, _lines(self.file, begun), self.options)
            if layout is not None:
                return layout.num_nodes
        return None

    def _blocks(self, weights: bool) -> Iterator[Edges]:
        """Yield the edges of every block of the file."""
        begun, reader = b"", None
        for block in self.file.blocks():
            if reader is None:
                begun += block
                layout = find_layout(self.file, _lines(self.file, begun), self.options)
                if layout is None:
                    continue
                if isinstance(layout, MetisLayout):
                    if weights:
                        raise ValueError(
                            f"weights of METIS files, such as {self.file.path}, are not read; iterate over it"
                        )
                    reader = MetisReader(self.file, layout)
                else:
                    reader = _PairReader(self, layout, weights)
                block = begun[end_of_line(begun, layout.lines) :]
            yield reader.read(block)
        if reader is not None:
            reader.finish()
        else:
            self._check_empty(_lines(self.file, begun))

    def _check_empty(self, lines: list[str]) -> None:
        """Check a text without edges: a format with a size says so itself."""
        if (self.options.skip or 0) > len(lines):
            raise DataError(f"{self.file.path} has {len(lines)} lines, but skip is {self.options.skip}; pass fewer")
        find_layout(self.file, lines, self.options, whole=True)


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


METIS_SUFFIXES = (".graph", ".metis")

_MATRIX_SUFFIXES = (".mtx", ".mm")

_LOOK_AHEAD = 1000  # lines that are compared before the first edge is believed

_FEW = 50  # lines that tell the separator

_BANNER = re.compile(r"%%?MatrixMarket\b(.*)", re.IGNORECASE)

_KONECT = re.compile(r"%\s*(sym|asym|bip)(\s+\w+)?\s*$", re.IGNORECASE)

_OTHER_FORMATS = (  # by the first line that is neither blank nor a comment
    (re.compile(r"\*(vertices|network)\b", re.I), "a Pajek file", "networkx.read_pajek"),
    (re.compile(r"(graph\s*\[|graph$|creator\s+\")", re.I), "a GML file", "networkx.read_gml"),
    (re.compile(r"<\?xml|<graphml|<gexf", re.I), "an XML file (GraphML, GEXF)", "networkx.read_graphml"),
    (re.compile(r"(strict\s+)?(di)?graph\b.*\{", re.I), "a Graphviz file", "networkx.nx_agraph.read_dot"),
    (re.compile(r">>(graph6|sparse6|digraph6)<<"), "a graph6 or sparse6 file", "networkx.read_graph6"),
    (re.compile(r"(\{|\[)"), "a JSON file", "json.load and networkx.node_link_graph"),
    (re.compile(r"(c(\s.*)?|p\s+\w+\s+\d+\s+\d+.*)$"), "a DIMACS file", "its own reader, or drop the letters"),
    (re.compile(r"dl\s+n\s*=", re.I), "a UCINET file", "its own reader"),
)

ADJACENCY = (
    "if every line lists a node and its neighbours (an adjacency list), convert it: networkx.write_edgelist("
    "networkx.read_adjlist(path, create_using=networkx.DiGraph), new_path, data=False); if the line is a header or "
    "has sizes, pass skip="
)

_NAMES = (
    "pass skip= for a header, or columns= with the names or positions of source and destination; nodes with names "
    "need numbers first, such as those of pandas.factorize"
)


class Layout(NamedTuple):
    """How the lines of a text are read.

    Args:
        lines: lines before the first edge.
        separator: the character between fields; "": blanks and tabs.
        fields: columns of every line.
        source: position of the source among them.
        destination: position of the destination.
        weight: position of the weight; None: there is none.
        base: the smallest id.
        mirror: sign of the second direction of every entry off the diagonal; 0: it has one direction.
        num_nodes: if the format tells it.
        entries: if the format tells it.
        may_be_sizes: the first line may say how many nodes and edges there are.
    """

    lines: int
    separator: str
    fields: int
    source: int = 0
    destination: int = 1
    weight: int | None = None
    base: int = 0
    mirror: int = 0
    num_nodes: int | None = None
    entries: int | None = None
    may_be_sizes: bool = False


class MetisLayout(NamedTuple):
    """How a METIS file is read: line i lists the neighbours of node i, from 1.

    Args:
        lines: lines before that of the first node.
        num_nodes: number of nodes.
        entries: neighbours of all nodes, twice the number of edges.
        before: numbers before the first neighbour of a line: size and weights of the node.
        step: numbers per neighbour: 2 with weights of edges.
    """

    lines: int
    num_nodes: int
    entries: int
    before: int
    step: int


def find_layout(
    file: TextFile, lines: Sequence[str], options: LayoutOptions, *, whole: bool = False
) -> Layout | MetisLayout | None:
    """Return how a text is read, or None if there is no edge among its first lines.

    Args:
        lines: its first lines.
        options: what the caller says.
        whole: there are no more lines.
    """
    if lines and (banner := _BANNER.match(lines[0])):
        return matrix_market_layout(file, lines, banner[1].split(), options, whole)
    first = options.skip or 0
    while first < len(lines) and not _has_fields(lines[first]):
        first += 1
    if first < len(lines):
        return _Head(file, lines, first, options).layout()
    if whole and options.columns is None and (suffix := _suffix(file)) in (*METIS_SUFFIXES, *_MATRIX_SUFFIXES):
        raise DataError(f"{file.path} ends before the line with its sizes, which {suffix} files have; get it again")
    return None


@dataclass(frozen=True)
class _Head:
    """The first lines of a text without a banner; line `first`, from 0, is the first that is not a comment."""

    file: TextFile
    lines: Sequence[str]
    first: int
    options: LayoutOptions

    def layout(self) -> Layout | MetisLayout:
        line, suffix = self.lines[self.first].strip(), _suffix(self.file)
        for pattern, kind, remedy in _OTHER_FORMATS:
            if pattern.match(line):
                self._fail(f"is of {kind}, not an edge", f"read it with {remedy}, and write a line per edge")
        if self.options.columns is None and suffix in METIS_SUFFIXES:
            return self._metis()
        if self.options.columns is None and suffix in _MATRIX_SUFFIXES:
            raise DataError(
                f"{self.file.path}, line 1: {shown(self.lines[0])} is not the banner of Matrix Market, which tells "
                "whether the matrix is symmetric; add it, such as '%%MatrixMarket matrix coordinate real general', or "
                "pass skip= past the line of sizes, columns=(0, 1) and base=1"
            )
        konect = self._is_konect()
        numbers = self._row_numbers()
        separator = separator_of([self.lines[n] for n in numbers[:_FEW]])
        rows = [split(self.lines[n], separator) for n in numbers]
        return self._columns(rows, numbers, separator, konect)._replace(base=self.options.base or 0)

    def _fail(self, problem: str, remedy: str, number: int | None = None) -> NoReturn:
        number = self.first if number is None else number
        raise not_an_edge_list(self.file, number + 1, self.lines[number], problem, remedy)

    def _row_numbers(self) -> list[int]:
        """The first lines, from 0, that are neither blank nor comments."""
        found = (number for number in range(self.first, len(self.lines)) if _has_fields(self.lines[number]))
        return list(islice(found, _LOOK_AHEAD))

    def _is_konect(self) -> bool:
        match = next(filter(None, map(_KONECT.match, self.lines[: self.first])), None)
        if match and match[1].lower() == "bip":
            raise DataError(
                f"{self.file.path}, line 1: {shown(match[0])} is of a bipartite graph of KONECT, whose two sides are "
                "numbered alike; add the number of nodes of one side to the ids of the other, and drop the header"
            )
        if match and self.options.base is None:
            once = ", and each undirected edge is there once" if match[1].lower() == "sym" else ""
            raise DataError(
                f"{self.file.path}, line 1: {shown(match[0])} is the header of KONECT, where ids begin at 1{once}; "
                "pass base=1 (or base=0, if they do not)"
            )
        return match is not None

    def _columns(self, rows: list[list[str]], numbers: list[int], separator: str, konect: bool) -> Layout:
        header = self._has_header(rows, separator)
        names, data = (rows[0], rows[1:]) if header else (self._names_in_comment(separator), rows)
        if data and all(row[-1] == "" for row in data):  # every line ends with a separator
            data = [row[:-1] for row in data]
            names = names[:-1] if names and names[-1] == "" else names
        width = len(data[0]) if data else len(names)
        for number, row in zip(numbers[header:], data, strict=True):
            if len(row) != width:
                unbalanced = [n for n in numbers if n <= number and self.lines[n].count('"') % 2]
                if unbalanced:
                    self._fail("has a quote that does not end", "close it on the same line", unbalanced[0])
                self._fail(f"has {_count(len(row))}, but the lines before have {width}", ADJACENCY, number)
        if header and len(names) != width:
            self._fail(f"has {_count(len(names))}, but the lines below have {width}", _NAMES)
        names = names if len(names) == width else []
        layout = Layout(self.first + header, separator, width)
        if self.options.columns is not None:
            at = [self._position(column, names, width) for column in self.options.columns]
            return layout._replace(source=at[0], destination=at[1], weight=at[2] if len(at) > 2 else None)
        if at := ends_of(names):
            return layout._replace(source=at[0], destination=at[1])
        if width == 2 or konect or (width == 3 and data[0][2].startswith("{")):
            sizes = width == 2 and not header and not konect and self.options.skip is None
            return layout._replace(may_be_sizes=sizes)
        return self._fail(
            f"has {_count(width)}, and no header says which are source and destination",
            f"pass their positions, such as columns=(0, 1), but {ADJACENCY}",
        )

    def _has_header(self, rows: list[list[str]], separator: str) -> bool:
        """Whether the first line has the names of the columns; one that only may have them is refused."""
        row, columns = rows[0], self.options.columns
        if named := [column for column in columns or () if isinstance(column, str)]:
            return not set(named) <= set(self._names_in_comment(separator))
        if columns is None and ends_of(row):
            return True
        ends = [column for column in (columns or (0, 1))[:2] if isinstance(column, int)]
        numbers = [are_integers(row, [end]) for end in ends]
        if "" in row[:-1] and not (len(rows) > 1 and "" in rows[1][:-1]) and (columns is None or all(numbers)):
            self._fail(
                "looks like the header that pandas writes above an index",
                f"pass skip={self.first + 1}, and columns= with the positions of source and destination, from 0",
            )
        return columns is not None and not any(numbers) and len(rows) > 1 and are_integers(rows[1], ends)

    def _names_in_comment(self, separator: str) -> list[str]:
        """The names in the last comment before the first edge, as SNAP writes them."""
        comments = [line for line in self.lines[: self.first] if line.strip()]
        return split(comments[-1].lstrip("#% \t"), separator) if comments else []

    def _position(self, column: int | str, names: list[str], width: int) -> int:
        if isinstance(column, int):
            if column >= width:
                self._fail(f"has {_count(width)}, but columns= has position {column}", "positions begin at 0")
            return column
        if names.count(column) != 1:
            known = ", ".join(map(repr, names))
            self._fail(f"does not name one column {column!r} ({known})", "pass positions, from 0, in columns=")
        return names.index(column)

    def _metis(self) -> MetisLayout:
        numbers, suffix = self.lines[self.first].split(), _suffix(self.file)
        if not 2 <= len(numbers) <= 4 or not all(map(str.isdecimal, numbers)) or self.options.base is not None:
            self._fail(
                f"does not begin a METIS file ({suffix}) with its nodes, edges, form and weights per node",
                "pass columns=(0, 1) if the file is an edge list",
            )
        nodes, edges, form = int(numbers[0]), int(numbers[1]), (numbers[2] if len(numbers) > 2 else "").zfill(3)
        if len(form) > 3 or set(form) > set("01"):
            self._fail(
                f"has the form {form}, which METIS does not know: up to three digits, 0 or 1",
                "pass columns=(0, 1) if the file is an edge list",
            )
        per_node = int(numbers[3]) if len(numbers) > 3 else 1
        before = int(form[0]) + (per_node if form[1] == "1" else 0)
        return MetisLayout(self.first + 1, nodes, 2 * edges, before, 1 + int(form[2]))


def not_an_edge_list(file: TextFile, number: int, line: str | bytes, problem: str, remedy: str) -> DataError:
    """Return the error of a line."""
    return DataError(
        f"{file.path} is not an edge list (line {number}: {shown(line)} {problem}); every line must have two whole "
        f"numbers, source and destination: {remedy}"
    )


def _count(count: int) -> str:
    return f"{count} column" + "s" * (count != 1)


def _suffix(file: TextFile) -> str:
    suffixes = [s.lower() for s in file.path.suffixes]
    while suffixes and suffixes[-1] in (".gz", ".bz2", ".xz", ".zip"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


WHITESPACE = ""

COMMENTS = ("#", "%")

_SEPARATORS = (";", ",", "|", "\t")

_SOURCES = frozenset(("source", "src", "from", "u", "i", "row", "start", "citing", "follower", "1"))

_DESTINATIONS = frozenset(
    ("target", "dst", "dest", "destination", "to", "v", "j", "col", "column", "end", "cited", "followee", "2")
)

_FILLERS = frozenset(("node", "nodes", "id", "ids", "vertex", "idx", "index", "name"))

_INTEGER = re.compile(r'"?\s*[+-]?\d+(\.0*)?\s*"?(\s+[#%].*)?')


def _has_fields(line: str) -> bool:
    """Whether a line is neither blank nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith(COMMENTS)


def split(line: str, separator: str) -> list[str]:
    """Divide a line into its fields, without blanks around them; quoted fields may contain the separator."""
    if not separator:
        found = re.findall(r'"(?:[^"]|"")*"\S*|\{.*|\S+', line)
        end = next((i for i, field in enumerate(found) if field.startswith(COMMENTS)), len(found))
        return [_unquoted(field) for field in found[:end]]
    if '"' not in line:
        fields = line.split(separator)
    else:
        mark = re.escape(separator)
        fields = [m[1] for m in re.finditer(rf'(?:^|{mark})(\s*"(?:[^"]|"")*"[^{mark}]*|[^{mark}]*)', line)]
    return [_unquoted(field.strip()) for field in fields]


def _unquoted(field: str) -> str:
    return field[1:-1].strip() if len(field) > 1 and field[0] == field[-1] == '"' else field


def separator_of(rows: list[str]) -> str:
    """The character between two numbers of most of these lines; a tab only if names beside them have blanks."""

    def found(separator: str) -> int:
        fields = [split(row, separator) for row in rows]
        if separator == "\t" and not any(" " in field for row in fields for field in row):
            return 0
        return sum(sum(_INTEGER.fullmatch(field) is not None for field in row) > 1 for row in fields)

    best = max((*_SEPARATORS, WHITESPACE), key=found)  # the first of equals
    return best if found(best) else next((s for s in _SEPARATORS[:-1] if s in rows[0] and s in rows[-1]), WHITESPACE)


def ends_of(names: Sequence[str]) -> tuple[int, ...] | None:
    """Positions of the columns whose names are those of source and destination, if one each has such a name."""
    return columns_named(names, (_SOURCES, _DESTINATIONS), _FILLERS)


def are_integers(row: Sequence[str], columns: Sequence[int]) -> bool:
    return all(column < len(row) and _INTEGER.fullmatch(row[column]) for column in columns)


_BANNER_WORDS = (
    (("matrix",), "write the graph as a matrix"),
    (("coordinate",), "an array has no edges: write scipy.sparse.coo_array(a) with scipy.io.mmwrite"),
    (("real", "double", "integer", "unsigned-integer", "pattern"), "write the real part or the pattern"),
    (("general", "symmetric", "skew-symmetric", "hermitian"), "write a general matrix"),
)


def matrix_market_layout(
    file: TextFile, lines: Sequence[str], words: list[str], options: LayoutOptions, whole: bool
) -> Layout | None:
    """The layout of a matrix in coordinates: row and column are source and destination, ids begin at 1.

    Source: Boisvert, Pozo and Remington, "The Matrix Market exchange formats" (NISTIR 5935, 1996).
    """
    if options.columns is not None or options.skip is not None or options.base not in (None, 1):
        raise DataError(
            f"{file.path}, line 1: {shown(lines[0])} says how the file is to be read; omit columns=, skip= and base="
        )
    words = [word.lower() for word in words] + [""] * 4
    for word, (known, remedy) in zip(words, _BANNER_WORDS, strict=False):
        if word not in known:
            raise file.error(1, lines[0], f"has {word!r} where {' or '.join(known)} is needed; {remedy}")
    at = next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("%")), None)
    if at is None:
        if whole:
            raise DataError(f"{file.path} ends before the line with the size of the matrix; get it again")
        return None
    sizes = lines[at].split()
    if len(sizes) != 3 or not all(map(str.isdecimal, sizes)):
        raise file.error(at + 1, lines[at], "must be the size of the matrix: rows, columns and entries; get it again")
    rows, columns, entries = map(int, sizes)
    if rows != columns:
        raise file.error(
            at + 1,
            lines[at],
            "is the size of a rectangular matrix, whose rows and columns are different nodes; write a square matrix, "
            "in which columns are numbered after the rows",
        )
    weight = None if words[2] == "pattern" else 2
    mirror = {"general": 0, "skew-symmetric": -1}.get(words[3], 1)
    return Layout(
        at + 1, WHITESPACE, 2 + (weight is not None), 0, 1, weight, 1, mirror, num_nodes=rows, entries=entries
    )


_WEIGHT_BYTES = 48  # characters of a weight: float64 needs 24

_FEWEST_BYTES = 3  # of an edge: "0 1" at the end of a file


@dataclass
class _PairReader:
    """Reads lines with an edge each, and checks at the end what the format announced."""

    text: EdgeText
    layout: Layout
    weights: bool
    lines: int = 0
    entries: int = 0
    first: tuple[int, int] | None = None
    extremes: list[int] = field(default_factory=lambda: [INT64_MAX, -1])

    def __post_init__(self) -> None:
        self.lines = self.layout.lines
        if self.weights and self.layout.weight is None and self.layout.entries is None:
            raise ValueError(
                f"no column of {self.text.file.path} is known to have weights; pass it as the third of columns="
            )

    def read(self, block: bytes) -> Edges:
        layout, capacity = self.layout, len(block) // _FEWEST_BYTES + 1
        src, dst = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        column = layout.weight if self.weights and layout.weight is not None else -1
        texts = np.zeros((capacity if column >= 0 else 0, _WEIGHT_BYTES), np.uint8)
        at, count, lines, problem, seen = read_pairs(
            np.frombuffer(block, np.uint8),
            ord(layout.separator or "\0"),
            layout.fields,
            layout.source,
            layout.destination,
            column,
            layout.base,
            self._limit,
            src,
            dst,
            texts,
        )
        if problem:
            self._fail(self.lines + lines + 1, block[at : end_of_line(block, 1, at)], problem, seen)
        edges = Edges(src[:count], dst[:count], self._values(texts[:count], block) if self.weights else None)
        if edges.weight is None and self.weights:
            edges = edges._replace(weight=np.ones(count))
        self._count(edges)
        self.lines += lines
        return mirrored(edges, layout.mirror) if layout.mirror else edges

    def finish(self) -> None:
        layout, path = self.layout, self.text.file.path
        if layout.entries not in (None, self.entries):
            raise DataError(
                f"{path} has {self.entries:,} entries, but line {layout.lines} announces {layout.entries:,}; the file "
                "is incomplete or damaged: get it again"
            )
        if not layout.may_be_sizes or self.first is None:
            return
        (nodes, edges), (low, high) = self.first, self.extremes
        if edges == self.entries - 1 > 0 and nodes == (high if low == 1 else high + 1):
            raise not_an_edge_list(
                self.text.file,
                layout.lines + 1,
                f"{nodes} {edges}",
                f"is an edge, or says that there are {nodes:,} nodes and {edges:,} edges, as there are below it",
                f"pass skip={layout.lines + 1} if it is no edge, skip=0 if it is one",
            )

    @property
    def _limit(self) -> int:
        limits = [n for n in (self.text.limit, self.layout.num_nodes) if n is not None]
        return min(limits) if limits else INT64_MAX

    def _count(self, edges: Edges) -> None:
        """Remember what tells a line of sizes from an edge."""
        begin = 0
        if self.layout.may_be_sizes and len(edges.src):
            if self.first is None:
                self.first, begin = (int(edges.src[0]), int(edges.dst[0])), 1
            for ids in (edges.src[begin:], edges.dst[begin:]):
                if len(ids):
                    self.extremes = [min(self.extremes[0], int(ids.min())), max(self.extremes[1], int(ids.max()))]
        self.entries += len(edges.src)

    def _values(self, texts: np.ndarray, block: bytes) -> np.ndarray | None:
        """Convert the weights of a block, each as Python does."""
        if self.layout.weight is None:
            return None
        words = texts.reshape(-1).view(f"S{_WEIGHT_BYTES}")
        try:
            return words.astype(np.float64)
        except ValueError:
            bad = next(i for i, word in enumerate(words.tolist()) if not _is_float(word))
            lines = enumerate(_lines(self.text.file, block), start=self.lines + 1)
            rows = (row for row in lines if _has_fields(row[1]))
            raise self.text.file.error(
                *next(islice(rows, bad, None)),
                f"has no number in column {self.layout.weight + 1}, that of the weights; correct it, or pass columns= "
                "with the position of the weights as the third",
            ) from None

    def _fail(self, number: int, line: bytes, problem: int, seen: int) -> NoReturn:
        layout, file = self.layout, self.text.file
        if problem == LIMIT:
            ids = f"[{layout.base}, {layout.base + self._limit})"
            raise file.error(number, line, f"has the id {seen}, but those of {self._limit:,} nodes are in {ids}")
        if not _is_decodable(line, file.block_encoding):
            raise file.error(
                number, line, f"is not {file.block_encoding}; pass encoding=, or a text file if it is none"
            )
        has = f"has {seen} column{'s' * (seen != 1)}, but the lines before have {layout.fields}"
        problem_text, remedy = {
            WIDTH: (has, "the file is damaged here" if layout.entries is not None else ADJACENCY),
            NUMBER: (
                f"does not have a whole number in column {seen}",
                "numbers with a fraction or an exponent are not ids (numpy.savetxt needs fmt='%d'); a header needs "
                "skip= or columns=, and names need numbers first, such as those of pandas.factorize",
            ),
            NEGATIVE: (f"has an id below {layout.base} in column {seen}", self._low_remedy()),
            LARGE: (f"has an id above {LARGEST_ID} in column {seen}", "number the nodes from 0 without gaps"),
            QUOTE: (f"has a quote in column {seen} that does not end", "close it on the same line"),
            WEIGHT: (f"has no weight of at most {_WEIGHT_BYTES} characters in column {seen}", "write a number there"),
        }[problem]
        raise not_an_edge_list(file, number, line, problem_text, remedy)

    def _low_remedy(self) -> str:
        if self.layout.num_nodes is not None:
            return "ids of Matrix Market begin at 1: write the file with scipy.io.mmwrite"
        return "pass base=0 if the ids begin at 0" if self.layout.base else "number the nodes from 0"


def _lines(file: TextFile, text: bytes) -> list[str]:
    """The lines of a text, for whom bytes that are not its encoding do not matter."""
    decoded = text.decode(file.block_encoding, "backslashreplace")
    return [line.rstrip("\n") for line in io.StringIO(decoded, newline=None)]


def _is_decodable(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_float(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


_LINE_END = re.compile(rb"\r\n|\n|\r")


def end_of_line(text: bytes, count: int, begin: int = 0) -> int:
    """Where the line number `count`, from 1, ends."""
    if not count:
        return begin
    last = next(islice(_LINE_END.finditer(text, begin), count - 1, None), None)
    return len(text) if last is None else last.end()


def cut(edges: Edges, low: int, high: int) -> Edges:
    return Edges(*(None if values is None else values[low:high] for values in edges))  # type: ignore[arg-type]


def joined(pieces: list[Edges]) -> Edges:
    columns: Any = zip(*pieces, strict=True)
    return Edges(*(None if values[0] is None else np.concatenate(values) for values in columns))  # type: ignore[arg-type]


def mirrored(edges: Edges, sign: int) -> Edges:
    """Every edge, followed by its reverse unless it is a loop: the order does not depend on where chunks begin."""
    both = np.ones((len(edges.src), 2), bool)
    both[:, 1] = edges.src != edges.dst
    src = np.stack([edges.src, edges.dst], 1)[both]
    dst = np.stack([edges.dst, edges.src], 1)[both]
    weight = None if edges.weight is None else np.stack([edges.weight, sign * edges.weight], 1)[both]
    return Edges(src, dst, weight)


@dataclass
class MetisReader:
    """Reads lines with the neighbours of a node each."""

    file: TextFile
    layout: MetisLayout
    lines: int = 0
    node: int = 0
    entries: int = 0

    def __post_init__(self) -> None:
        self.lines = self.layout.lines

    def read(self, block: bytes) -> Edges:
        capacity = len(block) // 2 + 1
        src, dst = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        n, before, step = self.layout.num_nodes, self.layout.before, self.layout.step
        at, count, lines, self.node, bad = read_neighbours(
            np.frombuffer(block, np.uint8), self.node, n, before, step, src, dst
        )
        self.lines += lines
        if bad:
            raise not_an_edge_list(
                self.file,
                self.lines + 1,
                block[at : end_of_line(block, 1, at)],
                f"does not list neighbours from 1 to {n} of node {self.node + 1}, as METIS files do",
                "pass columns=(0, 1) if the file is an edge list",
            )
        self.entries += count
        return Edges(src[:count], dst[:count])

    def finish(self) -> None:
        found, said = (self.node, self.entries), (self.layout.num_nodes, self.layout.entries)
        if found != said:
            raise DataError(
                f"{self.file.path} lists {found[0]:,} nodes and {found[1]:,} neighbours, but line "
                f"{self.layout.lines} announces {said[0]:,} and {said[1]:,} (METIS: every edge twice); it is damaged, "
                "or an edge list, for which pass columns=(0, 1)"
            )


LARGEST_ID = INT64_MAX - 1  # the number of nodes fits, too

WIDTH, NUMBER, NEGATIVE, LARGE, LIMIT, QUOTE, WEIGHT = range(1, 8)
"""What is wrong with a line."""


@compiled_inline
def _is_end(c):
    return c == 10 or c == 13


@compiled_inline
def _after_end(text, i):
    """Where the next line begins, from a line end."""
    if i + 1 < len(text) and text[i] == 13 and text[i + 1] == 10:
        return i + 2
    return min(i + 1, len(text))


@compiled_inline
def _line_end(text, i):
    while i < len(text) and not _is_end(text[i]):
        i += 1
    return i


@compiled_inline
def _skip_blanks(text, i, separator):
    while i < len(text) and (text[i] == 32 or (text[i] == 9 and separator != 9)):
        i += 1
    return i


@compiled_inline
def _skip_field(text, i, separator):
    """Where a field ends: quoted ones may contain anything, and braces (networkx) the rest of the line; -1: no end."""
    n = len(text)
    if separator == 0 and text[i] == 123:
        return _line_end(text, i)
    if text[i] == 34:
        i += 1
        while i < n and not _is_end(text[i]) and text[i] != 34:
            i += 1
            while i + 1 < n and text[i] == 34 and text[i + 1] == 34:
                i += 2
        if i == n or text[i] != 34:
            return -1
    while i < n and not _is_end(text[i]):
        if text[i] == separator or (separator == 0 and (text[i] == 32 or text[i] == 9)):
            return i
        i += 1
    return i


@compiled_inline
def _whole_number(text, i, separator):
    """A whole number, perhaps quoted or with zeros behind a point: where it ends, the number, and what is wrong."""
    n = len(text)
    quoted = text[i] == 34
    if quoted:
        i = _skip_blanks(text, i + 1, separator)
    negative = i < n and text[i] == 45
    if i < n and (text[i] == 45 or text[i] == 43):
        i += 1
    begin, value, large = i, 0, False
    while i < n and 48 <= text[i] <= 57:
        digit = np.int64(text[i]) - 48
        large = large or value > (LARGEST_ID - digit) // 10
        if not large:
            value = value * 10 + digit
        i += 1
    if i == begin:
        return i, 0, NUMBER
    if i < n and text[i] == 46:
        i += 1
        while i < n and text[i] == 48:
            i += 1
    if quoted:
        i = _skip_blanks(text, i, separator)
        if i == n or text[i] != 34:
            return i, 0, NUMBER
        i += 1
    if i < n and not (_is_end(text[i]) or text[i] == 32 or text[i] == 9 or text[i] == separator):
        return i, 0, NUMBER
    if negative and (value or large):
        return i, 0, NEGATIVE
    return i, value, LARGE if large else 0


@compiled_inline
def _inside_quotes(text, begin, end):
    """Where the value of a field begins and ends, without the pair of quotes that may be around it."""
    if text[begin] == 34:
        last = end - 1
        while last > begin and (text[last] == 32 or text[last] == 9):
            last -= 1
        if last > begin and text[last] == 34:
            return begin + 1, last
    return begin, end


@compiled
def read_pairs(text, separator, fields, source, destination, weight, base, limit, src, dst, weights):
    """Read lines with an edge each.

    Returns the place and number of lines before the first bad line, and of edges; what is wrong with it, and what was
    seen: a column from 1, the number of columns, or an id.
    """
    n, at, lines, count = len(text), 0, 0, 0
    while at < n:
        i = _skip_blanks(text, at, separator)
        if i == n or _is_end(text[i]) or text[i] == 35 or text[i] == 37:  # blank, or a comment: # %
            i = _line_end(text, i)
            at = _after_end(text, i)
            lines += 1
            continue
        column, found, number, begin, missing = 0, 0, 0, i, False
        while True:
            i = _skip_blanks(text, i, separator)
            ended = i == n or _is_end(text[i])
            if separator == 0 and (ended or text[i] == 35 or text[i] == 37):
                break
            if ended:  # nothing between the last separator and the line end
                missing, column = True, column + 1
                break
            if column == source or column == destination:  # noqa: SIM109 (numba)
                i, number, problem = _whole_number(text, i, separator)
                if problem == 0 and number < base:
                    problem = NEGATIVE
                if problem:
                    return at, count, lines, problem, column + 1
                if number - base >= limit:
                    return at, count, lines, LIMIT, number
                if column == source:
                    src[count] = number - base
                if column == destination:
                    dst[count] = number - base
                found += 1
            else:
                begin = i
                i = _skip_field(text, i, separator)
                if i < 0:
                    return at, count, lines, QUOTE, column + 1
                if column == weight:
                    begin, end = _inside_quotes(text, begin, i)
                    if begin == end or end - begin > weights.shape[1]:
                        return at, count, lines, WEIGHT, column + 1
                    for k in range(begin, end):
                        weights[count, k - begin] = text[k]
            column += 1
            i = _skip_blanks(text, i, separator)
            if i == n or _is_end(text[i]) or text[i] == 35 or text[i] == 37:
                break
            if separator != 0:
                if text[i] != separator:
                    return at, count, lines, NUMBER, column
                i += 1
        if column != fields and not (missing and column - 1 == fields):
            return at, count, lines, WIDTH, column
        if found < 2:
            return at, count, lines, NUMBER, column
        count += 1
        i = _line_end(text, i)
        at = _after_end(text, i)
        lines += 1
    return at, count, lines, 0, 0


@compiled
def read_neighbours(text, node, num_nodes, before, step, src, dst):
    """Read lines of a METIS file, from that of `node`: place, edges, lines and nodes, and whether a line is bad."""
    n, at, lines, count = len(text), 0, 0, 0
    while at < n:
        i = at
        if text[i] == 37:
            at = _after_end(text, _line_end(text, i))
            lines += 1
            continue
        column = 0
        while True:
            i = _skip_blanks(text, i, 0)
            if i == n or _is_end(text[i]):
                break
            i, number, problem = _whole_number(text, i, 0)
            neighbour = column >= before and (column - before) % step == 0
            if problem or node >= num_nodes or (neighbour and (number < 1 or number > num_nodes)):
                return at, count, lines, node, True
            if neighbour:
                src[count], dst[count] = node, number - 1
                count += 1
            column += 1
        if (column < before and node < num_nodes) or (column > before and (column - before) % step):
            return at, count, lines, node, True
        node += node < num_nodes
        at = _after_end(text, i)
        lines += 1
    return at, count, lines, node, False

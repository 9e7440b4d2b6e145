"""What the first lines of an edge list as text say about the others: its format, its columns, where its edges begin.

Nothing is guessed that could be a wrong graph: what is not known is refused, with what to pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, NoReturn

from workbench.core.errors import DataError
from workbench.core.text_file import TextFile, shown

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


Columns = tuple[int | str, ...]


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
        file: for messages and its name.
        lines: its first lines.
        options: what the caller says.
        whole: there are no more lines.

    Raises:
        DataError: it is no edge list, or nobody says which of its columns are source and destination.
    """
    if lines and (banner := _BANNER.match(lines[0])):
        return matrix_market_layout(file, lines, banner[1].split(), options, whole)
    first = options.skip or 0
    while first < len(lines) and (not lines[first].strip() or lines[first].lstrip().startswith(COMMENTS)):
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
        found = (
            number
            for number in range(self.first, len(self.lines))
            if self.lines[number].strip() and not self.lines[number].lstrip().startswith(COMMENTS)
        )
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
                if (
                    odd := next((n for n in numbers if n <= number and self.lines[n].count('"') % 2), None)
                ) is not None:
                    self._fail("has a quote that does not end", "close it on the same line", odd)
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

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

_INTEGER = re.compile(r'"?\s*[+-]?\d+(\.0*)?\s*"?(\s+[#%].*)?')


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


def ends_of(names: Sequence[str]) -> tuple[int, int] | None:
    """Positions of the columns whose names are those of source and destination, if one each has such a name."""
    plain = [_plain(name) for name in names]
    at = [[i for i, name in enumerate(plain) if name in known] for known in (_SOURCES, _DESTINATIONS)]
    return (at[0][0], at[1][0]) if all(len(found) == 1 for found in at) else None


def _plain(name: str) -> str:
    """A name without the words that say nothing: "FromNodeId" is "from"; a number is no name."""
    words = () if _INTEGER.fullmatch(name) else map(str.lower, _WORDS.findall(name))
    return "".join(word for word in words if word not in _FILLERS)


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

"""What the first lines of an edge list as text say about the others: its format, its columns, where its edges begin.

Nothing is guessed that could be a wrong graph: what is not known is refused, with what to pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from workbench.core.edge_fields import COMMENTS, are_integers, ends_of, separator_of, split
from workbench.core.errors import DataError
from workbench.core.matrix_market import matrix_market_layout
from workbench.core.text_file import TextFile, shown
from workbench.core.text_layout import Layout, LayoutOptions, MetisLayout

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

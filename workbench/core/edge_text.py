"""The edges of a text in chunks: a kernel reads numbers; any line that is not an edge is an error with its number."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np

from workbench.core.edge_layout import (
    ADJACENCY,
    Layout,
    LayoutOptions,
    MetisLayout,
    find_layout,
    not_an_edge_list,
)
from workbench.core.errors import INT64_MAX, DataError
from workbench.core.text_file import TextFile
from workbench.kernels.jit import compiled, compiled_inline

_LINE_END = re.compile(rb"\r\n|\n|\r")
_WEIGHT_BYTES = 48  # characters of a weight: float64 needs 24
_LARGEST_ID = INT64_MAX - 1  # the number of nodes fits, too
_FEWEST_BYTES = 3  # of an edge: "0 1" at the end of a file
_WIDTH, _NUMBER, _NEGATIVE, _LARGE, _LIMIT, _QUOTE, _WEIGHT = range(1, 8)


class Edges(NamedTuple):
    """Consecutive edges: int64 [n] each, and float64 [n] if weights are read."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None


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
            size: edges per chunk.
            weights: read the weights, too: 1 where the format has none.

        Raises:
            DataError: a line is not an edge; the message has its number.
        """
        pieces, count = list[Edges](), 0
        for edges in self._blocks(weights):
            low = 0
            while low < len(edges.src):
                piece = _cut(edges, low, low + size - count)
                pieces.append(piece)
                low, count = low + len(piece.src), count + len(piece.src)
                if count == size:
                    yield _joined(pieces)
                    pieces, count = [], 0
        if count:
            yield _joined(pieces)

    def num_nodes(self) -> int | None:
        """Return the number of nodes, if the format tells it."""
        for block in self.file.blocks():
            layout = find_layout(self.file, _lines(self.file, block), self.options)
            return None if layout is None else layout.num_nodes
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
                    reader = _MetisReader(self, layout)
                else:
                    reader = _PairReader(self, layout, weights)
                block = begun[_end_of_line(begun, layout.lines) :]
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
        at, count, lines, problem, seen = _read_pairs(
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
            self._fail(self.lines + lines + 1, block[at : _end_of_line(block, 1, at)], problem, seen)
        edges = Edges(src[:count], dst[:count], self._values(texts[:count], block) if self.weights else None)
        if edges.weight is None and self.weights:
            edges = edges._replace(weight=np.ones(count))
        self._count(edges)
        self.lines += lines
        return _mirrored(edges, layout.mirror) if layout.mirror else edges

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
            rows = (row for row in lines if row[1].strip() and not row[1].lstrip().startswith(("#", "%")))
            raise self.text.file.error(
                *next(islice(rows, bad, None)),
                f"has no number in column {self.layout.weight + 1}, that of the weights; correct it, or pass columns= "
                "with the position of the weights as the third",
            ) from None

    def _fail(self, number: int, line: bytes, problem: int, seen: int) -> NoReturn:
        layout, file = self.layout, self.text.file
        if problem == _LIMIT:
            ids = f"[{layout.base}, {layout.base + self._limit})"
            raise file.error(number, line, f"has the id {seen}, but those of {self._limit:,} nodes are in {ids}")
        if not _is_decodable(line, file.block_encoding):
            raise file.error(
                number, line, f"is not {file.block_encoding}; pass encoding=, or a text file if it is none"
            )
        has = f"has {seen} column{'s' * (seen != 1)}, but the lines before have {layout.fields}"
        problem_text, remedy = {
            _WIDTH: (has, "the file is damaged here" if layout.entries is not None else ADJACENCY),
            _NUMBER: (
                f"does not have a whole number in column {seen}",
                "numbers with a fraction or an exponent are not ids (numpy.savetxt needs fmt='%d'); a header needs "
                "skip= or columns=, and names need numbers first, such as those of pandas.factorize",
            ),
            _NEGATIVE: (f"has an id below {layout.base} in column {seen}", self._low_remedy()),
            _LARGE: (f"has an id above {_LARGEST_ID} in column {seen}", "number the nodes from 0 without gaps"),
            _QUOTE: (f"has a quote in column {seen} that does not end", "close it on the same line"),
            _WEIGHT: (f"has no weight of at most {_WEIGHT_BYTES} characters in column {seen}", "write a number there"),
        }[problem]
        raise not_an_edge_list(file, number, line, problem_text, remedy)

    def _low_remedy(self) -> str:
        if self.layout.num_nodes is not None:
            return "ids of Matrix Market begin at 1: write the file with scipy.io.mmwrite"
        return "pass base=0 if the ids begin at 0" if self.layout.base else "number the nodes from 0"


@dataclass
class _MetisReader:
    """Reads lines with the neighbours of a node each."""

    text: EdgeText
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
        at, count, lines, self.node, bad = _read_neighbours(
            np.frombuffer(block, np.uint8), self.node, n, before, step, src, dst
        )
        self.lines += lines
        if bad:
            raise not_an_edge_list(
                self.text.file,
                self.lines + 1,
                block[at : _end_of_line(block, 1, at)],
                f"does not list neighbours from 1 to {n} of node {self.node + 1}, as METIS files do",
                "pass columns=(0, 1) if the file is an edge list",
            )
        self.entries += count
        return Edges(src[:count], dst[:count])

    def finish(self) -> None:
        found, said = (self.node, self.entries), (self.layout.num_nodes, self.layout.entries)
        if found != said:
            raise DataError(
                f"{self.text.file.path} lists {found[0]:,} nodes and {found[1]:,} neighbours, but line "
                f"{self.layout.lines} announces {said[0]:,} and {said[1]:,} (METIS: every edge twice); it is damaged, "
                "or an edge list, for which pass columns=(0, 1)"
            )


def _lines(file: TextFile, text: bytes) -> list[str]:
    """The lines of a text, for whom bytes that are not its encoding do not matter."""
    decoded = text.decode(file.block_encoding, "backslashreplace")
    return [line.rstrip("\n") for line in io.StringIO(decoded, newline=None)]


def _end_of_line(text: bytes, count: int, begin: int = 0) -> int:
    """Where the line number `count`, from 1, ends."""
    if not count:
        return begin
    last = next(islice(_LINE_END.finditer(text, begin), count - 1, None), None)
    return len(text) if last is None else last.end()


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


def _cut(edges: Edges, low: int, high: int) -> Edges:
    return Edges(*(None if values is None else values[low:high] for values in edges))  # type: ignore[arg-type]


def _joined(pieces: list[Edges]) -> Edges:
    columns: Any = zip(*pieces, strict=True)
    return Edges(*(None if values[0] is None else np.concatenate(values) for values in columns))  # type: ignore[arg-type]


def _mirrored(edges: Edges, sign: int) -> Edges:
    """Every edge, followed by its reverse unless it is a loop: the order does not depend on where chunks begin."""
    both = np.ones((len(edges.src), 2), bool)
    both[:, 1] = edges.src != edges.dst
    src = np.stack([edges.src, edges.dst], 1)[both]
    dst = np.stack([edges.dst, edges.src], 1)[both]
    weight = None if edges.weight is None else np.stack([edges.weight, sign * edges.weight], 1)[both]
    return Edges(src, dst, weight)


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
        large = large or value > (_LARGEST_ID - digit) // 10
        if not large:
            value = value * 10 + digit
        i += 1
    if i == begin:
        return i, 0, _NUMBER
    if i < n and text[i] == 46:
        i += 1
        while i < n and text[i] == 48:
            i += 1
    if quoted:
        i = _skip_blanks(text, i, separator)
        if i == n or text[i] != 34:
            return i, 0, _NUMBER
        i += 1
    if i < n and not (_is_end(text[i]) or text[i] == 32 or text[i] == 9 or text[i] == separator):
        return i, 0, _NUMBER
    if negative and (value or large):
        return i, 0, _NEGATIVE
    return i, value, _LARGE if large else 0


@compiled
def _read_pairs(text, separator, fields, source, destination, weight, base, limit, src, dst, weights):
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
                    problem = _NEGATIVE
                if problem:
                    return at, count, lines, problem, column + 1
                if number - base >= limit:
                    return at, count, lines, _LIMIT, number
                if column == source:
                    src[count] = number - base
                if column == destination:
                    dst[count] = number - base
                found += 1
            else:
                begin = i
                i = _skip_field(text, i, separator)
                if i < 0:
                    return at, count, lines, _QUOTE, column + 1
                if column == weight:
                    if i == begin or i - begin > weights.shape[1]:
                        return at, count, lines, _WEIGHT, column + 1
                    for k in range(begin, i):
                        weights[count, k - begin] = text[k]
            column += 1
            i = _skip_blanks(text, i, separator)
            if i == n or _is_end(text[i]) or text[i] == 35 or text[i] == 37:
                break
            if separator != 0:
                if text[i] != separator:
                    return at, count, lines, _NUMBER, column
                i += 1
        if column != fields and not (missing and column - 1 == fields):
            return at, count, lines, _WIDTH, column
        if found < 2:
            return at, count, lines, _NUMBER, column
        count += 1
        i = _line_end(text, i)
        at = _after_end(text, i)
        lines += 1
    return at, count, lines, 0, 0


@compiled
def _read_neighbours(text, node, num_nodes, before, step, src, dst):
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

"""The edges of a text in chunks: a kernel reads numbers; any line that is not an edge is an error with its number."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np

from workbench.core.edge_kernels import (
    LARGE,
    LARGEST_ID,
    LIMIT,
    NEGATIVE,
    NUMBER,
    QUOTE,
    WEIGHT,
    WIDTH,
    read_neighbours,
    read_pairs,
)
from workbench.core.edge_layout import ADJACENCY, Layout, LayoutOptions, MetisLayout, find_layout, not_an_edge_list
from workbench.core.errors import INT64_MAX, DataError
from workbench.core.text_file import TextFile

_WEIGHT_BYTES = 48  # characters of a weight: float64 needs 24

_FEWEST_BYTES = 3  # of an edge: "0 1" at the end of a file


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
            rows = (row for row in lines if row[1].strip() and not row[1].lstrip().startswith(("#", "%")))
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

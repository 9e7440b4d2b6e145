"""The banner and the size of a matrix in the exchange format of Matrix Market."""

from collections.abc import Sequence

from workbench.core.edge_fields import WHITESPACE
from workbench.core.errors import DataError
from workbench.core.text_file import TextFile, shown
from workbench.core.text_layout import Layout, LayoutOptions

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

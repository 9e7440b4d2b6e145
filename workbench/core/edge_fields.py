"""The fields of a line of an edge list: what separates them, and which names are those of source and destination."""

import re
from collections.abc import Sequence

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

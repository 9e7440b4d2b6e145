"""The lines of a file of triples: names, comments, headers, and lines that are none of these."""

import csv
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from workbench.core.errors import DataError, check_at_least
from workbench.core.text_file import TextFile, shown

_QUOTING = (",", ";", "|")  # in tables of these, names that contain the separator are quoted

_HEADS = frozenset(("head", "h", "subject", "subj", "s", "source", "src", "from", "start", "left", "1", "e1"))
_RELATIONS = frozenset(
    ("relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "type", "label", "relationship", "edgetype")
)
_RELATIONS |= {"relationtype", "relationlabel", "edgelabel", "link", "linktype", "attribute", "verb"}
_TAILS = frozenset(("tail", "t", "object", "obj", "o", "target", "dst", "to", "end", "right", "2", "e2", "destination"))
_FILLERS = frozenset(("id", "name", "entity", "node", "uri", "iri", "index", "concept"))
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True)
class TripleForm:
    """How the lines of all files are read."""

    separator: str
    columns: tuple[int | str, ...] | None
    skip: int | None
    encoding: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or not self.separator:
            raise ValueError(f'separator is {self.separator!r}; it must be text, such as "\\t", "," or " "')
        if self.skip is not None:
            check_at_least("skip", self.skip, 0)
        if self.columns is None:
            return
        if len(self.columns) != 3 or len(set(self.columns)) < 3 or len({type(c) is str for c in self.columns}) > 1:
            raise ValueError(
                f"columns is {self.columns!r}; it must be three positions, or names, of head, relation, tail"
            )
        for column in self.columns:
            if not isinstance(column, str):
                check_at_least("columns", column, 0)
        object.__setattr__(self, "columns", tuple(c if isinstance(c, str) else int(c) for c in self.columns))

    def fields(self, line: str) -> list[str]:
        """Divide a line; a separator at its end is not one more field."""
        if self.separator == " ":
            return line.split()
        if '"' in line and self.separator in _QUOTING:
            fields = next(csv.reader([line], delimiter=self.separator, skipinitialspace=True, strict=True))
        else:
            fields = line.split(self.separator)
        fields = [part.strip() for part in fields]
        return fields[:-1] if self.columns is None and len(fields) > 3 and not fields[-1] else fields


@dataclass(frozen=True)
class TripleFile:
    """The triples of one file."""

    file: TextFile
    form: TripleForm

    def triples(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of every line with a triple, and head, relation and tail."""
        rows = self._rows()
        first = next(rows, None)
        if first is None:
            return
        number, line, fields = first
        columns = self._header(number, line, fields)
        if columns is None:
            columns = self._given_columns()
            if len(fields) <= max(columns) or (self.form.columns is None and len(fields) != 3):
                self._fail(number, line, fields, first=True)
            yield number, self._names(number, line, fields, columns)
        count = len(fields)
        for number, line, fields in rows:
            if len(fields) != count:
                self._fail(number, line, fields, count=count)
            yield number, self._names(number, line, fields, columns)

    def _rows(self) -> Iterator[tuple[int, str, list[str]]]:
        """Yield the number, the text and the fields of every line that is neither blank nor a comment."""
        begun, skip = False, self.form.skip
        for number, line in self.file.lines():
            if number <= (skip or 0):
                continue
            line = line.lstrip("\ufeff")
            if not line.strip():
                continue
            try:
                fields = self.form.fields(line)
            except csv.Error as error:
                raise self.file.error(number, line, f"has a quote that does not end ({error}); correct it") from None
            if line.startswith("#") and self._is_comment(number, line, fields, begun):
                continue
            begun = True
            yield number, line, fields

    def _is_comment(self, number: int, line: str, fields: list[str], begun: bool) -> bool:
        if len(fields) == 1:
            return True
        if begun or self.form.skip is not None:
            return False
        if len(fields) != 3 or not all(fields):
            return True
        if not line[1:2].isspace():
            return False
        if _roles(self.form.fields(line[1:].strip())) is None:
            self._warn(number, line, "is taken for a comment; pass skip=0 if it is a triple")
        return True

    def _header(self, number: int, line: str, fields: list[str]) -> tuple[int, ...] | None:
        """Return the positions of head, relation and tail if the first line is a header."""
        columns = self.form.columns
        if columns and isinstance(columns[0], str):
            if any(fields.count(str(column)) != 1 for column in columns):
                raise self.file.error(number, line, f"does not name each of {columns} once; pass positions in columns=")
            return tuple(fields.index(str(column)) for column in columns)
        roles = _roles(fields) if self.form.skip is None else None
        if roles is None:
            return None
        others = [names for row, _, names in self._rows() if row != number and len(names) == len(fields)]
        used = {names[roles[1]] for names in others}
        if all(len(fields[role]) < 3 for role in roles):  # "e1", "h" may be names: a header's are in no other line
            used.update(name for names in others for name in names)
        if not others or not used.isdisjoint(fields[role] for role in roles):
            return None
        positions = roles if columns is None else self._given_columns()
        self._warn(
            number,
            line,
            f"looks like a header and is skipped (head, relation and tail are columns {positions}, from 0); pass "
            f"skip={number} if it is one, skip=0 if it is a triple",
        )
        return positions

    def _given_columns(self) -> tuple[int, ...]:
        return tuple(column for column in self.form.columns or () if isinstance(column, int)) or (0, 1, 2)

    def _names(self, number: int, line: str, fields: list[str], columns: tuple[int, ...]) -> list[str]:
        names = [fields[column] for column in columns]
        if not all(names):
            self._fail(number, line, fields)
        return names

    def _fail(self, number: int, line: str, fields: list[str], *, first: bool = False, count: int = 3) -> NoReturn:
        """Refuse a line without three names, or without as many columns as the lines before."""
        given, remedy = self.form.separator, ""
        if len(fields) == 1 and (other := self._other_separator(line)):
            remedy = f"; pass separator={json.dumps(other)}"
        elif first and len(fields) > 3 and self.form.columns is None:
            remedy = "; pass columns= with the positions of head, relation and tail, from 0"
        elif first:
            remedy = f"; pass skip={number} if it is no triple"
            if fields[0].isdecimal():
                remedy += ' (files "…2id.txt" of OpenKE: separator=" ", columns=(0, 2, 1): head, tail, relation)'
        must = "must have three: head, relation, tail"
        if count != 3 or self.form.columns is not None:
            most = max(count, 1 + max(self._given_columns()))
            must = f"must have {most} columns, three with names: head, relation, tail"
        raise DataError(
            f"{self.file.path}, line {number}: {shown(line)} has {sum(map(bool, fields))} names between {given!r}; it "
            f"{must}{remedy}"
        )

    def _other_separator(self, line: str) -> str | None:
        """A separator that divides a line into three names."""
        for separator in ("\t", ",", ";", "|", " "):
            try:
                if separator != self.form.separator and len(TripleForm(separator, None, None, None).fields(line)) == 3:
                    return separator
            except csv.Error:
                continue
        return None

    def _warn(self, number: int, line: str, text: str) -> None:
        warnings.warn(f"{self.file.path}, line {number}: {shown(line)} {text}", stacklevel=6)


def _roles(fields: Iterable[str]) -> tuple[int, int, int] | None:
    """Positions of head, relation and tail among the names of a header; None: these are no such names."""
    plain = [_plain(name) for name in fields]
    at = [[i for i, name in enumerate(plain) if name in known] for known in (_HEADS, _RELATIONS, _TAILS)]
    if len(plain) < 3 or any(len(found) != 1 for found in at):
        return None
    return at[0][0], at[1][0], at[2][0]


def _plain(name: str) -> str:
    if name.isdecimal():
        return ""
    return "".join(word for word in map(str.lower, _WORDS.findall(name)) if word not in _FILLERS)

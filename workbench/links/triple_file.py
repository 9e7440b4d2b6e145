"""`read_knowledge_graph`: a knowledge graph from text files with a triple of names per line."""

import csv
import json
import os
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

import torch
from torch import Tensor

from workbench.core.errors import DataError, check_at_least, check_choice, check_seed
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.text_file import TextFile, columns_named, shown
from workbench.links.knowledge_graph import KnowledgeGraph

_PathLike = str | os.PathLike[str]

_Names = dict[str, int]

_Triple = tuple[int, int, int]

_Policy = Literal["refuse", "keep", "drop"]

_POLICIES = ("refuse", "keep", "drop")

_FEW = 10  # triples, with fewer of which a name that is used once says nothing


def read_knowledge_graph(
    train: _PathLike,
    *,
    valid: _PathLike | None = None,
    test: _PathLike | None = None,
    held_out: float = 0.0,
    unseen: _Policy = "refuse",
    overlap: _Policy = "refuse",
    separator: str = "\t",
    columns: Sequence[int | str] | None = None,
    skip: int | None = None,
    encoding: str | None = None,
    name: str | None = None,
    seed: int = 0,
) -> KnowledgeGraph:
    """Read triples of names from text files, plain or compressed: head, relation, tail, separated by tabs.

    Entities and relations are numbered in order of first appearance. Blank lines are passed over, and so are lines
    before the first triple that begin with `#` and do not have three names, or have a blank behind it; a name may begin
    with `#`. Repetitions of a triple are skipped, with a warning. `repr` of the knowledge graph says what `unseen` and
    `overlap` kept or dropped.

    Args:
        train: the file of the training triples.
        valid: the file of the validation triples; None: none.
        test: the file of the test triples; None: none.
        held_out: without `valid` and `test`, the share of the triples, from 0 to 0.5, that each of them gets at random;
            fewer where every entity and relation would not remain among the training triples.
        unseen: what becomes of triples of `valid` and `test` with names that no training triple has. "keep": their
            entities and relations are numbered after the others, and are candidates like all others, as in published
            results of FB15k-237 and WN18RR; "drop": the triples are left out, with a warning.
        overlap: what becomes of triples of `valid` and `test` that are in an earlier file, a leak: "keep" them in both,
            or "drop" them from the later one, with a warning.
        separator: between the names of a line; " " is any number of blanks and tabs. Names in quotes may contain a
            comma, semicolon or bar that is the separator.
        columns: positions, from 0, or names in the header, of head, relation and tail; None: lines have these three
            in this order, or a header says another.
        skip: lines at the beginning of each file that are not read; all others are triples then. None: a header that
            is recognised by its names ("head", "relation", "tail", …) is skipped, with a warning.
        encoding: of the files; None: UTF-8, or that of a file's byte order mark.
        name: of the knowledge graph; None: that of the training file.
        seed: of the held-out triples.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: a line without three names, or what `unseen` and `overlap` refuse; the message names file and line.
        ValueError: `held_out` is out of range, or given with files; another argument is out of range; or no triple.

    Warns:
        UserWarning: a file has triples more than once, or what looks like a header; or triples were dropped.
    """
    if not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out is {held_out!r}; it must be a share from 0 to 0.5")
    if held_out and not (valid is None and test is None):
        raise ValueError("held_out is given with files of held-out triples; pass one or the other")
    check_choice("unseen", unseen, _POLICIES)
    check_choice("overlap", overlap, _POLICIES)
    seed = check_seed(seed)
    form = TripleForm(separator, None if columns is None else tuple(columns), skip, encoding)
    paths = {
        part: Path(path) for part, path in (("train", train), ("valid", valid), ("test", test)) if path is not None
    }
    for path in paths.values():
        TextFile(path, encoding)
    reader = _Reader(form, unseen, overlap)
    parts = {part: reader.read(part, path) for part, path in paths.items()}
    if not len(parts["train"]):
        raise ValueError(f"{train} has no triple; write head, relation and tail into a line each")
    triples = [parts.get(part, parts["train"][:0]) for part in ("train", "valid", "test")]
    if held_out:
        triples = _split(triples[0], held_out, seed)
    return KnowledgeGraph.build(
        *triples,
        num_entities=len(reader.entities),
        num_relations=len(reader.relations),
        name=Path(train).name.split(".")[0] if name is None else name,
        entity_names=list(reader.entities),
        relation_names=list(reader.relations),
        notes=tuple(reader.notes),
    )


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


@dataclass
class _Reader:
    """Numbers the names of all files: those of training first."""

    form: TripleForm
    unseen: _Policy
    overlap: _Policy
    entities: _Names = field(default_factory=_Names)
    relations: _Names = field(default_factory=_Names)
    known: dict[_Triple, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trained: tuple[int, int] = (0, 0)

    def read(self, part: str, path: Path) -> Tensor:
        """Read the triples of one file, int64 [n, 3]."""
        found, places = list[_Triple](), list[int]()
        own, repeated = dict[_Triple, int](), list[tuple[int, int]]()
        for line, (head, relation, tail) in TripleFile(TextFile(path, self.form.encoding), self.form).triples():
            triple = (
                self.entities.setdefault(head, len(self.entities)),
                self.relations.setdefault(relation, len(self.relations)),
                self.entities.setdefault(tail, len(self.entities)),
            )
            if triple in own:
                repeated.append((line, own[triple]))
                continue
            own[triple] = line
            found.append(triple)
            places.append(line)
        if repeated:
            line, first = repeated[0]
            warnings.warn(
                f"{len(repeated)} triples occur again and are skipped; the first: {path}, line {line} repeats {path}, "
                f"line {first}",
                stacklevel=4,
            )
        triples = torch.tensor(found, dtype=torch.int64).reshape(-1, 3)
        self._check_first(path, triples, places)
        kept = torch.ones(len(triples), dtype=torch.bool)
        if part == "train":
            self.trained = len(self.entities), len(self.relations)
        else:
            kept = self._seen(part, path, triples, places) & self._new(part, path, triples, places)
            if self.unseen == "drop":
                self._forget()
        for triple, line, stays in zip(found, places, kept.tolist(), strict=True):
            if stays:
                self.known.setdefault(triple, f"{path}, line {line}")
        return triples[kept]

    def _seen(self, part: str, path: Path, triples: Tensor, places: list[int]) -> Tensor:
        """Which triples remain of those with names that training lacks."""
        limits = torch.tensor([self.trained[0], self.trained[1], self.trained[0]])
        new = triples >= limits
        bad = new.any(1)
        if not bool(bad.any()):
            return ~bad
        count = int(bad.sum())
        entities = len(triples[:, [0, 2]][new[:, [0, 2]]].unique())
        relations = len(triples[:, 1][new[:, 1]].unique())
        summary = (
            f"{count:,} of {len(triples):,} triples of {part} have names that training lacks ({entities:,} entities, "
            f"{relations:,} relations)"
        )
        if self.unseen == "refuse":
            row, column = new.nonzero()[0].tolist()
            names = self.relations if column == 1 else self.entities
            value = next(name for name, number in names.items() if number == int(triples[row, column]))
            raise DataError(
                f"{path}, line {places[row]}: no training triple has the {'relation' if column == 1 else 'entity'} "
                f'{value!r}; {summary}: pass unseen="keep" to rank them as published results do, or unseen="drop" to '
                f"leave them out{_or_header(places[row])}"
            )
        return self._decided(self.unseen, bad, summary)

    def _new(self, part: str, path: Path, triples: Tensor, places: list[int]) -> Tensor:
        """Which triples remain of those that are in an earlier file."""
        earlier = [self.known.get((head, relation, tail)) for head, relation, tail in triples.tolist()]
        bad = torch.tensor([place is not None for place in earlier], dtype=torch.bool)
        if not bool(bad.any()):
            return ~bad
        summary = f"{int(bad.sum()):,} of {len(triples):,} triples of {part} are in an earlier file"
        if self.overlap == "refuse":
            row = int(bad.nonzero()[0, 0])
            raise DataError(
                f'{path}, line {places[row]} is a triple of {earlier[row]}; {summary}, a leak: pass overlap="drop" to '
                f'remove them from {part}, or overlap="keep"{_or_header(places[row])}'
            )
        return self._decided(self.overlap, bad, summary)

    def _decided(self, policy: _Policy, bad: Tensor, summary: str) -> Tensor:
        """Note what was kept or dropped, and return which triples remain."""
        self.notes.append(f"{summary}: {'kept' if policy == 'keep' else 'dropped'}")
        if policy == "keep":
            return torch.ones_like(bad)
        warnings.warn(self.notes[-1], stacklevel=6)
        return ~bad

    def _forget(self) -> None:
        """Remove the names that only dropped triples have."""
        for names, count in zip((self.entities, self.relations), self.trained, strict=True):
            for name in list(names)[count:]:
                del names[name]

    def _check_first(self, path: Path, triples: Tensor, places: list[int]) -> None:
        """Warn of a first line whose names no other line has, while all other relations have several triples."""
        if len(triples) <= _FEW or self.form.skip is not None:
            return
        head, relation, tail = triples[0].tolist()
        ends, others = triples[1:, [0, 2]], triples[1:, 1]
        if bool((others == relation).any()) or bool(((ends == head) | (ends == tail)).any()):
            return
        if int(others.unique(return_counts=True)[1].min()) > 1 and relation >= self.trained[1]:
            warnings.warn(
                f"{path}, line {places[0]} may be a header, because no other line has its names; it is read as a "
                f"triple: pass skip={places[0]} if it is a header, skip=0 if not",
                stacklevel=4,
            )


def _or_header(line: int) -> str:
    return "; if line 1 is a header, pass skip=1" if line == 1 else ""


def _split(triples: Tensor, held_out: float, seed: int) -> list[Tensor]:
    """Move triples to validation and test whose names all remain in other training triples."""
    wanted = 2 * int(held_out * len(triples))
    order = permutation(stream(seed, Purpose.SPLIT), len(triples))
    entities, relations = triples[:, [0, 2]].flatten().bincount().tolist(), triples[:, 1].bincount().tolist()
    chosen: list[int] = []
    for i in order.tolist():
        head, relation, tail = triples[i].tolist()
        if len(chosen) < wanted and min(entities[head], entities[tail], relations[relation]) > 1 + (head == tail):
            chosen.append(i)
            entities[head] -= 1
            entities[tail] -= 1
            relations[relation] -= 1
    kept = torch.ones(len(triples), dtype=torch.bool)
    kept[chosen] = False
    held = triples[torch.tensor(chosen, dtype=torch.int64)]
    return [triples[kept], held[::2], held[1::2]]


_QUOTING = (",", ";", "|")  # in tables of these, names that contain the separator are quoted

_HEADS = frozenset(("head", "h", "subject", "subj", "s", "source", "src", "from", "start", "left", "1", "e1"))

_RELATIONS = frozenset(
    ("relation", "rel", "r", "predicate", "pred", "p", "property", "edge", "type", "label", "relationship", "edgetype")
    + ("relationtype", "relationlabel", "edgelabel", "link", "linktype", "attribute", "verb")
)

_TAILS = frozenset(("tail", "t", "object", "obj", "o", "target", "dst", "to", "end", "right", "2", "e2", "destination"))

_FILLERS = frozenset(("id", "name", "entity", "node", "uri", "iri", "index", "concept"))


@dataclass(frozen=True)
class TripleFile:
    """The triples of one file."""

    file: TextFile
    form: TripleForm

    def triples(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of every line with a triple, and head, relation and tail; the file is closed on an error."""
        with closing(self._rows()) as rows:
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

    def _rows(self) -> Generator[tuple[int, str, list[str]]]:
        """Yield the number, the text and the fields of every line that is neither blank nor a comment."""
        begun, skip = False, self.form.skip
        with closing(self.file.lines()) as lines:
            for number, line in lines:
                if number <= (skip or 0):
                    continue
                line = line.lstrip("\ufeff")
                if not line.strip():
                    continue
                try:
                    fields = self.form.fields(line)
                except csv.Error as error:
                    raise self.file.error(
                        number, line, f"has a quote that does not end ({error}); correct it"
                    ) from None
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


def _roles(fields: Sequence[str]) -> tuple[int, ...] | None:
    """Positions of head, relation and tail among the names of a header; None: these are no such names."""
    return columns_named(fields, (_HEADS, _RELATIONS, _TAILS), _FILLERS)

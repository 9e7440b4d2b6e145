"""`read_knowledge_graph`: a knowledge graph from text files with a triple of names per line."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from workbench.core.errors import DataError, check_choice, check_seed
from workbench.core.randomness import Purpose, permutation, stream
from workbench.core.text_file import TextFile
from workbench.links.knowledge_graph import KnowledgeGraph
from workbench.links.triple_lines import TripleFile, TripleForm

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

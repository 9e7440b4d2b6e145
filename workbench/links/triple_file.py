"""`read_knowledge_graph`: a knowledge graph from text files with a triple of names per line."""

import gzip
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from workbench.core.errors import DataError, check_seed
from workbench.core.randomness import Purpose, permutation, stream
from workbench.links.knowledge_graph import KnowledgeGraph

_PathLike = str | os.PathLike[str]
_Names = dict[str, int]


def read_knowledge_graph(
    train: _PathLike,
    *,
    valid: _PathLike | None = None,
    test: _PathLike | None = None,
    held_out: float = 0.0,
    separator: str = "\t",
    name: str | None = None,
    seed: int = 0,
) -> KnowledgeGraph:
    """Read triples of names from text files (UTF-8, `.gz` if compressed): head, relation, tail, separated by tabs.

    Entities and relations are numbered in order of first appearance. Empty lines and lines that begin with `#` are
    skipped, and so are repetitions of a triple, with a warning.

    Args:
        train: the file of the training triples.
        valid: the file of the validation triples; None: none.
        test: the file of the test triples; None: none.
        held_out: without `valid` and `test`, the share of the triples, from 0 to 0.5, that each of them gets at random;
            fewer where every entity and relation would not remain among the training triples.
        separator: between the three names of a line.
        name: of the knowledge graph; None: that of the training file.
        seed: of the held-out triples.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: a line without three names, or in `valid` or `test` a name that no training triple has, or a triple
            that is in an earlier file; the message names file and line.
        ValueError: `held_out` is out of range, or given with files; or no triple at all.

    Warns:
        UserWarning: a file has triples more than once.
    """
    if not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out is {held_out!r}; it must be a share from 0 to 0.5")
    if held_out and not (valid is None and test is None):
        raise ValueError("held_out is given with files of held-out triples; pass one or the other")
    entities, relations, known = _Names(), _Names(), dict[tuple[int, int, int], str]()
    parts = [
        _read(path, separator, entities, relations, known, new_names=number == 0)
        for number, path in enumerate((train, valid, test))
    ]
    if not len(parts[0]):
        raise ValueError(f"{train} has no triple; write head, relation and tail into a line each")
    if held_out:
        parts = _split(parts[0], held_out, check_seed(seed))
    return KnowledgeGraph.build(
        *parts,
        num_entities=len(entities),
        num_relations=len(relations),
        name=Path(train).name.split(".")[0] if name is None else name,
        entity_names=list(entities),
        relation_names=list(relations),
    )


def _read(
    path: _PathLike | None,
    separator: str,
    entities: _Names,
    relations: _Names,
    known: dict[tuple[int, int, int], str],
    *,
    new_names: bool,
) -> Tensor:
    """Read the triples of one file, int64 [n, 3]; `known` maps every triple so far to its place."""
    found: list[tuple[int, int, int]] = []
    repeated: list[str] = []
    for place, names in _lines(path, separator):
        columns = zip(names, (entities, relations, entities), ("entity", "relation", "entity"), strict=True)
        head, relation, tail = (_number(value, ids, kind, place, new_names) for value, ids, kind in columns)
        triple = head, relation, tail
        if triple not in known:
            known[triple] = place
            found.append(triple)
        elif known[triple].startswith(f"{path}, "):
            repeated.append(f"{place} repeats {known[triple]}")
        else:
            raise DataError(f"{place} is a triple of {known[triple]}; remove it from one of the files")
    if repeated:
        warnings.warn(f"{len(repeated)} triples occur again and are skipped; the first: {repeated[0]}", stacklevel=3)
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def _lines(path: _PathLike | None, separator: str) -> Iterator[tuple[str, list[str]]]:
    """The place and the three names of every line with a triple."""
    if path is None:
        return
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file; pass the path of a file with a triple per line")
    opened = gzip.open if Path(path).suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            names = [part.strip() for part in line.rstrip("\r\n").split(separator)]
            if len(names) != 3 or not all(names):
                raise DataError(
                    f"{path}, line {number}: {line.strip()[:80]!r} has {sum(map(bool, names))} names between "
                    f"{separator!r}; it must have three: head, relation, tail"
                )
            yield f"{path}, line {number}", names


def _number(value: str, ids: _Names, kind: str, place: str, new_names: bool) -> int:
    if value not in ids and not new_names:
        raise DataError(f"{place}: no training triple has the {kind} {value!r}; add one, or remove this line")
    return ids.setdefault(value, len(ids))


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

"""Finds the definition that a mutation is planted in, by name and by a piece of its source, wherever it stands."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """A fault to plant.

    Args:
        name: what is wrong then, in a few words.
        definition: name of the function or class ("Class.method") that contains the piece.
        piece: source that is replaced; exactly one definition of this name contains it, once.
        planted: what it is replaced by.
        tests: names of the test files that run first, wherever they are; those of the package run if these pass.
    """

    name: str
    definition: str
    piece: str
    planted: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a piece of source is.

    Args:
        file: the file.
        at: position of its first character.
    """

    file: Path
    at: int


def places(mutations: tuple[Mutation, ...], package: Path) -> dict[Mutation, list[Place]]:
    """Find the pieces of some mutations in the definitions of their names.

    Args:
        mutations: the mutations.
        package: folder of the library.

    Returns:
        All places of each; a mutation applies if there is exactly one.
    """
    found: dict[Mutation, list[Place]] = {mutation: [] for mutation in mutations}
    wanted: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        wanted.setdefault(mutation.definition, []).append(mutation)
    for file in sorted(package.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for name, node in _definitions(ast.parse(text)):
            begin, source = _source(lines, node)
            for mutation in wanted.get(name, ()):
                offsets = [i for i in range(len(source)) if source.startswith(mutation.piece, i)]
                found[mutation] += [Place(file, begin + offset) for offset in offsets]
    return found


def planted(mutation: Mutation, place: Place) -> str:
    """The text of a file with a mutation.

    Raises:
        SyntaxError: it is no Python.
    """
    text = place.file.read_text(encoding="utf-8")
    text = text[: place.at] + mutation.planted + text[place.at + len(mutation.piece) :]
    ast.parse(text)
    return text


def _definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions and classes outside of functions, by their qualified names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.")


def _source(lines: list[str], node: ast.AST) -> tuple[int, str]:
    """Where the lines of a definition begin, and their text."""
    first, last = node.lineno - 1, node.end_lineno  # pyright: ignore[reportAttributeAccessIssue]
    return sum(map(len, lines[:first])), "".join(lines[first:last])

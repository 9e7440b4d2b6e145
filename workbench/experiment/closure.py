"""Import closures: the code that decides a point's rows is what its `run` reaches, and nothing else.

In a figure's module, only the definitions that `run` and `Config` reach count; those that draw and check do not. Their
imports are followed: in other modules of experiments again to the definitions that are used, in the library to whole
modules and everything that these import, lazy imports included. Attributes of the library itself (`wb.Graph`) lead to
the modules that define them. Comments, docstrings, layout and imports for type checkers do not count.
"""

import ast
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import workbench

_FIGURES = "experiments"
_LIBRARY = Path(workbench.__file__).resolve().parent
READ_AT = time.time()
"""Since when this process has read the library's files, in seconds since 1970: it does not see later edits."""

_EFFECTS = "<module>"
_SHORT = 12  # hexadecimal digits

Target = tuple[str, str | None]
"""A module, and the name that is used of it; None: the module itself."""


def closure(file: Path, names: Iterable[str]) -> dict[str, str]:
    """Digests of the code that some definitions of a figure's module reach.

    Args:
        file: `…/experiments/PAPER/FIGURE.py`.
        names: of definitions in the file, such as "run" and "Config".

    Returns:
        sha256 by module ("workbench.core.graph") or definition ("experiments.betty.fig11.run"), sorted by name.
    """
    found: dict[str, str] = {}
    paper, figures = file.resolve().parent.name, file.resolve().parents[1]
    waiting: list[Target] = [(f"{_FIGURES}.{paper}.{file.stem}", name) for name in names]
    seen: set[Target] = set()
    while waiting:
        module, name = target = waiting.pop()
        if target in seen:
            continue
        seen.add(target)
        if module == _FIGURES or module.startswith(f"{_FIGURES}."):
            waiting += _definition(figures, module, name, found)
        elif module == workbench.__name__ or module.startswith(f"{workbench.__name__}."):
            waiting += _library_module(module, name, found)
    return dict(sorted(found.items()))


def closure_digest(found: Mapping[str, str]) -> str:
    """sha256 over a closure."""
    return _sha256("".join(f"{name} {digest}\n" for name, digest in sorted(found.items())))


def package_digests(found: Mapping[str, str]) -> dict[str, str]:
    """One short digest per package of the library ("workbench.sampling") and per module of experiments in a closure."""
    packages: dict[str, dict[str, str]] = {}
    for name, digest in found.items():
        parts = name.split(".")
        package = parts[:-1] if parts[0] == _FIGURES else parts[:2]
        packages.setdefault(".".join(package), {})[name] = digest
    return {package: closure_digest(part)[:_SHORT] for package, part in sorted(packages.items())}


def _library_module(module: str, name: str | None, found: dict[str, str]) -> Iterator[Target]:
    """Add a module of the library to the closure; yield its imports."""
    if module == workbench.__name__:
        if name is not None:
            yield workbench._MODULE_OF.get(name, f"{module}.{name}"), None
        return
    if name is not None:
        yield f"{module}.{name}", None  # the name may be a module
    file = _library_file(module)
    if file is not None and module not in found:
        found[module], imported = _read_library(file, module)
        yield module.rpartition(".")[0], None  # Python runs the package's own code first
        yield from imported


@cache
def _read_library(file: Path, module: str) -> tuple[str, tuple[Target, ...]]:
    """Digest and imports of a file as first read: a process keeps running the code that it has imported."""
    tree = _parse(file)
    return _digest(tree.body), tuple(_needed(tree, file, _package(file, module)))


def _needed(tree: ast.Module, file: Path, package: str) -> Iterator[Target]:
    """Imports of a module of the library, and scripts in its folder that it names and so starts as subprocesses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(node, package).values()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".py"):
            script = file.parent / node.value
            if script.is_file():
                yield ".".join((workbench.__name__, *script.relative_to(_LIBRARY).with_suffix("").parts)), None


def _definition(figures: Path, module: str, name: str | None, found: dict[str, str]) -> Iterator[Target]:
    """Add a definition of a module of experiments to the closure; yield what it refers to."""
    file = _file(figures, module)
    if file is None or name is None:
        return
    yield f"{module}.{name}", None  # the name may be a module of a package
    yield module.rpartition(".")[0], _EFFECTS  # Python runs the package's own code first
    tree, package = _parse(file), _package(file, module)
    aliases = {alias: target for node in tree.body for alias, target in _imported(node, package).items()}
    bound = _bound(tree)
    for wanted in (name, _EFFECTS):
        if wanted in aliases:
            yield aliases[wanted]
        if wanted in bound and f"{module}.{wanted}" not in found:
            found[f"{module}.{wanted}"] = _digest(bound[wanted])
            yield from _references(module, package, bound[wanted], aliases)


def _references(module: str, package: str, nodes: list[ast.stmt], aliases: Mapping[str, Target]) -> Iterator[Target]:
    """Targets that statements refer to: their own imports, attributes of imported modules, names of this module."""
    own = [node for statement in nodes for node in ast.walk(statement)]
    aliases = {**aliases, **{alias: target for node in own for alias, target in _imported(node, package).items()}}
    for node in own:
        yield from _imported(node, package).values()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield _attribute(aliases[node.value.id], node.attr)
        if isinstance(node, ast.Name):
            yield aliases.get(node.id, (module, node.id))


def _attribute(target: Target, attribute: str) -> Target:
    """Target of the expression `alias.attribute`."""
    module, name = target
    return (module, attribute) if name is None else (f"{module}.{name}", attribute)


def _package(file: Path, module: str) -> str:
    """The package that relative imports of a module start from."""
    return module if file.name == "__init__.py" else module.rpartition(".")[0]


def _imported(node: ast.AST, package: str) -> dict[str, Target]:
    """Targets that a statement imports, by the names that it binds."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name: (alias.name, None) for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        module = resolve_name("." * node.level + (node.module or ""), package)
        return {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return {}


def _bound(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Statements of a module by the names that they bind; those that bind none are under `_EFFECTS`."""
    bound: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        for name in _names_bound(statement) or [_EFFECTS]:
            bound.setdefault(name, []).append(statement)
    return bound


def _names_bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


class _Bare(ast.NodeTransformer):
    """Removes docstrings and blocks for type checkers."""

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, ast.expr) else super().visit(node)  # expressions contain no statements

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        test = node.test  # TYPE_CHECKING or typing.TYPE_CHECKING
        name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        return None if name == "TYPE_CHECKING" else self.generic_visit(node)


def _parse(file: Path) -> ast.Module:
    return _parse_text(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def _parse_text(text: str) -> ast.Module:
    return _Bare().visit(ast.parse(text))


def _file(folder: Path, module: str) -> Path | None:
    """The file of a module of a package; None if there is none."""
    path = folder.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def _library_file(module: str) -> Path | None:
    return _file(_LIBRARY, module)


def _digest(nodes: Sequence[ast.AST]) -> str:
    return _sha256("\n".join(ast.dump(node) for node in nodes))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

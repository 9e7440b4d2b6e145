"""The code that decides a point's rows: the import closure of its `run`, and nothing else.

Of an experiment's module the definitions count that `run` and `Config` reach, so that drawing and checking, which stand
beside them, do not. What they import counts: of other modules of experiments again the definitions that are named, of
the library whole modules and all that these import, however late. Names of the library itself (`wb.Graph`) lead to the
modules that define them. Comments, docstrings and layout do not count, nor does what only type checkers import.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import workbench

_FIGURES = "experiments"
_LIBRARY = Path(workbench.__file__).resolve().parent
_EFFECTS = "<module>"

Target = tuple[str, str | None]
"""A module, and the name that is taken from it; None: the module itself."""


def closure(file: Path, names: Iterable[str]) -> dict[str, str]:
    """The code that some definitions of an experiment's module reach.

    Args:
        file: `…/experiments/PAPER/FIGURE.py`.
        names: of definitions in it, such as "run" and "Config".

    Returns:
        sha256 by module ("workbench.core.graph") or definition ("experiments.betty.fig11.run"), sorted by name.
    """
    found: dict[str, str] = {}
    paper, figures = file.resolve().parent.name, file.resolve().parents[1]
    waiting: list[Target] = [(f"{_FIGURES}.{paper}.{file.stem}", name) for name in names]
    while waiting:
        module, name = waiting.pop()
        if module == _FIGURES or module.startswith(f"{_FIGURES}."):
            waiting += _definition(figures, module, name, found)
        elif module == workbench.__name__ or module.startswith(f"{workbench.__name__}."):
            waiting += _library_module(module, name, found)
    return dict(sorted(found.items()))


def closure_digest(found: Mapping[str, str]) -> str:
    """One sha256 over a closure."""
    return _sha256("".join(f"{name} {digest}\n" for name, digest in sorted(found.items())))


def _library_module(module: str, name: str | None, found: dict[str, str]) -> Iterator[Target]:
    """Take in a module of the library; what it imports."""
    if module == workbench.__name__:
        if name is not None:
            yield workbench._MODULE_OF.get(name, f"{module}.{name}"), None
        return
    if name is not None:
        yield f"{module}.{name}", None  # where it is a module
    file = _file(_LIBRARY, module)
    if file is not None and module not in found:
        found[module], imported = _read_library(file)
        yield module.rpartition(".")[0], None  # Python runs the package's own code first
        yield from imported


@cache
def _read_library(file: Path) -> tuple[str, tuple[Target, ...]]:
    """Digest and imports of a file as it was when first asked: what this process has imported, it goes on running."""
    tree = _parse(file)
    return _digest(tree.body), tuple(target for node in ast.walk(tree) for target in _needed(node, file))


def _needed(node: ast.AST, file: Path) -> Iterator[Target]:
    """What a node of the library imports; scripts beside its file that it names run in processes of their own."""
    yield from _imported(node).values()
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".py"):
        script = file.parent / node.value
        if script.is_file():
            yield ".".join((workbench.__name__, *script.relative_to(_LIBRARY).with_suffix("").parts)), None


def _definition(figures: Path, module: str, name: str | None, found: dict[str, str]) -> Iterator[Target]:
    """Take in a definition of a module of experiments; what it refers to."""
    file = _file(figures, module)
    if file is None or name is None:
        return
    yield f"{module}.{name}", None  # where it is a module of a package
    tree = _parse(file)
    aliases = {alias: target for node in tree.body for alias, target in _imported(node).items()}
    bound = _bound(tree)
    for wanted in (name, _EFFECTS):
        if wanted in aliases:
            yield aliases[wanted]
        if wanted in bound and f"{module}.{wanted}" not in found:
            found[f"{module}.{wanted}"] = _digest(bound[wanted])
            yield from _references(module, bound[wanted], aliases)


def _references(module: str, nodes: list[ast.stmt], aliases: Mapping[str, Target]) -> Iterator[Target]:
    """What statements refer to: their own imports, names of modules that were imported, names of this module."""
    own = [node for statement in nodes for node in ast.walk(statement)]
    aliases = {**aliases, **{alias: target for node in own for alias, target in _imported(node).items()}}
    for node in own:
        yield from _imported(node).values()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield _attribute(aliases[node.value.id], node.attr)
        if isinstance(node, ast.Name):
            yield aliases.get(node.id, (module, node.id))


def _attribute(target: Target, attribute: str) -> Target:
    """What `alias.attribute` means."""
    module, name = target
    return (module, attribute) if name is None else (f"{module}.{name}", attribute)


def _imported(node: ast.AST) -> dict[str, Target]:
    """What a statement imports, by the name that it binds."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name: (alias.name, None) for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    return {}


def _bound(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Statements of a module by the names they bind; those that bind none, but have effects, under `_EFFECTS`."""
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
    """Without docstrings, and without what type checkers alone read."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING") else self.generic_visit(node)


def _parse(file: Path) -> ast.Module:
    return _Bare().visit(ast.parse(file.read_text(encoding="utf-8"), str(file)))


def _file(folder: Path, module: str) -> Path | None:
    """The file of a module of a package; None where there is none."""
    path = folder.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _digest(nodes: Sequence[ast.AST]) -> str:
    return _sha256("\n".join(ast.dump(node) for node in nodes))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

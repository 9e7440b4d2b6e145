"""Code closures: the definitions that decide a point's rows are those that its `run` reaches, and no others.

From `run` and `Config` of a figure, references are followed to the functions, classes and constants that they name, in
experiments and in the library, lazy imports included. Attributes of a package (`wb.Graph`) lead by its stub to the
definition behind them, texts "module:function" to functions that ranks import, texts "script.py" to scripts beside the
module. Statements of a module that bind no name count if anything else of the module does.

A definition counts by its normalised source: without comments, docstrings, layout, annotations of functions, texts of
errors, imports and private names, and with every reference under the name of its target. Its place does not count:
moving or renaming files changes no closure, and neither does an edit of anything that is not reached.
"""

import ast
import hashlib
import json
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from workbench.files import write_file
from workbench.paths import cache_folder

_FIGURES, _WORKBENCH = "experiments", "workbench"
_LIBRARY = Path(__file__).resolve().parents[1]
READ_AT = time.time()
"""Since when this process has read the library's files, in seconds since 1970: it does not see later edits."""

_EFFECTS = "<module>"
"""The name under which statements that bind no name are kept."""

_FUNCTION = re.compile(rf"((?:{_FIGURES}|{_WORKBENCH})(?:\.\w+)+):(\w+)")
_SHORT = 6  # hexadecimal digits of a definition's digest in a record


class Target(NamedTuple):
    """A name of a module; None: the module itself."""

    module: str
    name: str | None


_DATA_SETS = {
    Target(f"{_WORKBENCH}.experiment.config", "DataConfig"): (
        Target(f"{_WORKBENCH}.core.dataset", "Dataset"),
        Target(f"{_WORKBENCH}.links.knowledge_graph", "KnowledgeGraph"),
    )
}
"""What loads a point's data set, to what it returns. The code that builds a data set counts by its fingerprint alone,
which is in the point's key."""


@dataclass(frozen=True)
class Closure:
    """The code that some definitions of a figure reach.

    Args:
        digest: sha256 over the definitions and over which of them refers to which.
        definitions: sha256 of the normalised source by name, such as "workbench.core.graph.Graph", sorted by name.
    """

    digest: str
    definitions: Mapping[str, str]

    def short(self) -> str:
        """Digests of all definitions, shortened, for `changed_since`."""
        return "".join(sorted({digest[:_SHORT] for digest in self.definitions.values()}))

    def changed_since(self, short: str) -> list[str]:
        """Names of the definitions that an earlier closure, given by `short()`, did not have in the same form."""
        before = {short[at : at + _SHORT] for at in range(0, len(short), _SHORT)}
        return [name for name, digest in self.definitions.items() if digest[:_SHORT] not in before]


def closure(file: Path, names: Iterable[str], *, library: Path | None = None) -> Closure:
    """Find the code that some definitions of a figure's module reach.

    Args:
        file: `…/experiments/PAPER/FIGURE.py`.
        names: of definitions in the file, such as "run" and "Config".
        library: folder of the library's package; None: the one that is running.
    """
    library = library or _LIBRARY
    code, before = _Code(file.resolve().parents[1], library), _count(library)
    module = f"{_FIGURES}.{file.resolve().parent.name}.{file.stem}"
    waiting = [Target(module, name) for name in names]
    found: dict[Target, _Definition] = {}
    while waiting:
        for target in code.definitions(waiting.pop()):
            if target not in found:
                found[target] = code.normalized(target)
                waiting += [*found[target].references, *code.effects(target)]
    if library == _LIBRARY and _count(library) > before:
        _keep(library)
    sources = {f"{target.module}.{target.name}": definition.digest for target, definition in found.items()}
    return Closure(_graph_digest(code, found), dict(sorted(sources.items())))


def _graph_digest(code: "_Code", found: Mapping[Target, "_Definition"]) -> str:
    """sha256 of a graph of definitions, whatever their places: colour refinement, starting from their sources."""
    refers = {t: [to for r in d.references for to in code.definitions(r)] for t, d in found.items()}
    colors, count = {target: definition.digest for target, definition in found.items()}, 0
    while len(set(colors.values())) > count:
        count = len(set(colors.values()))
        colors = {t: sha256(found[t].digest, *(colors[to] for to in refers[t])) for t in found}
    return sha256(*sorted({*colors.values()}))  # equal definitions may be one


def sha256(*parts: str) -> str:
    """sha256 over texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class _Definition:
    """The digest of a definition's normalised source, and what it refers to in order of appearance."""

    digest: str
    references: tuple[Target, ...]


class _Code:
    """The modules of the library and of a folder of experiments."""

    def __init__(self, figures: Path, library: Path) -> None:
        self._figures, self._library = figures, library
        self._read: dict[str, _Module | None] = {}
        self._of_library = _library_modules(library)

    def module(self, name: str) -> "_Module | None":
        """A module by its dotted name; None if it is neither the library's nor in the folder of experiments."""
        first = name.partition(".")[0]
        folder, read = (self._figures, self._read) if first == _FIGURES else (self._library, self._of_library)
        if name not in read:
            file = _file(folder, name) if first in (_FIGURES, _WORKBENCH) else None
            read[name] = None if file is None else _Module(name, file, file.read_text(encoding="utf-8"))
        return read[name]

    def resolve(self, target: Target) -> Target | None:
        """Follow a name through the modules that import it to the one that defines it; None if that is not ours."""
        module, name = self.module(target.module), target.name
        if name is None:
            return None if module is None else target
        if module is not None and name in module.bound:
            again = self.target(module.renamed[name], module.target) if name in module.renamed else None
            return (None if again in (None, target) else self.resolve(again)) or target
        if module is not None and name in module.imported:
            return self.resolve(module.imported[name])
        if self.module(f"{target.module}.{name}") is not None:
            return Target(f"{target.module}.{name}", None)
        return self.resolve(module.lazy[name]) if module is not None and name in module.lazy else None

    def target(self, node: ast.expr, of_name: Callable[[str], Target | None]) -> Target | None:
        """What an expression refers to: a name, or an attribute of one that is a module."""
        if isinstance(node, ast.Name):
            return of_name(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        base = self.target(node.value, of_name)
        found = None if base is None else self.resolve(base)
        return Target(found.module, node.attr) if found is not None and found.name is None else None

    def definitions(self, target: Target) -> list[Target]:
        """Definitions that a target leads to: none if it is not ours, several if it is a whole module."""
        found = self.resolve(target)
        module = None if found is None or found.name is not None else self.module(found.module)
        if module is not None:
            return [Target(module.name, name) for name in module.bound]
        return [] if found is None else [found]

    def effects(self, target: Target) -> list[Target]:
        """Statements that Python runs before it reaches a definition: of its module, and of the packages around it."""
        parts = target.module.split(".")
        return [Target(".".join(parts[:end]), _EFFECTS) for end in range(1, len(parts) + 1)]

    def normalized(self, target: Target) -> _Definition:
        """The digest of a definition and its references."""
        module = self.module(target.module)
        assert module is not None and target.name is not None
        found = [module.normalized(at, self) for at in module.bound[target.name]]
        references = _DATA_SETS.get(target) or tuple(to for _, references in found for to in references)
        return _Definition(sha256(*(source for source, _ in found)), references)


class _Module:
    """A module as it was read: the names that it binds, and its statements in normalised form."""

    def __init__(self, name: str, file: Path, text: str) -> None:
        self.name, self.file, self._text = name, file, text
        self.package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        stub = file.with_suffix(".pyi")
        names = ast.parse(stub.read_text(encoding="utf-8")).body if stub.is_file() else []
        self.lazy = {k: to for node in names for k, to in _imports(node, self.package).items()}
        """What a package imports on first access: the names of its stub."""
        self._statements = self._parsed()
        own = [list(_own_nodes(node)) for node in self._statements]
        self.imported = {k: to for nodes in own for node in nodes for k, to in _imports(node, self.package).items()}
        """What its imports bind."""
        self.bound: dict[str, list[int]] = {}
        """Positions of the statements that bind a name."""
        for at, nodes in enumerate(own):
            if not isinstance(nodes[0], ast.Import | ast.ImportFrom):
                names = {name for node in nodes for name in _binds(node)} - set(self.imported)
                for name in sorted(names) or [_EFFECTS]:
                    self.bound.setdefault(name, []).append(at)
        single = {name: self._statements[at[0]] for name, at in self.bound.items() if len(at) == 1}
        self.renamed = {name: node.value for name, node in single.items() if _is_renaming(node)}
        """Names that are bound to what another name refers to."""
        self.texts = {node.name for node in self._statements if isinstance(node, _FUNCTIONS) and _returns_text(node)}
        """Functions that return texts."""
        self.normal: dict[int, tuple[str, list[Target]]] = {}
        """Statements that were normalised so far."""

    def _parsed(self) -> list[ast.stmt]:
        return [node for node in ast.parse(self._text).body if not _is_presentation(node)]

    def __getstate__(self) -> dict[str, Any]:
        """Without statements, which are parsed again where one is not normalised yet."""
        return {**self.__dict__, "_statements": None}

    def target(self, name: str) -> Target | None:
        """What a name of the module refers to; None for one that is not its own."""
        return Target(self.name, name) if name in self.bound else self.imported.get(name)

    def normalized(self, at: int, code: _Code) -> tuple[str, list[Target]]:
        """The normalised source of a statement, and what it refers to in order of appearance."""
        if at not in self.normal:
            self._statements = self._statements or self._parsed()
            normalizer = _Normalizer(self, code)
            node = normalizer.visit(self._statements[at])  # None: a declaration without a value
            self.normal[at] = "" if node is None else ast.unparse(node), normalizer.references
        return self.normal[at]


class _Scope(NamedTuple):
    """The names that a function, a class or a comprehension binds; to a target if an import binds them."""

    names: Mapping[str, Target | None]
    is_class: bool = False


class _Normalizer(ast.NodeTransformer):
    """Rewrites a statement of a module to its normalised form and collects its references."""

    def __init__(self, module: _Module, code: _Code) -> None:
        self._module, self._code = module, code
        self._scopes: list[_Scope] = []
        self.references: list[Target] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            target = self._target(node)
            return node if target is None else self._reference(target)
        return node if self._scopes else ast.Name(_public(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        target = self._target(node)
        if target is not None and self._code.resolve(target) is not None:
            return self._reference(target)
        base = self._target(node.value)
        found = None if base is None else self._code.resolve(base)
        if found is not None and found.name is None and node.attr.startswith("__"):
            return ast.Name(f"{_EFFECTS}.{node.attr}", ast.Load())  # `module.__file__` reaches nothing of the module
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str):
            return node
        if found := _FUNCTION.fullmatch(node.value):
            return self._reference(Target(found[1], found[2]))
        if node.value.endswith(".py") and (self._module.file.parent / node.value).is_file():
            script = Path(node.value).with_suffix("").parts
            return self._reference(Target(".".join((self._module.package, *script)), None))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        texts = [self._module.name if _is_own_name(part) else getattr(part, "value", None) for part in node.values]
        if None not in texts and (found := _FUNCTION.fullmatch("".join(map(str, texts)))):
            return self._reference(Target(found[1], found[2]))
        node.values = [part if isinstance(part, ast.Constant) else self.visit(part) for part in node.values]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args, node.returns = self._arguments(node.args), None
        node.name = node.name if self._scopes else _public(node.name)
        node.body = self._inside(_Scope(_bound(node, self._module.package)), node.body)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.args = self._arguments(node.args)
        [node.body] = self._inside(_Scope(_bound(node, self._module.package)), [node.body])
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for field in ("decorator_list", "bases", "keywords"):
            setattr(node, field, [self.visit(child) for child in getattr(node, field)])
        node.name = node.name if self._scopes else _public(node.name)
        node.body = self._inside(_Scope(_bound(node, self._module.package), is_class=True), node.body)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> ast.AST:
        first, *_ = node.generators
        first.iter = self.visit(first.iter)  # evaluated outside
        outside, first.iter = first.iter, ast.Constant(None)
        self._scopes.append(_Scope(_bound(node, self._module.package)))
        self.generic_visit(node)
        self._scopes.pop()
        first.iter = outside
        return node

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Annotations count in classes, where they make fields."""
        if self._scopes and self._scopes[-1].is_class:
            if isinstance(node.annotation, ast.Constant) and isinstance(node.annotation.value, str):
                node.annotation = ast.parse(node.annotation.value, mode="eval").body
            return self.generic_visit(node)
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """The target is read, too."""
        self.visit(ast.Name(node.target.id, ast.Load()) if isinstance(node.target, ast.Name) else node.target)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self.generic_visit(_Untold(self).visit(node))

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Imports count by what is used of them."""

    visit_ImportFrom = visit_Import

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, field, [child for child in value if not _is_presentation(child)])
        return super().generic_visit(node)

    def _inside(self, scope: _Scope, nodes: list) -> list:
        self._scopes.append(scope)
        kept = [self.visit(node) for node in nodes if not _is_presentation(node)]
        self._scopes.pop()
        return [node for node in kept if node is not None]

    def _arguments(self, args: ast.arguments) -> ast.arguments:
        for arg in ast.walk(args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        self.generic_visit(args)
        return args

    def is_text(self, function: ast.expr) -> bool:
        """Whether a function of ours returns a text."""
        target = self._target(function)
        found = None if target is None else self._code.resolve(target)
        module = None if found is None else self._code.module(found.module)
        return found is not None and module is not None and found.name in module.texts

    def _target(self, node: ast.expr) -> Target | None:
        return self._code.target(node, self._name)

    def _name(self, name: str) -> Target | None:
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.names and (depth == 0 or not scope.is_class):
                return scope.names[name]
        return self._module.target(name)

    def _reference(self, target: Target) -> ast.Name:
        """Note a reference; what is ours goes by its name alone, other libraries' by their full name."""
        found = self._code.resolve(target)
        if found is None:
            return ast.Name(".".join(part for part in target if part is not None), ast.Load())
        self.references.append(found)
        return ast.Name(_EFFECTS if found.name is None else _public(found.name), ast.Load())


class _Untold(ast.NodeTransformer):
    """Empties the texts of errors: literals, and calls of functions that return texts."""

    def __init__(self, normalizer: _Normalizer) -> None:
        self._is_text = normalizer.is_text

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.Constant("") if self._is_text(node.func) else self.generic_visit(node)


_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = _FUNCTIONS | ast.ClassDef | ast.Lambda | _COMPREHENSIONS


def _bound(scope: ast.AST, package: str) -> dict[str, Target | None]:
    """The names that a function, class or comprehension binds for itself, to their targets if imports bind them."""
    bound: dict[str, Target | None] = {}
    if isinstance(scope, _FUNCTIONS | ast.Lambda):
        bound |= {arg.arg: None for arg in ast.walk(scope.args) if isinstance(arg, ast.arg)}
    elsewhere: set[str] = set()
    for child in ast.iter_child_nodes(scope):
        for node in _own_nodes(child):
            bound |= dict.fromkeys(_binds(node, targets=False)) | _imports(node, package)
            elsewhere |= set(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else set()
            if isinstance(scope, _COMPREHENSIONS) and isinstance(node, ast.NamedExpr):
                elsewhere.add(node.target.id)
    return {name: target for name, target in bound.items() if name not in elsewhere}


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and those below it, without the insides of other scopes, in which only `:=` binds names outside."""
    yield node
    if isinstance(node, _SCOPES):
        inside = ast.walk(node) if isinstance(node, _COMPREHENSIONS) else []
        yield from (named.target for named in inside if isinstance(named, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield from _own_nodes(child)


def _binds(node: ast.AST, *, targets: bool = True) -> list[str]:
    """Names that a node binds; with `targets`, also those of which it sets an item or an attribute."""
    if isinstance(node, _FUNCTIONS | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        return [node.name]
    if isinstance(node, ast.MatchMapping) and node.rest is not None:
        return [node.rest]
    if isinstance(node, ast.Name | ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        while targets and isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        return [node.id] if isinstance(node, ast.Name) else []
    return []


def _imports(node: ast.AST, package: str) -> dict[str, Target]:
    """Targets that a statement imports, by the names that it binds."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: Target(
                alias.name if alias.asname else alias.name.partition(".")[0], None
            )
            for alias in node.names
        }
    if isinstance(node, ast.ImportFrom):
        module = resolve_name("." * node.level + (node.module or ""), package)
        return {alias.asname or alias.name: Target(module, alias.name) for alias in node.names}
    return {}


def _public(name: str) -> str:
    """A name as others see it: those that are private to a module are all alike."""
    return "_" if re.match("_[^_]", name) else name


def _returns_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return isinstance(node.returns, ast.Name) and node.returns.id == "str"


def _is_renaming(node: ast.stmt) -> TypeGuard[ast.Assign]:
    """`NAME = other` or `NAME = module.other`."""
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Name | ast.Attribute)
    )


def _is_own_name(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.FormattedValue) else None
    return isinstance(value, ast.Name) and value.id == "__name__"


def _is_presentation(node: ast.AST) -> bool:
    """A text that stands for itself, such as a docstring, or a block for type checkers."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return _is_for_type_checkers(node)


def _is_for_type_checkers(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None  # TYPE_CHECKING or typing.TYPE_CHECKING
    name = test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
    return name == "TYPE_CHECKING"


@cache
def _library_modules(library: Path) -> "dict[str, _Module | None]":
    """Modules of the library as first read: a process keeps running the code that it has imported."""
    with suppress(Exception):  # no file yet, one that was cut off, or one of another version
        digest, modules = pickle.loads(_kept_file().read_bytes())
        if digest == _digest_at_start(library):
            return modules
    return {}


@cache
def _digest_at_start(library: Path) -> str:
    return _library_digest(library)


def _library_digest(library: Path) -> str:
    digest = hashlib.sha256(f"{sys.version}{library}".encode())
    for file in sorted([*library.rglob("*.py"), *library.rglob("*.pyi")]):
        digest.update(file.as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _kept_file() -> Path:
    """Where the library's normalised statements are kept between processes, each of which would take seconds."""
    return cache_folder() / "definitions.pickle"


def _keep(library: Path) -> None:
    """Keeps nothing if a file was edited since the first was read: modules read after that are of other versions."""
    with suppress(OSError):  # a cache without which everything works
        if (digest := _library_digest(library)) == _digest_at_start(library):
            write_file(_kept_file(), pickle.dumps((digest, _library_modules(library))))


def _count(library: Path) -> int:
    """Statements of the library that are normalised."""
    return sum(len(module.normal) for module in _library_modules(library).values() if module is not None)


def _file(folder: Path, module: str) -> Path | None:
    """The file of a module below a package's folder; None if there is none."""
    path = folder.joinpath(*module.split(".")[1:])
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def point_key(code: str, config: Mapping[str, Any], fingerprint: str) -> str:
    """sha256 over all that decides a point's rows.

    Args:
        code: digest of the code that `run` reaches (`workbench.experiment.closure`).
        config: resolved configuration, JSON values.
    """
    return _sha256(code, json.dumps(config, sort_keys=True), fingerprint)


def summary_key(figure: str, digest: str, run_ids: Iterable[str]) -> str:
    """sha256 over all that decides a figure's summary in the store.

    Args:
        digest: of the code and texts that draw and check the figure.
        run_ids: runs whose rows it shows, in the grid's order.
    """
    return _sha256(figure, digest, *run_ids)


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()

"""The public names, as the stubs of `workbench` and its packages list them."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import workbench as wb

ROOT = Path(inspect.getfile(wb)).parent
NAMESPACES = [stub.parent.name for stub in sorted(ROOT.glob("*/__init__.pyi"))]


def stub_of(folder: Path) -> dict[str, str]:
    """Public name to the module that defines it, as type checkers read it from a package's stub."""
    tree = ast.parse((folder / "__init__.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


NAMES = {name: (wb, module) for name, module in stub_of(ROOT).items()} | {
    f"{home}.{name}": (import_module(f"workbench.{home}"), module)
    for home in NAMESPACES
    for name, module in stub_of(ROOT / home).items()
}
"""As written after `wb.`, to the package that has it and the module that defines it."""

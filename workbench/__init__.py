"""GNN Workbench: composable primitives for training graph neural networks on graphs too large for one GPU.

`import workbench as wb` imports no other library: each public name is imported from its module on first access. `wb.`
has what every user meets; the rest is in the namespace of its package, such as `wb.outofcore.PartitionBuffer`.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import lazy_loader

from workbench.core.conversions import register_conversions

register_conversions(f"{__name__}.interop:CONVERSIONS")  # for `graph.to_dgl()` and its like

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in __all__:
        return _attribute(name)
    packages = (stub.parent.name for stub in Path(__file__).parent.glob("*/__init__.pyi"))
    homes = [home for home in packages if name in import_module(f"{__name__}.{home}").__all__]
    hint = f"; it is workbench.{homes[0]}.{name}" if homes else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def _version() -> str:
    """The installed version; a placeholder if the package is a folder on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gnn-workbench")
    except PackageNotFoundError:
        return "0+uninstalled"

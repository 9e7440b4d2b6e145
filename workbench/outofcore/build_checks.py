"""What is checked before a partition store is built."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench import files
from workbench.core.errors import CapacityError, CorruptFileError
from workbench.core.graph import Graph
from workbench.core.units import format_bytes
from workbench.kernels.jit import compiled
from workbench.outofcore.store_folder import StoreFolder
from workbench.outofcore.store_layout import DTYPES, StoreLayout


def check_space(folder: Path, nbytes: int) -> None:
    """Check that files fit on the disk.

    Raises:
        CapacityError: less is free; the message names both numbers.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if nbytes > (free := shutil.disk_usage(existing).free):
        raise CapacityError(
            f"the store needs {format_bytes(nbytes)}, but {existing} has {format_bytes(free)} free; free some space, "
            "or pass a folder on another disk"
        )


def check_row_order(graph: Graph) -> None:
    """Check that the edge ids of every row ascend, by which the rows of a buffer are ordered.

    Raises:
        ValueError: they do not.
    """
    if graph.edge_ids is None or not graph.num_edges:
        return
    at = int(_first_descent(graph.indptr.cpu().numpy(), graph.edge_ids.cpu().numpy()))
    if at >= 0:
        raise ValueError(
            f"edge_ids descend within a row, from {int(graph.edge_ids[at])} to {int(graph.edge_ids[at + 1])}; build "
            "the graph with Graph.from_edges, whose rows keep the order of the edges"
        )


@compiled
def _first_descent(indptr, edge_ids):
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1] - 1):
            if edge_ids[k + 1] <= edge_ids[k]:
                return k
    return -1


def check_dtype(layout: StoreLayout) -> None:
    """Check that rows have values, in a dtype that a store supports.

    Raises:
        ValueError: they do not.
    """
    if layout.dtype not in DTYPES or not layout.row_bytes:
        raise ValueError(
            f"rows are {list(layout.row_shape)} {layout.dtype}; pass rows with at least one value, in one of "
            f"{', '.join(DTYPES)}"
        )


@contextmanager
def replacing(target: Path, overwrite: bool) -> Iterator[StoreFolder | None]:
    """Check that a folder may be created or replaced, and let nobody write to the store that is replaced.

    Yields:
        The store that is to be replaced; None: there is none.

    Raises:
        FileExistsError: it may not.
        ValueError: an epoch of a buffer, or another call, is writing to the store or replacing it.
    """
    files.remove_unfinished(target.parent)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        yield None
        return
    if not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it, or another folder")
    try:
        replaced = StoreFolder(target, StoreLayout.open(target).build_id)
    except (FileNotFoundError, CorruptFileError):
        raise FileExistsError(f"{target} is not a partition store and is not replaced; pass another folder") from None
    with replaced.writing_alone("replaces"):
        yield replaced

"""`MappedRows`: rows in a memory-mapped file, for features larger than memory."""

import os
from collections.abc import Iterable

from torch import Tensor

from workbench.core.array_store import open_arrays, save_arrays
from workbench.core.errors import CorruptFileError
from workbench.core.traffic import Traffic
from workbench.features.memory_rows import TensorRows

ROWS_KIND = "rows"
"""Kind of the folders of rows."""


def open_rows(folder: str | os.PathLike[str], *, verify: bool = False) -> Tensor:
    """Memory-map the rows of a folder that `MappedRows.create` wrote. Arguments and errors as for `MappedRows`."""
    arrays = open_arrays(folder, kind=ROWS_KIND, verify=verify)
    if list(arrays) != ["rows"] or not arrays["rows"].dim():
        raise CorruptFileError(f"{folder} does not contain an array of rows; write it with MappedRows.create")
    return arrays["rows"]


class MappedRows(TensorRows):
    """Rows of a memory-mapped array: pages are read from disk when they are first needed, and cached by the system.

    Args:
        folder: folder written by `MappedRows.create`.
        verify: read the whole file and compare its checksum; otherwise only header and size are checked.
        traffic: counts the rows that are read, as "disk", whether or not the system has cached their pages.

    Raises:
        FileNotFoundError: if the folder or its file is missing.
        CorruptFileError: if the file does not match its header.
    """

    def __init__(self, folder: str | os.PathLike[str], *, verify: bool = False, traffic: Traffic | None = None) -> None:
        super().__init__(open_rows(folder, verify=verify), link="disk", traffic=traffic)

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], rows: Tensor | Iterable[Tensor], *, overwrite: bool = False
    ) -> "MappedRows":
        """Write rows to a folder atomically and open it: an interrupted call leaves nothing, or what was there.

        Args:
            folder: folder to create, with its missing parents.
            rows: [n, …], or an iterable of tensors of consecutive rows, of which at most two are in memory at a time.
            overwrite: replace an existing folder of arrays.

        Raises:
            FileExistsError: if `folder` exists and `overwrite` is not set, or if it is not a folder of arrays.
            TypeError: if `rows` is not made of tensors, or of a dtype that can't be stored.
            ValueError: if the tensors have no dimensions, or differ in dtype or shape of a row.
        """
        if isinstance(rows, Tensor) and not rows.dim():
            raise ValueError("rows is a single number; pass one row per id")
        save_arrays(folder, {"rows": rows}, kind=ROWS_KIND, overwrite=overwrite)
        return cls(folder)

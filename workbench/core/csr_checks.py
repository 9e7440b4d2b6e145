"""Checks of CSR arrays, shared by `Graph` and `Block`: kernels trust `indptr` and `indices` and check nothing."""

from torch import Tensor

from workbench.core.errors import find_out_of_range
from workbench.kernels.csr import first_decrease


def check_ends(indptr: Tensor, num_edges: int, *, name: str = "indptr", what: str = "edges") -> None:
    """Check that `indptr` starts at 0 and ends at the number of edges.

    Args:
        indptr: int64 [num_rows + 1].
        num_edges: edges of all rows.
    """
    values = indptr.numpy() if indptr.device.type == "cpu" else indptr  # NumPy reads a value in half the time of torch
    first, last = int(values[0]), int(values[-1])
    if first != 0 or last != num_edges:
        raise ValueError(f"{name} runs from {first} to {last}; it must run from 0 to the {num_edges} {what}")


def check_non_decreasing(indptr: Tensor) -> None:
    """Check that `indptr` never decreases: a kernel would read outside the edges.

    Args:
        indptr: int64 [num_rows + 1].
    """
    if (row := first_decrease(indptr)) is not None:
        raise ValueError(
            f"indptr must be non-decreasing, but it decreases after row {row}, from {int(indptr[row])} to "
            f"{int(indptr[row + 1])}; build it as the running sum of the in-degrees"
        )


def check_sources(indices: Tensor, num_nodes: int, error: type[Exception] = ValueError) -> None:
    """Check that every source is a node.

    Args:
        indices: int32 or int64 [num_edges], sources.
        num_nodes: exclusive upper bound of the sources.
        error: class of the exception.
    """
    if (bad := find_out_of_range(indices, 0, num_nodes)) is not None:
        raise error(f"indices contains {bad}; sources must be in [0, {num_nodes}): pass local ids, or count all nodes")

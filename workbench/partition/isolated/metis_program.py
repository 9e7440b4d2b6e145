"""METIS as a program for `worker.py`; it must not import the workbench."""

from array import array
from collections.abc import Mapping

import pymetis

_NUMPY_FROM = 1 << 20


def run(
    arrays: Mapping[str, memoryview], *, num_parts: int, seed: int, imbalance: float, rounds: int, recursive: bool
) -> None:
    """Partition a graph k ways and write the part of every node to `arrays["part"]`.

    Args:
        arrays: int64 `indptr`, `indices` and `part`; `vertex_weights` and `edge_weights` unless they are 1 each.
        imbalance: allowed excess of a part's weight over the mean, as a fraction.
    """
    arrays = _as_buffers(arrays)
    _, part = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(arrays["indptr"], arrays["indices"]),
        vweights=arrays.get("vertex_weights"),
        eweights=arrays.get("edge_weights"),
        recursive=recursive,  # by default, pymetis would bisect for up to 8 parts
        options=pymetis.Options(seed=seed, ufactor=round(1000 * imbalance), niter=rounds),
    )
    arrays["part"][:] = array("q", part)


def _as_buffers(arrays: Mapping[str, memoryview]) -> Mapping:
    """Wrap large graphs in numpy arrays: pymetis copies other buffers, which for small ones beats importing numpy."""
    if len(arrays["indices"]) < _NUMPY_FROM:
        return arrays
    import numpy as np

    return {name: np.frombuffer(array, dtype=np.int64) for name, array in arrays.items()}

"""METIS, as `server.py` runs it: nothing of the workbench is imported here."""

from array import array
from collections.abc import Mapping

import pymetis

_NUMPY_FROM = 1 << 20


def run(arrays: Mapping[str, memoryview], *, num_parts: int, seed: int, imbalance: float, rounds: int) -> None:
    """Cut k ways and write the part of every node to `arrays["part"]`.

    Args:
        arrays: int64: `indptr`, `indices`, `part`, and `vertex_weights`, `edge_weights` where they are not 1 each.
        num_parts: parts.
        seed: of METIS.
        imbalance: by which share parts may be heavier than the mean.
        rounds: of refinement at every level.
    """
    arrays = _as_pymetis_takes_them(arrays)
    _, part = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(arrays["indptr"], arrays["indices"]),
        vweights=arrays.get("vertex_weights"),
        eweights=arrays.get("edge_weights"),
        recursive=False,  # pymetis would bisect for up to 8 parts; the papers cut k ways
        options=pymetis.Options(seed=seed, ufactor=round(1000 * imbalance), niter=rounds),
    )
    arrays["part"][:] = array("q", part)


def _as_pymetis_takes_them(arrays: Mapping[str, memoryview]) -> Mapping:
    """pymetis copies all buffers but numpy's; to import numpy takes longer than to copy and cut a small graph."""
    if len(arrays["indices"]) < _NUMPY_FROM:
        return arrays
    import numpy as np

    return {name: np.frombuffer(array, dtype=np.int64) for name, array in arrays.items()}

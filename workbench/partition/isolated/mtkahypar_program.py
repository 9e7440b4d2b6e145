"""Mt-KaHyPar as a program for `worker.py`; it must not import the workbench."""

from array import array
from collections.abc import Mapping, Sequence

import mtkahypar


class _Nets(Sequence):
    """The pins of every net, sliced lazily: a list of lists would need far more memory than the pins."""

    def __init__(self, indptr: memoryview, pins: memoryview) -> None:
        self._indptr, self._pins = indptr, pins

    def __len__(self) -> int:
        return len(self._indptr) - 1

    def __getitem__(self, net):
        return self._pins[self._indptr[net] : self._indptr[net + 1]]


def run(arrays: Mapping[str, memoryview], *, num_parts: int, seed: int, imbalance: float, preset: str) -> None:
    """Partition a hypergraph for the connectivity objective and write the part of every vertex to `arrays["part"]`.

    Args:
        arrays: int64 `indptr` of the nets, `net_weights`, `vertex_weights` and `part`; int32 `pins`.
        imbalance: allowed excess of a part's weight over the mean, as a fraction.
    """
    mtkahypar.set_seed(seed)
    library = mtkahypar.initialize(1, print_warnings=False)
    context = library.context_from_preset(getattr(mtkahypar.PresetType, preset))
    context.set_partitioning_parameters(num_parts, imbalance, mtkahypar.Objective.KM1)
    context.logging = False
    nets = _Nets(arrays["indptr"], arrays["pins"])
    vertex_weights, net_weights = arrays["vertex_weights"], arrays["net_weights"]
    hypergraph = library.create_hypergraph(
        context, len(vertex_weights), len(net_weights), nets, vertex_weights, net_weights
    )
    arrays["part"][:] = array("q", hypergraph.partition(context).get_partition())

"""Mt-KaHyPar, as `server.py` runs it: nothing of the workbench is imported here."""

from array import array
from collections.abc import Mapping, Sequence

import mtkahypar


class _Nets(Sequence):
    """The pins of every net, made when they are asked for: a list of lists would take far more than the pins."""

    def __init__(self, indptr: memoryview, pins: memoryview) -> None:
        self._indptr, self._pins = indptr, pins

    def __len__(self) -> int:
        return len(self._indptr) - 1

    def __getitem__(self, net):
        return self._pins[self._indptr[net] : self._indptr[net + 1]]


def run(arrays: Mapping[str, memoryview], *, num_parts: int, seed: int, imbalance: float, preset: str) -> None:
    """Cut for the connectivity objective and write the part of every vertex to `arrays["part"]`.

    Args:
        arrays: int64: `indptr` of the nets, `net_weights`, `vertex_weights`, `part`; int32: `pins`.
        num_parts: parts.
        seed: of Mt-KaHyPar.
        imbalance: how much heavier than the mean a part may be, as a share.
        preset: name of a preset.
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

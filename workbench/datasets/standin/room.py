"""What a stand-in needs before work starts."""

import os
import shutil
from pathlib import Path

from workbench.core.errors import CapacityError, check_choice
from workbench.core.host_memory import available_bytes
from workbench.core.units import format_bytes
from workbench.datasets.standin.catalog import STANDINS
from workbench.datasets.standin.spec import KnowledgeStandIn, StandIn, scaled

# The edge list (two int32), both directions of it and the merged rows (int32 each), and stubs.
_BYTES_PER_PAIR, _BYTES_PER_TYPED_EDGE, _BYTES_PER_NODE, _BYTES_PER_TRIPLE = 32, 64, 80, 120
_FIXED_BYTES = 256 << 20
# What the allocator keeps of what was freed, and what a round of edges leaves beside the next.
_SLACK = 1.15


def find(name: str, scale: float | None) -> tuple[StandIn | KnowledgeStandIn, float]:
    """The stand-in of a name, and the scale to build it at.

    Raises:
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    check_choice("stand-in", name, STANDINS)
    spec = STANDINS[name]
    size = spec.default_scale if scale is None else scale
    if not 0 < size <= 1:
        raise ValueError(f"scale is {scale}; it must lie in (0, 1], 1 being the size of the original")
    return spec, float(size)


def required_bytes(name: str, scale: float | None = None) -> tuple[int, int]:
    """Bytes of memory that building takes at most, and bytes that the result takes on disk.

    Args:
        name: of the stand-in.
        scale: in (0, 1]; None: the default of the stand-in.

    Raises:
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find(name, scale)
    if isinstance(spec, KnowledgeStandIn):
        triples = scaled(sum(spec.splits), size)
        return _FIXED_BYTES + _BYTES_PER_TRIPLE * triples, 24 * triples
    nodes, edges, typed = scaled(spec.nodes, size), scaled(spec.edges, size), 0
    pairs = edges if spec.directed else edges // 2
    if spec.authors is not None:
        typed = scaled(spec.authors.writes + spec.authors.affiliations, size)
        nodes += scaled(spec.authors.authors + spec.authors.institutions, size)
        typed += edges
    label_bytes = 4 * spec.classes if spec.multi_label else 8
    width = spec.feature_dtype.itemsize
    features = nodes * spec.features * width
    graph = 8 * nodes + 4 * max(edges, typed) + (typed + nodes if typed else 0)
    result = features + graph + nodes * label_bytes + 8 * scaled(sum(spec.splits), size)
    building = _BYTES_PER_PAIR * pairs + _BYTES_PER_TYPED_EDGE * typed + _BYTES_PER_NODE * nodes
    return _FIXED_BYTES + round(_SLACK * max(building, result + _BYTES_PER_NODE * nodes)), result


def check_room(name: str, scale: float | None = None, folder: str | os.PathLike[str] | None = None) -> None:
    """Refuse what exceeds free memory, or free disk where the result is to be kept.

    Args:
        name: of the stand-in.
        scale: in (0, 1]; None: the default of the stand-in.
        folder: where the result is to be kept; None: nowhere.

    Raises:
        CapacityError: with what is needed and what is free.
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find(name, scale)
    memory, disk = required_bytes(name, size)
    needs = [("memory", memory, available_bytes())]
    if folder is not None:
        needs.append(("disk", disk, shutil.disk_usage(_existing(Path(folder).absolute())).free))
    for what, needed, free in needs:
        if needed > free:
            raise CapacityError(
                f"{name} at scale {size:g} needs {format_bytes(needed)} of {what}, {format_bytes(free)} are free; "
                f"pass a smaller scale (its default is {spec.default_scale:g})"
            )


def _existing(folder: Path) -> Path:
    """The folder or the nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())

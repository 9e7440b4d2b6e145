"""Memory and disk space that a stand-in requires, checked before it is built."""

import os
import shutil
from pathlib import Path

from workbench.core.capacity import available_bytes
from workbench.core.errors import CapacityError, check_choice
from workbench.core.units import format_bytes
from workbench.standin.catalog import STANDINS
from workbench.standin.stand_in import KnowledgeStandIn, StandIn, scaled

# The edge list (two int32), both directions of it and the merged rows (int32 each), and stubs.
_BYTES_PER_PAIR, _BYTES_PER_TYPED_EDGE, _BYTES_PER_NODE, _BYTES_PER_TRIPLE = 32, 64, 80, 120
_FIXED_BYTES = 256 << 20
# Memory that the allocator keeps after it is freed, and that two rounds of edges hold at the same time.
_SLACK = 1.15


def find_standin(name: str, scale: float | None) -> tuple[StandIn | KnowledgeStandIn, float]:
    """Look up a stand-in and the scale to build it at.

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.

    Returns:
        The specification and the scale.

    Raises:
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    check_choice("stand-in", name, STANDINS)
    spec = STANDINS[name]
    size = spec.default_scale if scale is None else scale
    if not 0 < size <= 1:
        raise ValueError(f"scale is {scale}; it must be in (0, 1], where 1 is the size of the original")
    return spec, float(size)


def required_bytes(name: str, scale: float | None = None) -> tuple[int, int]:
    """Estimate the peak memory of building a stand-in and its size on disk.

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.

    Returns:
        Bytes of memory (an upper bound) and bytes on disk.

    Raises:
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find_standin(name, scale)
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


def check_capacity(name: str, scale: float | None = None, folder: str | os.PathLike[str] | None = None) -> None:
    """Refuse a stand-in that exceeds the free memory or disk space.

    Args:
        name: a key of `STANDINS`.
        scale: in (0, 1]; None: the default of the stand-in.
        folder: folder in which the result will be stored; None: it won't be.

    Raises:
        CapacityError: with the required and the free bytes.
        ValueError: an unknown name, or a scale outside (0, 1].
    """
    spec, size = find_standin(name, scale)
    memory, disk = required_bytes(name, size)
    requirements = [("memory", memory, available_bytes())]
    if folder is not None:
        requirements.append(("disk", disk, shutil.disk_usage(_existing(Path(folder).absolute())).free))
    for what, required, free in requirements:
        if required > free:
            raise CapacityError(
                f"{name} at scale {size:g} requires {format_bytes(required)} of {what}, but {format_bytes(free)} are "
                f"free; pass a smaller scale (its default is {spec.default_scale:g})"
            )


def _existing(folder: Path) -> Path:
    """Return the folder or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())

"""The features of a data set: those of the source, random ones or degrees."""

import torch
from torch import Tensor

from workbench.core.capacity import available_bytes
from workbench.core.errors import CapacityError, check_finite
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream, uniform
from workbench.core.units import format_bytes
from workbench.datasets.raw import RankedClasses, RawSet, SparseRows, parse_features

DENSE_LIMIT_BYTES = 4 << 30
"""Sparse features that need more memory when densified are refused."""
_CHUNK = 1 << 20
_SQRT_12 = 12**0.5


def choose_features(raw: RawSet, graph: Graph, features: str, seed: int) -> tuple[Tensor, str]:
    """Create the features of a data set.

    Args:
        raw: the data set as stored.
        graph: its graph, with the options applied.
        features: "given", "degree" or "random:WIDTH".
        seed: seed of random features.

    Returns:
        [num_nodes, width], and a label: `features`, or for "given" also "none" (width 0) or "ranked-classes".

    Raises:
        CapacityError: dense features would exceed the limit.
        ValueError: sparse features that are not finite.
    """
    kind, width = parse_features(features)
    if kind == "random":
        return random_features(raw.num_nodes, width, seed), features
    if kind == "degree":
        return graph.in_degrees().to(torch.float64).log1p().float().unsqueeze(1), features
    if raw.x is None:
        return torch.empty(raw.num_nodes, 0), "none"
    if isinstance(raw.x, SparseRows):
        return densify(raw.x), features
    if isinstance(raw.x, RankedClasses):
        return reciprocal_ranks(raw.x), "ranked-classes"
    return raw.x, features


def random_features(num_nodes: int, width: int, seed: int) -> Tensor:
    """Draw uniform features of mean 0 and variance 1, bit-identical on every machine.

    Args:
        num_nodes: number of nodes.
        width: number of channels.
        seed: a 64-bit integer.

    Returns:
        float32 [num_nodes, width].

    Raises:
        CapacityError: they exceed the free memory.
    """
    _check_memory(f"{num_nodes:,} × {width} random features", num_nodes * width * 4, available_bytes())
    key = stream(seed, Purpose.FEATURES)
    x = torch.empty(num_nodes * width)
    for ids in torch.arange(len(x)).split(_CHUNK):
        x[ids[0] : ids[-1] + 1] = (uniform(key, ids) - 0.5) * _SQRT_12
    return x.view(num_nodes, width)


def densify(rows: SparseRows) -> Tensor:
    """Convert sparse features to dense ones, summing duplicate entries.

    Args:
        rows: the sparse features.

    Returns:
        float32 [rows, width].

    Raises:
        CapacityError: they exceed `DENSE_LIMIT_BYTES` or half of the free memory.
        ValueError: values that are not finite.
    """
    count = rows.indptr.shape[0] - 1
    what = f"{count:,} × {rows.width:,} features, {rows.values.numel():,} of them nonzero,"
    _check_memory(what, count * rows.width * 4, min(DENSE_LIMIT_BYTES, available_bytes() // 2))
    check_finite("x_data", rows.values)
    x = torch.zeros(count, rows.width)
    row = torch.repeat_interleave(torch.arange(count), rows.indptr.diff())
    return x.index_put_((row, rows.indices), rows.values.float(), accumulate=True)


def reciprocal_ranks(ranked: RankedClasses) -> Tensor:
    """Encode ranked classes without loss: 1 / rank of each class in the ranking, 0 of the others.

    Args:
        ranked: the rankings.

    Returns:
        float32 [nodes, num_classes].
    """
    x = torch.zeros(ranked.ids.shape[0], ranked.num_classes)
    for rank in reversed(range(ranked.ids.shape[1])):
        node = (ranked.ids[:, rank] >= 0).nonzero().squeeze(1)
        x[node, ranked.ids[node, rank]] = 1 / (rank + 1)
    return x


def _check_memory(what: str, required: int, limit: int) -> None:
    if required > limit:
        raise CapacityError(
            f"{what} require {format_bytes(required)} when dense, more than the limit of {format_bytes(limit)}; "
            'pass features="random:128" or features="degree"'
        )

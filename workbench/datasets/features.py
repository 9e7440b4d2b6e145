"""What `x` becomes: the source's features, random ones or the degree."""

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_finite
from workbench.core.graph import Graph
from workbench.core.host_memory import available_bytes
from workbench.core.randomness import Purpose, stream, uniform
from workbench.core.units import format_bytes
from workbench.datasets.raw import RankedClasses, RawSet, SparseRows, parse_features

DENSE_LIMIT_BYTES = 4 << 30
"""Sparse features that would take more when dense are refused."""
_CHUNK = 1 << 20
_SQRT_12 = 12**0.5


def choose_features(raw: RawSet, graph: Graph, features: str, seed: int) -> tuple[Tensor, str]:
    """`x` [num_nodes, width] and its label.

    The label is what was asked for, or says what "given" turned out to be: `none` (width 0), `ranked-classes`.

    Args:
        raw: the set.
        graph: of the set, with the options applied.
        features: "given", "degree" or "random:WIDTH".
        seed: of random features.

    Raises:
        CapacityError: more bytes than may be used.
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
    """float32 [num_nodes, width], uniform with mean 0 and variance 1, equal bit for bit on every device.

    Raises:
        CapacityError: more than the memory that is free.
    """
    _check_room(f"{num_nodes:,} × {width} random features", num_nodes * width * 4, available_bytes())
    key = stream(seed, Purpose.FEATURES)
    x = torch.empty(num_nodes * width)
    for ids in torch.arange(len(x)).split(_CHUNK):
        x[ids[0] : ids[-1] + 1] = (uniform(key, ids) - 0.5) * _SQRT_12
    return x.view(num_nodes, width)


def densify(rows: SparseRows) -> Tensor:
    """float32 [rows, width]; entries that stand twice are summed.

    Raises:
        CapacityError: above `DENSE_LIMIT_BYTES` or half of the memory that is free.
        ValueError: values that are not finite.
    """
    count = rows.indptr.shape[0] - 1
    what = f"{count:,} × {rows.width:,} features, {rows.values.numel():,} of them not 0,"
    _check_room(what, count * rows.width * 4, min(DENSE_LIMIT_BYTES, available_bytes() // 2))
    check_finite("x_data", rows.values)
    x = torch.zeros(count, rows.width)
    row = torch.repeat_interleave(torch.arange(count), rows.indptr.diff())
    return x.index_put_((row, rows.indices), rows.values.float(), accumulate=True)


def reciprocal_ranks(ranked: RankedClasses) -> Tensor:
    """float32 [nodes, num_classes]: 1 / rank of each class that was guessed, 0 of the others; nothing is lost by it."""
    x = torch.zeros(ranked.ids.shape[0], ranked.num_classes)
    for rank in reversed(range(ranked.ids.shape[1])):
        node = (ranked.ids[:, rank] >= 0).nonzero().squeeze(1)
        x[node, ranked.ids[node, rank]] = 1 / (rank + 1)
    return x


def _check_room(what: str, needed: int, limit: int) -> None:
    if needed > limit:
        raise CapacityError(
            f"{what} take {format_bytes(needed)} when dense, the limit here is {format_bytes(limit)}; "
            'pass features="random:128" or features="degree"'
        )

"""`RawSet`: a data set as stored, and what the `Options` of `load_dataset` make of it: graph, features and split."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.dataset import Dataset, LinkSplit
from workbench.core.errors import (
    CapacityError,
    DataError,
    available_bytes,
    check_at_least,
    check_finite,
    check_seed,
    check_type,
)
from workbench.core.graph import Graph, Undirected
from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.core.units import format_bytes
from workbench.kernels.csr import index_dtype


class SparseRows(NamedTuple):
    """Sparse features in CSR form.

    Args:
        indptr: int64 [rows + 1].
        indices: int64 [nonzeros], columns.
        values: floating [nonzeros].
        width: number of columns.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    width: int


class RankedClasses(NamedTuple):
    """Ranked predictions of each node's class.

    Args:
        ids: int64 [nodes, ranks], class ids, best first, padded with -1.
        num_classes: number of classes.
    """

    ids: Tensor
    num_classes: int


class Split(NamedTuple):
    """Node ids of a split, int64 each."""

    train_idx: Tensor
    val_idx: Tensor
    test_idx: Tensor


@dataclass(frozen=True, eq=False)
class RawSet:
    """A data set as stored.

    Args:
        src: int32 or int64 [edges], source nodes.
        dst: int32 or int64 [edges], destination nodes.
        num_nodes: number of nodes.
        stored_once: whether each undirected edge is stored in one direction only.
        x: features: dense [num_nodes, width], sparse or ranked classes; None: none.
        y: labels: int64 [num_nodes], or floating [num_nodes, labels]; None: none.
        splits: public splits, the most common first.
        num_classes: number of classes; None: inferred from `y`.
        edge_type: integer [edges]; None: untyped.
        node_type: integer [num_nodes]; None: untyped.
        link_split: edges of a link prediction data set; None: node classification.
    """

    src: Tensor
    dst: Tensor
    num_nodes: int
    stored_once: bool = False
    x: Tensor | SparseRows | RankedClasses | None = None
    y: Tensor | None = None
    splits: tuple[Split, ...] = ()
    num_classes: int | None = None
    edge_type: Tensor | None = None
    node_type: Tensor | None = None
    link_split: LinkSplit | None = None


@dataclass(frozen=True)
class Options:
    """Options of `load_dataset`.

    Args:
        undirected: True: add reverse edges and merge duplicates; "multi": keep duplicates; None: as published.
        self_loops: True: exactly one per node, with undirected="multi" its reverse as well; False: none; None: as
            stored.
        features: "given", "degree" or "random:WIDTH".
        split: number of the public split, from 0.
        seed: seed of random features and splits.
    """

    undirected: Undirected | None = None
    self_loops: bool | None = None
    features: str = "given"
    split: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, more in (("undirected", '"multi", '), ("self_loops", "")):
            value = getattr(self, name)
            if not (value is None or isinstance(value, bool) or (more and value == "multi")):
                raise TypeError(f"{name} is {value!r}; it must be {more}True, False or None (as published)")
        check_at_least("split", self.split, 0)
        parse_features(self.features)
        object.__setattr__(self, "split", int(self.split))  # those of NumPy are no JSON
        object.__setattr__(self, "seed", check_seed(self.seed))

    def as_dict(self) -> dict[str, Any]:
        """Return the options by name."""
        return asdict(self)


def parse_features(text: str) -> tuple[str, int]:
    """Parse the option `features`.

    Args:
        text: "given", "degree" or "random:WIDTH".

    Returns:
        The kind, and the width of random features, otherwise 0.

    >>> parse_features("random:128")
    ('random', 128)
    """
    check_type("features", text, str, 'pass "given", "degree" or "random:128"')
    kind, colon, width = text.partition(":")
    if text in ("given", "degree"):
        return text, 0
    if kind == "random" and colon and width.isascii() and width.isdecimal() and int(width) > 0:
        return kind, int(width)
    raise ValueError(f"features {text!r} is not known; choose given, degree or random:WIDTH (random:128)")


def shape_graph(raw: RawSet, *, undirected: Undirected | None, self_loops: bool | None) -> Graph:
    """Build the graph of a data set.

    Args:
        undirected: True: add reverse edges and merge duplicates; "multi": keep duplicates; None: True if each
            undirected edge is stored once, otherwise False.
        self_loops: True: exactly one per node, with undirected="multi" its reverse as well; False: none; None: as
            stored.

    Returns:
        The graph; with "multi" its `edge_ids` are the positions in the stored list (without the self loops that
        `self_loops` removes), plus the number of edges for reverse ones.
    """
    src, dst, types = raw.src, raw.dst, raw.edge_type
    if self_loops is not None:
        proper = src != dst
        src, dst, types = src[proper], dst[proper], None if types is None else types[proper]
    if self_loops:
        if types is not None:
            raise ValueError(
                "self_loops is True, but the edges are typed and self loops have no type; pass self_loops=None or False"
            )
        nodes = torch.arange(raw.num_nodes, dtype=torch.promote_types(src.dtype, index_dtype(raw.num_nodes)))
        src, dst = torch.cat((src, nodes)), torch.cat((dst, nodes))
    add_reverse = raw.stored_once if undirected is None else undirected
    graph = Graph.from_edges(src, dst, num_nodes=raw.num_nodes, undirected=add_reverse, edge_type=types)
    ids = graph.edge_ids if undirected == "multi" else None
    return Graph(graph.indptr, graph.indices, edge_ids=ids, edge_type=graph.edge_type, node_type=raw.node_type)


DENSE_LIMIT_BYTES = 4 << 30
"""Sparse features that need more memory when densified are refused."""

_CHUNK = 1 << 20

_SQRT_12 = 12**0.5


def choose_features(raw: RawSet, graph: Graph, features: str, seed: int) -> tuple[Tensor, str]:
    """Create the features of a data set.

    Args:
        graph: its graph, with the options applied.
        features: "given", "degree" or "random:WIDTH".

    Returns:
        [num_nodes, width], and a label: `features`, or for "given" also "none" (width 0) or "ranked-classes".
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
    """Draw uniform features of mean 0 and variance 1, bit-identical on every machine: float32 [num_nodes, width]."""
    _check_memory(f"{num_nodes:,} × {width} random features", num_nodes * width * 4, available_bytes())
    key = stream(seed, Purpose.FEATURES)
    x = torch.empty(num_nodes * width)
    for start in range(0, len(x), _CHUNK):
        chunk = x[start : start + _CHUNK]
        chunk[:] = (uniform(key, torch.arange(start, start + len(chunk))) - 0.5) * _SQRT_12
    return x.view(num_nodes, width)


def densify(rows: SparseRows) -> Tensor:
    """Convert sparse features to dense ones, summing duplicate entries: float32 [rows, width]."""
    count = rows.indptr.shape[0] - 1
    what = f"{count:,} × {rows.width:,} features, {rows.values.numel():,} of them nonzero,"
    _check_memory(what, count * rows.width * 4, min(DENSE_LIMIT_BYTES, available_bytes() // 2))
    check_finite("x_data", rows.values)
    x = torch.zeros(count, rows.width)
    row = torch.repeat_interleave(torch.arange(count), rows.indptr.diff())
    return x.index_put_((row, rows.indices), rows.values.float(), accumulate=True)


def reciprocal_ranks(ranked: RankedClasses) -> Tensor:
    """Encode ranked classes without loss: 1 / rank of each class in the ranking, 0 of the others.

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


SHARES = (0.6, 0.2, 0.2)


def check_disjoint(split: Split, names: Sequence[str], file: Path) -> None:
    """Check that no node is in two parts of a split.

    Args:
        split: parts, each without duplicates.
    """
    for (first, ids), (second, others) in combinations(zip(names, split, strict=True), 2):
        if len(shared := ids[torch.isin(ids, others)]):
            raise DataError(f"{file}: {first} and {second} both contain node {int(shared[0])}; remove it from one")


def choose_split(raw: RawSet, y: Tensor, *, number: int, seed: int) -> tuple[Split, str]:
    """Choose a public split, or create a seeded one.

    Args:
        seed: seed of the split if none is public.

    Returns:
        The split, and its origin: "public", "public:NUMBER" or "seeded:SEED".
    """
    if number and number >= len(raw.splits):
        raise ValueError(f"split is {number}; this data set has {len(raw.splits)} public splits, numbered from 0")
    if not raw.splits:
        return stratified_split(y, seed), f"seeded:{seed}"
    return raw.splits[number], "public" if len(raw.splits) == 1 else f"public:{number}"


def stratified_split(y: Tensor, seed: int) -> Split:
    """Draw a stratified split: 60 % of each class for training, 20 % for validation, 20 % for test.

    Args:
        y: int64 [num_nodes], -1 for unlabelled nodes, which are in no part unless all are unlabelled; or floating
            [num_nodes, any], treated as one class.

    Returns:
        The split, ids ascending.

    >>> [len(ids) for ids in stratified_split(torch.zeros(10, dtype=torch.int64), 0)]
    [6, 2, 2]
    """
    is_one_class = y.is_floating_point() or not bool((y >= 0).any())
    label = torch.zeros(y.shape[0], dtype=torch.int64) if is_one_class else y
    node = (label >= 0).nonzero().squeeze(1)
    node = node[torch.argsort(uniform(stream(seed, Purpose.SPLIT), node), stable=True)]
    node = node[torch.argsort(label[node], stable=True)]
    _, counts = torch.unique_consecutive(label[node], return_counts=True)
    size = torch.repeat_interleave(counts, counts)
    rank = torch.arange(len(node)) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    quantile = (rank + 0.5) / size
    part = (quantile >= SHARES[0]).long() + (quantile >= SHARES[0] + SHARES[1]).long()
    return Split(*(node[part == p].sort().values for p in range(3)))


def permute_nodes(dataset: Dataset, *, seed: int = 0) -> Dataset:
    """Permute the node ids of a data set.

    Published ids often follow a crawl, a date or a community, so that a range partition is good by accident. Rows of
    the graph and the split are sorted by the new ids, so that nothing of the old order remains.

    Args:
        seed: the same seed gives the same ids.

    Returns:
        A data set with a new fingerprint; its graph has no `edge_ids`, so edge ids are its CSR positions.
    """
    if dataset.link_split is not None:
        raise ValueError(
            f"{dataset.name} has a split of its edges, whose ids can't be permuted; use one for node classification"
        )
    old = permutation(stream(seed, Purpose.SHUFFLE), dataset.graph.num_nodes)
    new = torch.empty_like(old)
    new[old] = torch.arange(len(old))
    return Dataset.build(
        _permuted(dataset.graph, old, new),
        dataset.x[old],
        dataset.y[old],
        train_idx=new[dataset.train_idx].sort().values,
        val_idx=new[dataset.val_idx].sort().values,
        test_idx=new[dataset.test_idx].sort().values,
        num_classes=dataset.num_classes,
        name=dataset.name,
        split=dataset.split,
        features=dataset.features,
    )


def _permuted(graph: Graph, old: Tensor, new: Tensor) -> Graph:
    src = new[graph.indices.long()]
    dst = torch.repeat_interleave(new, graph.in_degrees())
    order = torch.argsort(src, stable=True)  # from_edges keeps this order within rows
    weight, kind = (None if v is None else v[order] for v in (graph.edge_weight, graph.edge_type))
    node_type = None if graph.node_type is None else graph.node_type[old]
    permuted = Graph.from_edges(
        src[order], dst[order], num_nodes=len(new), edge_weight=weight, edge_type=kind, node_type=node_type
    )
    return replace(permuted, edge_ids=None)

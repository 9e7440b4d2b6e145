"""`RawSet`: what a source gives of one set before options are applied; `Options`: what a caller may choose."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_seed
from workbench.core.graph import Graph
from workbench.core.linksplit import LinkSplit
from workbench.kernels.csr import index_dtype


class SparseRows(NamedTuple):
    """Features in CSR form: int64 `indptr` [rows + 1] and `indices`, floating `values`, `width` columns."""

    indptr: Tensor
    indices: Tensor
    values: Tensor
    width: int


class RankedClasses(NamedTuple):
    """int64 `ids` [nodes, ranks]: guesses at each node's class, best first, −1 where there are fewer."""

    ids: Tensor
    num_classes: int


class Split(NamedTuple):
    """Node ids of one public split."""

    train_idx: Tensor
    val_idx: Tensor
    test_idx: Tensor


@dataclass(frozen=True, eq=False)
class RawSet:
    """Edges, features, labels and public splits of a set, as stored.

    Args:
        src: int32 or int64 [edges].
        dst: int32 or int64 [edges].
        num_nodes: nodes.
        stored_once: each undirected edge stands once.
        x: features, None where the source has none.
        y: labels, None where the source has none.
        splits: public splits, best known first.
        num_classes: None: as many as `y` shows.
        edge_type: integer [edges].
        node_type: integer [nodes].
        link_split: of a link prediction set.
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
    """What a caller may choose of a set; see `load_dataset`.

    Raises:
        TypeError: a flag that is neither None nor a bool.
        ValueError: a split or a seed that is no whole number, or features that are not known.
    """

    undirected: bool | None = None
    self_loops: bool | None = None
    features: str = "given"
    split: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("undirected", "self_loops"):
            if getattr(self, name) not in (None, True, False):
                raise TypeError(f"{name} is {getattr(self, name)!r}; it must be True, False or None (as published)")
        check_at_least("split", self.split, 0)
        check_seed(self.seed)
        parse_features(self.features)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_features(text: str) -> tuple[str, int]:
    """Kind of features and the width that the text asks for (0: it asks for none).

    Raises:
        ValueError: not known.

    >>> parse_features("random:128")
    ('random', 128)
    """
    kind, colon, width = text.partition(":")
    if text in ("given", "degree"):
        return text, 0
    if kind == "random" and colon and width.isdigit() and int(width) > 0:
        return kind, int(width)
    raise ValueError(f"features {text!r} is not known; choose given, degree or random:WIDTH (random:128)")


def shape_graph(raw: RawSet, *, undirected: bool | None, self_loops: bool | None) -> Graph:
    """The graph of a set's edges.

    Args:
        raw: the set.
        undirected: add reverse edges and merge duplicates; None: only where each undirected edge is stored once.
        self_loops: True: exactly one on every node; False: none; None: as stored.

    Raises:
        ValueError: typed edges that would need types for reverse edges or loops.
    """
    src, dst, types = raw.src, raw.dst, raw.edge_type
    if self_loops is not None:
        kept = src != dst
        src, dst, types = src[kept], dst[kept], None if types is None else types[kept]
    if self_loops:
        if types is not None:
            raise ValueError("self_loops=True needs a type for the new loops, and this set's edges are typed")
        nodes = torch.arange(raw.num_nodes, dtype=torch.promote_types(src.dtype, index_dtype(raw.num_nodes)))
        src, dst = torch.cat((src, nodes)), torch.cat((dst, nodes))
    both = raw.stored_once if undirected is None else undirected
    graph = Graph.from_edges(src, dst, num_nodes=raw.num_nodes, undirected=both, edge_type=types)
    return Graph(graph.indptr, graph.indices, edge_type=graph.edge_type, node_type=raw.node_type)

"""`RawSet`: a data set as stored, before options are applied; `Options`: the options of `load_dataset`."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_seed
from workbench.core.graph import Graph
from workbench.core.graph_build import Undirected
from workbench.core.link_split import LinkSplit
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
        self_loops: True: exactly one per node; False: none; None: as stored.
        features: "given", "degree" or "random:WIDTH".
        split: number of the public split, from 0.
        seed: seed of random features and splits.

    Raises:
        TypeError: a flag that is neither None nor a bool, or "multi" for `undirected`.
        ValueError: a split or a seed that is not an integer, or unknown features.
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
        check_seed(self.seed)
        parse_features(self.features)

    def as_dict(self) -> dict[str, Any]:
        """Return the options by name."""
        return asdict(self)


def parse_features(text: str) -> tuple[str, int]:
    """Parse the option `features`.

    Args:
        text: "given", "degree" or "random:WIDTH".

    Returns:
        The kind, and the width of random features, otherwise 0.

    Raises:
        ValueError: unknown features.

    >>> parse_features("random:128")
    ('random', 128)
    """
    kind, colon, width = text.partition(":")
    if text in ("given", "degree"):
        return text, 0
    if kind == "random" and colon and width.isdigit() and int(width) > 0:
        return kind, int(width)
    raise ValueError(f"features {text!r} is not known; choose given, degree or random:WIDTH (random:128)")


def shape_graph(raw: RawSet, *, undirected: Undirected | None, self_loops: bool | None) -> Graph:
    """Build the graph of a data set.

    Args:
        raw: the data set as stored.
        undirected: True: add reverse edges and merge duplicates; "multi": keep duplicates; None: True if each
            undirected edge is stored once, otherwise False.
        self_loops: True: exactly one per node; False: none; None: as stored.

    Returns:
        The graph; with "multi" its `edge_ids` are the positions in the stored list (without the self loops that
        `self_loops` removes), plus the number of edges for reverse ones.

    Raises:
        ValueError: typed edges, which have no type for self loops.
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

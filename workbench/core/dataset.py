"""`Dataset`: a graph with node features, labels, a split and a fingerprint of the contents."""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from workbench.core.array_store import content_digest
from workbench.core.block import FLOATS
from workbench.core.errors import (
    check_at_least,
    check_finite,
    check_ids,
    check_tensors,
    check_type,
    check_vector,
    find_out_of_range,
    type_name,
)
from workbench.core.graph import Graph
from workbench.core.shared_storage import TensorRecord
from workbench.core.units import format_bytes, html_table

_SPLITS = ("train_idx", "val_idx", "test_idx")


def _check_matrix(name: str, values: Tensor, rows: int, width: int | None) -> None:
    """Check that a tensor is a matrix of `rows` rows and `width` columns; None accepts any width."""
    check_vector(name, values, rows, FLOATS, columns=True)
    if values.dim() != 2 or width not in (None, values.shape[1]):
        columns = "" if width is None else f" of width {width}"
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it must be a matrix{columns}")


def _check_classes(y: Tensor, rows: int) -> None:
    check_vector("y", y, rows, (torch.int64, *FLOATS), columns=True)
    if y.dim() != 1:
        remedy = "y[:, 0]" if y.shape[1:] == (1,) else "several labels per node as y.float(), 0 or 1 each"
        raise ValueError(f"y has shape {tuple(y.shape)}; it must be a vector: pass {remedy}")


def _check_labels(y: Tensor) -> None:
    """Check that several labels per node are 0 or 1 each."""
    if bool((wrong := (y != 0) & (y != 1)).any()):
        node, label = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"y[{node}, {label}] is {float(y[node, label])}; floating-point labels are 0 or 1, several per node; pass "
            "classes as int64 [num_nodes], -1 for nodes without one"
        )


def _check_split(parts: dict[str, Tensor], num_nodes: int) -> None:
    """Check that all nodes are in range, and none is in the split twice."""
    from workbench.kernels.csr import first_repeat  # imports numba, as `check_unique`

    node = first_repeat(check_ids("the split", torch.cat(list(parts.values())), num_nodes))
    if node is not None:
        names = " and ".join(name for name, ids in parts.items() if bool((ids == node).any()))
        raise ValueError(f"the split contains {node} more than once, in {names}; leave each node in one part, once")


def _count_classes(y: Tensor) -> int:
    """Return the largest class + 1, or the number of labels per node."""
    check_tensors(y=y)
    check_vector("y", y, None, (torch.int64, *FLOATS), columns=True)
    if y.is_floating_point():
        return y.shape[1] if y.dim() == 2 else 1
    return max(0, 1 + int(y.max())) if y.numel() else 0


def _in_brackets_unless(default: str, label: str) -> str:
    return "" if label == default else f" ({label})"


@dataclass(frozen=True, eq=False, repr=False)
class LinkSplit:
    """Training, validation and test edges, and negative pairs for validation and test.

    Args:
        train_edge: int64 [2, num_edges], training edges, each undirected edge once, in the published order.
        valid_edge: int64 [2, num_edges], validation edges.
        valid_edge_neg: int64 [2, num_pairs], validation pairs without an edge.
        test_edge: int64 [2, num_edges], test edges.
        test_edge_neg: int64 [2, num_pairs], test pairs without an edge.

    Raises:
        TypeError: if one is not an int64 tensor.
        ValueError: if one does not have two rows.
    """

    train_edge: Tensor
    valid_edge: Tensor
    valid_edge_neg: Tensor
    test_edge: Tensor
    test_edge_neg: Tensor

    def __post_init__(self) -> None:
        for name, pairs in self.tensors().items():
            if not isinstance(pairs, Tensor) or pairs.dtype != torch.int64:
                raise TypeError(f"{name} must be an int64 tensor, not {type_name(pairs)}; convert with .long()")
            if pairs.dim() != 2 or pairs.shape[0] != 2:
                raise ValueError(
                    f"{name} has shape {tuple(pairs.shape)}; it must be [2, number of pairs]; transpose rows of pairs "
                    "with .T"
                )

    def tensors(self) -> dict[str, Tensor]:
        """Return the edges and pairs by field name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def validate(self, num_nodes: int) -> "LinkSplit":
        """Check every node id and return the split.

        Args:
            num_nodes: number of nodes of the graph.

        Raises:
            IndexError: if a node is out of range.
        """
        for name, pairs in self.tensors().items():
            check_ids(name, pairs.reshape(-1), num_nodes)
        return self

    def to(self, device: Any) -> "LinkSplit":
        """Copy the split to a device."""
        return LinkSplit(**{name: pairs.to(device) for name, pairs in self.tensors().items()})

    def __repr__(self) -> str:
        return "LinkSplit(" + ", ".join(f"{name} {p.shape[1]}" for name, p in self.tensors().items()) + ")"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(TensorRecord):
    """A graph with node features, labels and a train/validation/test split.

    `Dataset.build` validates the contents and computes the fingerprint; the constructor checks dtypes and lengths only.

    Args:
        graph: the graph.
        x: floating point [num_nodes, num_features].
        y: int64 [num_nodes], class of each node, −1 for unlabelled; or floating point [num_nodes, num_classes],
            several labels per node, 0 or 1 each.
        train_idx: int64 [any], node ids.
        val_idx: int64 [any], node ids.
        test_idx: int64 [any], node ids.
        num_classes: width of a model's output.
        name: name for display and for recorded runs.
        fingerprint: sha256 over the contents, without the names.
        split: origin of the split: "public", "public:3" (one of several public splits) or "seeded:0" (generated with
            that seed, because none is public).
        features: origin of `x`: "given", or a label of `workbench.datasets.raw`.
        link_split: edges of a link prediction data set; its training edges are the graph's.

    Raises:
        TypeError: if a tensor has another dtype.
        ValueError: if sizes do not match.
    """

    graph: Graph
    x: Tensor
    y: Tensor
    train_idx: Tensor
    val_idx: Tensor
    test_idx: Tensor
    num_classes: int
    name: str
    fingerprint: str
    split: str = "public"
    features: str = "given"
    link_split: LinkSplit | None = None

    def __post_init__(self) -> None:
        check_type("graph", self.graph, Graph, "pass a Graph (Graph.from_edges, graph_from_dgl, graph_from_pyg)")
        check_tensors(x=self.x, y=self.y, **{name: getattr(self, name) for name in _SPLITS})
        check_at_least("num_classes", self.num_classes, 0)
        _check_matrix("x", self.x, self.graph.num_nodes, None)
        if self.y.is_floating_point():
            if self.y.dim() == 1:
                raise ValueError(
                    f"y has shape {tuple(self.y.shape)} and dtype {self.y.dtype}; pass classes as y.long()"
                )
            _check_matrix("y", self.y, self.graph.num_nodes, self.num_classes)
        else:
            _check_classes(self.y, self.graph.num_nodes)
        for name in _SPLITS:
            check_vector(name, getattr(self, name), None, (torch.int64,))

    @classmethod
    def build(
        cls,
        graph: Graph,
        x: Tensor,
        y: Tensor,
        *,
        train_idx: Tensor,
        val_idx: Tensor,
        test_idx: Tensor,
        num_classes: int | None = None,
        name: str = "unnamed",
        split: str = "public",
        features: str = "given",
        link_split: LinkSplit | None = None,
    ) -> "Dataset":
        """Validate the contents, reading each tensor once, and compute the fingerprint.

        Args:
            graph: the graph.
            x: floating point [num_nodes, num_features], finite.
            y: int64 [num_nodes], class of each node, −1 for unlabelled; or floating point [num_nodes, num_classes],
                several labels per node, 0 or 1 each.
            train_idx: int32 or int64 [any], node ids; no node may occur twice in the whole split.
            val_idx: int32 or int64 [any], node ids.
            test_idx: int32 or int64 [any], node ids.
            num_classes: width of a model's output; by default the largest class + 1, or the width of `y`.
            name: name for display and for recorded runs.
            split: origin of the split: "public", "public:3" or "seeded:0".
            features: origin of `x`: "given", or a label of `workbench.datasets.raw`.
            link_split: edges of a link prediction data set.

        Raises:
            TypeError: if a tensor has another dtype.
            ValueError: if sizes do not match, features are not finite, one of several labels per node is neither 0
                nor 1, or a node occurs twice in the split.
            IndexError: if a node or a class is out of range.
        """
        check_type("graph", graph, Graph, "pass a Graph (Graph.from_edges, graph_from_dgl, graph_from_pyg)")
        splits = {"train_idx": train_idx, "val_idx": val_idx, "test_idx": test_idx}
        splits = {part: check_ids(part, ids, graph.num_nodes, unique=True) for part, ids in splits.items()}
        dataset = cls(
            graph,
            x,
            y,
            **splits,
            num_classes=_count_classes(y) if num_classes is None else num_classes,
            name=name,
            fingerprint="",
            split=split,
            features=features,
            link_split=link_split,
        )
        return replace(dataset.validate(), fingerprint=content_digest(dataset._tensors()))

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    def validate(self) -> "Dataset":
        """Check every value and return the data set.

        Raises:
            ValueError: if features are not finite, one of several labels per node is neither 0 nor 1, a node occurs
                twice in the split, or the graph is invalid.
            IndexError: if a node or a class is out of range.
        """
        self.graph.validate()
        check_finite("x", self.x)
        if self.y.is_floating_point():
            _check_labels(self.y)
        elif (bad := find_out_of_range(self.y, -1, self.num_classes)) is not None:
            raise IndexError(
                f"y contains {bad}; classes must be in [0, {self.num_classes}), or -1 for unlabelled nodes"
            )
        _check_split({name: getattr(self, name) for name in _SPLITS}, self.graph.num_nodes)
        if self.link_split is not None:
            self.link_split.validate(self.graph.num_nodes)
        return self

    def to(self, device: Any, *, non_blocking: bool = False) -> "Dataset":
        """Copy the data set to a device."""
        moved = {n: getattr(self, n).to(device, non_blocking=non_blocking) for n in ("graph", "x", "y", *_SPLITS)}
        links = None if self.link_split is None else self.link_split.to(device)
        return replace(self, **moved, link_split=links)

    def _tensors(self) -> dict[str, Tensor | None]:
        links = {} if self.link_split is None else self.link_split.tensors()
        return (
            {f"graph.{name}": tensor for name, tensor in self.graph._tensors().items()}
            | {name: getattr(self, name) for name in ("x", "y", *_SPLITS)}
            | {f"link_split.{name}": tensor for name, tensor in links.items()}
        )

    def _sizes(self) -> dict[str, str]:
        dtype = str(self.x.dtype).removeprefix("torch.")
        train, val, test = (f"{getattr(self, name).shape[0]:,}" for name in _SPLITS)
        return {
            "nodes": f"{self.graph.num_nodes:,}",
            "edges": f"{self.graph.num_edges:,}",
            "features": f"{self.num_features:,} {dtype}{_in_brackets_unless('given', self.features)}",
            "classes": f"{self.num_classes:,}",
            "train / val / test": f"{train} / {val} / {test}{_in_brackets_unless('public', self.split)}",
            "bytes": format_bytes(self.nbytes),
        }

    def __repr__(self) -> str:
        return f"Dataset({self.name}: " + ", ".join(f"{key} {value}" for key, value in self._sizes().items()) + ")"

    def _repr_html_(self) -> str:
        return html_table(self.name, self._sizes())

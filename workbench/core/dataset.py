"""`Dataset`: a graph with features, labels and a split, and the fingerprint of all of it."""

import html
from dataclasses import dataclass, replace
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
    first_outside,
)
from workbench.core.graph import Graph
from workbench.core.linksplit import LinkSplit
from workbench.core.storage import total_bytes
from workbench.core.units import format_bytes

_SPLITS = ("train_idx", "val_idx", "test_idx")


def _check_rows(name: str, values: Tensor, rows: int, width: int | str | None, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check a tensor of `rows` rows of one width ("any" of them), or of no width."""
    check_vector(name, values, rows, dtypes, columns=True)
    if list(values.shape[1:]) != ([] if width is None else [values.shape[-1] if width == "any" else width]):
        needed = "a vector" if width is None else f"a matrix of width {width}"
        remedy = f": pass {name}[:, 0]" if width is None and values.shape[1:] == (1,) else ""
        raise ValueError(f"{name} has shape {tuple(values.shape)}; it must be {needed}{remedy}")


def _count_classes(y: Tensor) -> int:
    check_tensors(y=y)
    check_vector("y", y, None, (torch.int64, *FLOATS), columns=True)
    if y.is_floating_point():
        return y.shape[1] if y.dim() == 2 else 1
    return max(0, 1 + int(y.max())) if y.numel() else 0


def _unless(label: str, usual: str) -> str:
    return "" if label == usual else f" ({label})"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A graph with features, labels and a split of its nodes; `Dataset.build` checks the parts and signs them.

    Construction checks dtypes and lengths; `validate` reads everything.

    Args:
        graph: with as many nodes as there are rows of `x` and `y`.
        x: floating [num_nodes, num_features].
        y: int64 [num_nodes], class of each node, −1 for none; or floating [num_nodes, num_classes], several labels.
        train_idx: int64 [any], node ids.
        val_idx: int64 [any], node ids.
        test_idx: int64 [any], node ids.
        num_classes: width of a model's output.
        name: for people and for runs.
        fingerprint: sha256 over the contents, not the names.
        split: "public", "public:3" (one of several public ones) or "seeded:0" (none is public; made with that seed).
        features: what `x` is: "given", or a label of `workbench.datasets.features`.
        link_split: edges of a link prediction set, whose training edges are the graph's.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: sizes that do not fit each other.
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
        _check_rows("x", self.x, self.graph.num_nodes, "any", FLOATS)
        several = self.y.is_floating_point()
        _check_rows("y", self.y, self.graph.num_nodes, self.num_classes if several else None, (torch.int64, *FLOATS))
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
        """Check the parts, all of them read once, and compute the fingerprint.

        Args:
            graph: see `Dataset`, like the rest.
            x: floating [num_nodes, num_features], finite.
            y: int64 [num_nodes] or floating [num_nodes, num_classes].
            train_idx: int32 or int64, each node at most once in all of the split.
            val_idx: like `train_idx`.
            test_idx: like `train_idx`.
            num_classes: default: the largest class + 1, or the width of `y`.
            name: for people and for runs.
            split: where the split comes from.
            features: what `x` is.
            link_split: edges of a link prediction set.

        Raises:
            TypeError: a tensor of another dtype.
            ValueError: sizes that do not fit each other, features that are not finite, nodes that stand twice.
            IndexError: a node or a class out of range.
        """
        check_type("graph", graph, Graph, "pass a Graph (Graph.from_edges, graph_from_dgl, graph_from_pyg)")
        splits = {"train_idx": train_idx, "val_idx": val_idx, "test_idx": test_idx}
        splits = {part: check_ids(part, ids, graph.num_nodes, unique=True) for part, ids in splits.items()}
        if num_classes is None:
            num_classes = _count_classes(y)
        more = {
            "num_classes": num_classes,
            "name": name,
            "split": split,
            "features": features,
            "link_split": link_split,
        }
        dataset = cls(graph, x, y, **splits, **more, fingerprint="").validate()
        return replace(dataset, fingerprint=content_digest(dataset._tensors()))

    @property
    def num_features(self) -> int:
        return self.x.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, the graph's included."""
        return total_bytes(self._tensors().values())

    def validate(self) -> "Dataset":
        """Read all of it and return it.

        Raises:
            ValueError: features that are not finite, nodes that stand twice in the split, an invalid graph.
            IndexError: a node or a class out of range.
        """
        self.graph.validate()
        check_finite("x", self.x)
        if self.y.is_floating_point():
            check_finite("y", self.y)
        elif (bad := first_outside(self.y, -1, self.num_classes)) is not None:
            raise IndexError(f"y holds {bad}; classes lie in [0, {self.num_classes}), and -1 means none")
        check_ids("the split", torch.cat([getattr(self, name) for name in _SPLITS]), self.graph.num_nodes, unique=True)
        if self.link_split is not None:
            self.link_split.validate(self.graph.num_nodes)
        return self

    def to(self, device: Any) -> "Dataset":
        """The dataset on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("graph", "x", "y", *_SPLITS)}
        links = None if self.link_split is None else self.link_split.to(device)
        return replace(self, **moved, link_split=links)

    def _tensors(self) -> dict[str, Tensor | None]:
        own = {name: getattr(self, name) for name in ("x", "y", *_SPLITS)}
        links = {} if self.link_split is None else self.link_split.tensors()
        graph = self.graph._tensors()
        return (
            {f"graph.{name}": tensor for name, tensor in graph.items()}
            | own
            | {f"link_split.{name}": tensor for name, tensor in links.items()}
        )

    def _sizes(self) -> dict[str, str]:
        dtype = str(self.x.dtype).removeprefix("torch.")
        train, val, test = (f"{getattr(self, name).shape[0]:,}" for name in _SPLITS)
        return {
            "nodes": f"{self.graph.num_nodes:,}",
            "edges": f"{self.graph.num_edges:,}",
            "features": f"{self.num_features:,} {dtype}{_unless(self.features, 'given')}",
            "classes": f"{self.num_classes:,}",
            "train / val / test": f"{train} / {val} / {test}{_unless(self.split, 'public')}",
            "bytes": format_bytes(self.nbytes),
        }

    def __repr__(self) -> str:
        return f"Dataset({self.name}: " + ", ".join(f"{key} {value}" for key, value in self._sizes().items()) + ")"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in self._sizes().items())
        return f"<table><caption>{html.escape(self.name)}</caption><tbody>{rows}</tbody></table>"

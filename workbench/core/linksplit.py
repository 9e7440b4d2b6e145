"""`LinkSplit`: the edges of a link prediction set, as its publishers split them."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_ids, kind_of


@dataclass(frozen=True, eq=False, repr=False)
class LinkSplit:
    """Edges to learn, to choose by and to test, and pairs that are no edges.

    Args:
        train_edge: int64 [2, any], each undirected edge once, in the publishers' order.
        valid_edge: int64 [2, any].
        valid_edge_neg: int64 [2, any], pairs without an edge.
        test_edge: int64 [2, any].
        test_edge_neg: int64 [2, any], pairs without an edge.

    Raises:
        TypeError: not an int64 tensor.
        ValueError: not two rows.
    """

    train_edge: Tensor
    valid_edge: Tensor
    valid_edge_neg: Tensor
    test_edge: Tensor
    test_edge_neg: Tensor

    def __post_init__(self) -> None:
        for name, pairs in self.tensors().items():
            if not isinstance(pairs, Tensor) or pairs.dtype != torch.int64:
                raise TypeError(f"{name} must be an int64 tensor, not {kind_of(pairs)}; convert with .long()")
            if pairs.dim() != 2 or pairs.shape[0] != 2:
                raise ValueError(
                    f"{name} has shape {tuple(pairs.shape)}; it must be [2, number of pairs] (pairs in rows: .T)"
                )

    def tensors(self) -> dict[str, Tensor]:
        """Its edges by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def validate(self, num_nodes: int) -> "LinkSplit":
        """Read all of it and return it.

        Raises:
            IndexError: a node out of range.
        """
        for name, pairs in self.tensors().items():
            check_ids(name, pairs.reshape(-1), num_nodes)
        return self

    def to(self, device: Any) -> "LinkSplit":
        """The edges on another device."""
        return LinkSplit(**{name: pairs.to(device) for name, pairs in self.tensors().items()})

    def __repr__(self) -> str:
        return "LinkSplit(" + ", ".join(f"{name} {p.shape[1]}" for name, p in self.tensors().items()) + ")"

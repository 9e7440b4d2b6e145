"""`LinkSplit`: the published train/validation/test split of a link prediction data set."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_ids, type_name


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

"""Device bytes per node and edge of a batch, which partitioners balance between parts."""

from collections.abc import Sequence
from dataclasses import dataclass

INPUT_BYTES = 512  # a row of 128 features in float32
EDGE_BYTES = 16  # an edge's index with its entry in the transposed block
_MAX_BYTES = 1e15  # of one node or edge; sums over a batch stay exact enough to compare


@dataclass(frozen=True)
class ByteCosts:
    """Device bytes that a micro-batch needs for each of its nodes and edges, by layer.

    `workbench.byte_costs` computes those of a model; without costs, partitioners count 512 bytes per input node and 16
    per edge.

    Args:
        per_node: non-negative bytes per node, one more than there are layers: per input node, then per destination of
            each layer, input layer first.
        per_edge: non-negative bytes per edge of each layer, input layer first.

    Raises:
        ValueError: negative or infinite bytes, none per input node, or another number of layers.
    """

    per_node: tuple[float, ...]
    per_edge: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("per_node", "per_edge"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            _check(name, getattr(self, name))
        if len(self.per_node) and not self.per_node[0]:
            raise ValueError("per_node[0] is 0; the bytes per input node must be positive, 1 or more")
        if len(self.per_node) != len(self.per_edge) + 1:
            raise ValueError(
                f"per_node has {len(self.per_node)} numbers and per_edge {len(self.per_edge)}; pass one number per "
                "layer for edges, and one more for nodes (the inputs)"
            )

    @staticmethod
    def default(num_layers: int) -> "ByteCosts":
        """Return 512 bytes per input node and 16 per edge of any layer."""
        return ByteCosts((INPUT_BYTES, *[0] * num_layers), (EDGE_BYTES,) * num_layers)


def _check(name: str, numbers: Sequence[float]) -> None:
    bad = [number for number in numbers if not 0 <= number <= _MAX_BYTES]
    if bad:
        raise ValueError(f"{name} contains {bad[0]}; bytes must be finite and non-negative, at most {_MAX_BYTES:.0e}")

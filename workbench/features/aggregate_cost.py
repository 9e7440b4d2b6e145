"""The bytes of a batch's input layer, sampled or aggregated: the cost model of BatchGNN's aggregation cache."""

from typing import NamedTuple

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch


class InputHop(NamedTuple):
    """The last hop of a sampled batch.

    Args:
        expanded: |V|, nodes whose neighbours it samples: the destinations of the first block.
        new: |N(V)|, sources that are not among them.
        edges: sampled edges.
    """

    expanded: int
    new: int
    edges: int

    @staticmethod
    def of(mb: MiniBatch) -> "InputHop":
        """Count the last hop of a batch.

        Raises:
            ValueError: the batch has exchanges or no blocks.
        """
        refuse_halo(mb.exchanges, "counted")
        if not mb.blocks:
            raise ValueError("the batch has no block of an input layer; sample all layers of the model to count them")
        first = mb.blocks[0]
        return InputHop(first.num_dst, first.num_src - first.num_dst, first.num_edges)

    def sampled_bytes(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> int:
        """Bytes of a sampled input layer: |V|·S + |N(V)|·S + T_v + T_n + T_e.

        Args:
            row_bytes: S, bytes of a row of features.
            node_bytes: bytes of topology per node.
            edge_bytes: bytes of topology per edge.

        Source: BatchGNN, equation 4.
        """
        return (self.expanded + self.new) * (row_bytes + node_bytes) + self.edges * edge_bytes

    def aggregated_bytes(self, *, row_bytes: int, node_bytes: int = 8) -> int:
        """Bytes of an input layer whose aggregates are precomputed: 2·|V|·S + T_v.

        Args:
            row_bytes: S, bytes of a row of features, and of an aggregate.
            node_bytes: bytes of topology per node.

        Source: BatchGNN, equation 5.
        """
        return self.expanded * (2 * row_bytes + node_bytes)

    def aggregates_pay(self, *, row_bytes: int, node_bytes: int = 8, edge_bytes: int = 8) -> bool:
        """Return whether aggregates take fewer bytes: |N(V)|·S + T_n + T_e > |V|·S."""
        sampled = self.sampled_bytes(row_bytes=row_bytes, node_bytes=node_bytes, edge_bytes=edge_bytes)
        return sampled > self.aggregated_bytes(row_bytes=row_bytes, node_bytes=node_bytes)

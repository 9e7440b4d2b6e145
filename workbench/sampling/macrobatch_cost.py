"""The cost models of BatchGNN: bytes that a rank fetches mini-batch by mini-batch, in macrobatches, from the cache.

With M mini-batches, macrobatches of B, T_i bytes of topology and f_i input nodes of mini-batch i, A_k the union of the
input nodes of macrobatch k, S bytes per row of features and C bytes that every relay costs:

    one by one (2)     Σ T_i + M C   + S Σ_i |f_i|
    macrobatches (3)   Σ T_i + M C/B + S Σ_k |A_k|

With V the nodes that the input layer's sampling expands, N(V) its sources outside V, and T_v, T_n, T_e the bytes of the
ids of V, of N(V) and of its edges, the input layer costs

    sampled (4)            S |V| + S |N(V)| + T_v + T_n + T_e
    cached aggregates (5)  S |V| + S |V|    + T_v

so the cache pays in bytes where S |N(V)| + T_n + T_e > S |V|.

Hoang et al.: "BatchGNN: Efficient CPU-based distributed GNN training on very large graphs", appendices A and C.
"""

from typing import NamedTuple

from workbench.core.errors import check_at_least
from workbench.sampling.macrobatch_work import MacrobatchWork

ID_BYTES, COUNT_BYTES, EDGE_BYTES = 8, 4, 4
"""Of an id that is asked for, of the length of a row in the answer, and of an edge's source below 2³¹."""


class FetchBytes(NamedTuple):
    """Modelled bytes that a rank receives from others in an epoch.

    Args:
        topology: Σ T_i: ids of the nodes that others expand for it, the lengths of their rows, and a source per edge.
        relays: bytes that relays cost whatever they fetch.
        features: rows of features, and of aggregates.
    """

    topology: float
    relays: float
    features: float

    @property
    def total(self) -> float:
        return sum(self)


def macrobatch_bytes(
    work: MacrobatchWork,
    *,
    row_bytes: int,
    relay_bytes: float = 0.0,
    edge_bytes: int = EDGE_BYTES,
    aggregates: bool = False,
) -> FetchBytes:
    """Model the bytes that a rank fetches in an epoch.

    Args:
        work: what it fetches, counted; its macrobatch of size 1 gives equation 2, larger ones equation 3.
        row_bytes: S, bytes of a row of features.
        relay_bytes: C, bytes that sampling and fetching a macrobatch costs whatever it contains.
        edge_bytes: of an edge's source in an answer.
        aggregates: read the input layer's aggregates from the owners' caches, so that its edges are not sampled
            (equation 5 in place of 4).

    Raises:
        ValueError: a negative size.

    Source: BatchGNN, equations 2 to 5.
    """
    check_at_least("row_bytes", row_bytes, 0)
    if not relay_bytes >= 0:
        raise ValueError(f"relay_bytes is {relay_bytes}; it must be at least 0")
    layers = range(1 if aggregates else 0, len(work.asked))
    topology = sum((ID_BYTES + COUNT_BYTES) * work.asked[layer] + edge_bytes * work.edges[layer] for layer in layers)
    rows = work.rows_with_aggregates if aggregates else work.rows
    return FetchBytes(float(topology), relay_bytes * work.num_macrobatches, float(row_bytes * rows))


def sampled_layer_bytes(expanded: int, others: int, edges: int, *, row_bytes: int) -> int:
    """Bytes that sampling the input layer costs.

    Args:
        expanded: |V|, nodes that are expanded.
        others: |N(V)|, sampled sources that are not in V.
        edges: sampled edges.
        row_bytes: S, bytes of a row of features.

    Source: BatchGNN, equation 4.
    """
    return row_bytes * (expanded + others) + ID_BYTES * (expanded + others) + EDGE_BYTES * edges


def aggregated_layer_bytes(expanded: int, *, row_bytes: int) -> int:
    """Bytes that the input layer costs if its aggregates are fetched.

    Args:
        expanded: |V|, nodes whose features and aggregates are fetched.
        row_bytes: S, bytes of a row of features, and of aggregates.

    Source: BatchGNN, equation 5.
    """
    return 2 * row_bytes * expanded + ID_BYTES * expanded

"""Static caches: rows chosen in advance, by degree or by how often a sample of batches read them; nothing is replaced.

Source: Lin et al., "PaGraph: Scaling GNN training on large graphs via computation-aware caching", SoCC 2020 (degree);
Yang et al., "GNNLab: A factored system for sample-based GNN training over GPUs", EuroSys 2022 (presampled frequency).
"""

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_at_least, check_ids, check_type
from workbench.core.graph import Graph
from workbench.core.trace import AccessTrace
from workbench.features.cache.state import SIZE, CacheState, empty_state
from workbench.kernels.jit import compiled


def rank_by_degree(graph: Graph) -> Tensor:
    """Rank nodes by the number of neighbour lists that contain them, the most frequent first: PaGraph's static cache.

    Args:
        graph: the graph that is sampled.

    Returns:
        int64 [num_nodes], node ids; equal degrees in the order of their ids.

    Source: PaGraph (SoCC 2020), section 3.3.
    """
    check_type("graph", graph, Graph, "pass a wb.Graph")
    return _descending(torch.bincount(graph.indices, minlength=graph.num_nodes))


def rank_by_frequency(trace: AccessTrace, *, num_rows: int | None = None) -> Tensor:
    """Rank rows by how often a trace reads them, the most frequent first: GNNLab's presampling.

    Args:
        trace: reads of some batches, such as those of one epoch with another seed.
        num_rows: number of rows to rank; None: up to the largest id of the trace.

    Returns:
        int64 [num_rows], row ids; equal counts in the order of their ids.

    Raises:
        IndexError: an id that is not below `num_rows`.
        CapacityError: the ranking does not fit into memory.

    Source: GNNLab (EuroSys 2022), section 6.3, with one or more presampled epochs.
    """
    check_type("trace", trace, AccessTrace, "pass wb.AccessTrace.of(reads)")
    num_rows = num_rows_of(trace) if num_rows is None else num_rows
    check_at_least("num_rows", num_rows, 0)
    check_fits(f"a ranking of {num_rows:,} rows", 24 * num_rows, "number the rows from 0")
    return _descending(torch.bincount(check_ids("trace.ids", trace.ids, num_rows), minlength=num_rows))


def num_rows_of(trace: AccessTrace) -> int:
    """Return the smallest number of rows that a trace can be about."""
    return int(trace.ids.max()) + 1 if len(trace.ids) else 0


def _descending(counts: Tensor) -> Tensor:
    return torch.argsort(counts, descending=True, stable=True)


def static_state(num_rows: int, capacity: int, rows: Tensor) -> CacheState:
    """Return the state of a cache that contains the first `capacity` of some rows, in slots of that order.

    Args:
        num_rows: number of rows of the store.
        capacity: number of slots.
        rows: int64 or int32 [any], ids, each once.

    Raises:
        IndexError: an id out of range.
        ValueError: an id that occurs twice.
    """
    rows = check_ids("rows", rows, num_rows, unique=True)[:capacity].cpu()
    state = empty_state(num_rows, capacity)
    state.counters[SIZE] = len(rows)
    _fill(state, rows.numpy())
    return state


@compiled(_nrt=False)
def _fill(s, rows):
    for slot in range(len(rows)):
        s.row_of[slot] = rows[slot]
        s.node_of[rows[slot]] = slot

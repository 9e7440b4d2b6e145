"""Tiny random graphs and mini-batches for all tests, built by brute force in plain Python, without samplers or kernels.

`random_graph` and `random_minibatch` are functions of their seed; `graphs()` and `minibatches()` are hypothesis
strategies over them. They include multi-edges, self loops and nodes without in-edges.
"""

import random
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import settings, strategies as st
from torch import Tensor

from workbench.core.block import Block
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch

Edge = tuple[int, int, int]  # source, destination, id


def examples(number: int, **options: Any) -> settings:
    """Settings of a property whose examples take long: this number by default, in proportion in other profiles."""
    return settings(max_examples=number * settings().max_examples // 25, **options)


def random_edges(num_nodes: int, num_edges: int, seed: int) -> tuple[list[int], list[int]]:
    """Return unordered sources and destinations; small ids are hubs, so degrees are uneven and pairs repeat."""
    rng = random.Random(seed)
    src = [rng.randrange(num_nodes) for _ in range(num_edges)]
    dst = [int(num_nodes * rng.random() ** 2) for _ in range(num_edges)]
    return src, dst


def edges_by_destination(num_nodes: int, src: Sequence[int], dst: Sequence[int]) -> list[list[Edge]]:
    """Return the in-edges of each node, in the caller's order."""
    rows: list[list[Edge]] = [[] for _ in range(num_nodes)]
    for position, (s, d) in enumerate(zip(src, dst, strict=True)):
        rows[d].append((s, d, position))
    return rows


def random_types(count: int, num_types: int, rng: random.Random) -> Tensor | None:
    return torch.tensor([rng.randrange(num_types) for _ in range(count)], dtype=torch.int64) if num_types else None


def random_graph(
    num_nodes: int = 12,
    num_edges: int = 40,
    seed: int = 0,
    *,
    index_dtype: torch.dtype = torch.int32,
    edge_ids: bool = True,
    edge_weight: torch.dtype | None = None,
    num_edge_types: int = 0,
    num_node_types: int = 0,
) -> Graph:
    """Build a random directed graph.

    Args:
        num_nodes: number of nodes, at least 1 if there are edges.
        num_edges: number of edges.
        seed: seed of Python's generator.
        index_dtype: dtype of `indices`.
        edge_ids: set edge ids to positions in the unsorted list; otherwise they are CSR positions.
        edge_weight: dtype of weights in (0, 1]; None for an unweighted graph.
        num_edge_types: number of edge types; 0 for none.
        num_node_types: number of node types; 0 for none.
    """
    rows = edges_by_destination(num_nodes, *random_edges(num_nodes, num_edges, seed))
    flat = [edge for row in rows for edge in row]
    rng = random.Random(seed + 1)
    indptr = torch.tensor([0, *(len(row) for row in rows)], dtype=torch.int64).cumsum(0)
    return Graph(
        indptr,
        torch.tensor([s for s, _, _ in flat], dtype=index_dtype),
        edge_ids=torch.tensor([e for _, _, e in flat], dtype=torch.int64) if edge_ids else None,
        edge_weight=None if edge_weight is None else torch.tensor([1 - rng.random() for _ in flat], dtype=edge_weight),
        edge_type=random_types(len(flat), num_edge_types, rng),
        node_type=random_types(len(rows), num_node_types, rng),
    )


def brute_force_block(
    graph: Graph, node_ids: list[int], fanout: int, rng: random.Random, *, edge_ids: bool
) -> tuple[Block, list[int]]:
    """Sample a layer for the destinations `node_ids`; also return its sources: destinations, then new ones in order."""
    indptr, sources = graph.indptr.tolist(), graph.indices.tolist()
    local = {node: i for i, node in enumerate(node_ids)}
    sampled: list[int] = []
    degrees = []
    for node in node_ids:
        row = range(indptr[node], indptr[node + 1])
        drawn = list(row) if fanout < 0 or len(row) <= fanout else sorted(rng.sample(row, fanout))
        degrees.append(len(drawn))
        sampled += drawn
        for position in drawn:
            local.setdefault(sources[position], len(local))
    positions = torch.tensor(sampled, dtype=torch.int64)
    raw_ids = positions if graph.edge_ids is None else graph.edge_ids[positions]
    block = Block(
        torch.tensor([0, *degrees], dtype=torch.int64).cumsum(0),
        torch.tensor([local[sources[p]] for p in sampled], dtype=torch.int32),
        num_src=len(local),
        num_dst=len(node_ids),
        edge_ids=raw_ids if edge_ids else None,
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[positions],
        edge_type=None if graph.edge_type is None else graph.edge_type[positions],
    )
    return block, list(local)


def random_minibatch(
    graph: Graph | None = None,
    seeds: Tensor | Sequence[int] | None = None,
    fanouts: Sequence[int] = (3, 2),
    seed: int = 0,
    *,
    num_seeds: int = 5,
    edge_ids: bool = True,
    step: int = 0,
) -> MiniBatch:
    """Sample a mini-batch by brute force.

    Args:
        graph: the graph; by default `random_graph(seed=seed)`.
        seeds: unique raw-graph ids; by default `num_seeds` random nodes.
        fanouts: fanout per layer, input layer first; −1 for all neighbours.
        seed: seed of Python's generator.
        num_seeds: number of random seeds.
        edge_ids: set `Block.edge_ids`.
        step: number of the batch.
    """
    graph = random_graph(seed=seed) if graph is None else graph
    rng = random.Random(seed)
    seed_list = seeds.tolist() if isinstance(seeds, Tensor) else seeds
    node_ids = rng.sample(range(graph.num_nodes), num_seeds) if seed_list is None else list(seed_list)
    blocks: list[Block] = []
    for fanout in reversed(fanouts):
        block, node_ids = brute_force_block(graph, node_ids, fanout, rng, edge_ids=edge_ids)
        blocks.insert(0, block)
    return MiniBatch(torch.tensor(node_ids, dtype=torch.int64), tuple(blocks), step=step)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12, max_edges: int = 40) -> Graph:
    """Draw random graphs: int32 or int64 ids, with or without edge ids, weights and types."""
    return random_graph(
        draw(st.integers(1, max_nodes)),
        draw(st.integers(0, max_edges)),
        draw(st.integers(0, 2**16)),
        index_dtype=draw(st.sampled_from((torch.int32, torch.int64))),
        edge_ids=draw(st.booleans()),
        edge_weight=draw(st.sampled_from((None, torch.float32, torch.float64))),
        num_edge_types=draw(st.sampled_from((0, 3))),
    )


@st.composite
def minibatches(draw: st.DrawFn, max_layers: int = 3, max_nodes: int = 12, max_edges: int = 40) -> MiniBatch:
    """Draw random mini-batches of random graphs, possibly without seeds, edges or edge ids."""
    graph = draw(graphs(max_nodes, max_edges))
    return random_minibatch(
        graph,
        fanouts=draw(st.lists(st.integers(-1, 4), min_size=1, max_size=max_layers)),
        seed=draw(st.integers(0, 2**16)),
        num_seeds=draw(st.integers(0, graph.num_nodes)),
        edge_ids=draw(st.booleans()),
        step=draw(st.integers(0, 9)),
    )

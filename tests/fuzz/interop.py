"""Fuzz targets: objects of DGL, PyG, SciPy and networkx, mutated before conversion."""

import random
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from tests.fuzz.mutate import mutated, wrong
from tests.strategies import random_graph, random_minibatch
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.interop import from_scipy, graph_from_pyg, to_scipy
from workbench.training.adapters import micro_batches


def _batch() -> MiniBatch:
    return random_minibatch(random_graph(20, 90, edge_weight=torch.float32, num_edge_types=3), fanouts=(3, 2))


def dgl_blocks(rng: random.Random) -> None:
    dgl = pytest.importorskip("dgl")
    blocks: list[Any] = _batch().to_dgl()
    block = rng.choice(blocks)
    frame, name = rng.choice(((block.srcdata, dgl.NID), (block.dstdata, dgl.NID), (block.edata, dgl.EID)))
    value = mutated(frame[name], rng)
    try:
        frame[name] = value
    except Exception:  # DGL rejects the value itself
        blocks = mutated(blocks, rng)
    if rng.random() < 0.5:
        MiniBatch.from_dgl(blocks).validate()
    else:
        for part in micro_batches(blocks, 2, method="random"):
            MiniBatch.from_dgl(part).validate()


def pyg_layers(rng: random.Random) -> None:
    batch = _batch().to_pyg()
    fields = batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)  # without PyG, a `PygBatch`
    valid = {name: value for name, value in fields.items() if name in _PYG}
    MiniBatch.from_pyg(SimpleNamespace(**wrong(valid, rng))).validate(unique=False)


def pyg_adjacency(rng: random.Random) -> None:
    batch = _batch().to_pyg()
    edges, e_id, (num_src, num_dst) = batch.adjs[0]
    valid = {"edges": edges, "e_id": e_id, "num_src": num_src, "num_dst": num_dst}
    bad = wrong(valid, rng)
    batch.adjs[0] = (bad["edges"], bad["e_id"], (bad["num_src"], bad["num_dst"]))
    for part in micro_batches(batch, 2, method="random"):
        MiniBatch.from_pyg(part).validate()


_PYG = ("n_id", "adjs", "adj_weights", "adj_types", "edge_index")


def pyg_hops(rng: random.Random) -> None:
    valid = {
        "n_id": torch.tensor([5, 9, 4, 7, 8]),
        "edge_index": torch.tensor([[2, 3, 1, 4, 4, 0], [0, 0, 1, 2, 3, 3]]),
        "num_sampled_nodes": [2, 2, 1],
        "num_sampled_edges": [3, 3],
        "batch_size": 2,
        "e_id": torch.arange(6),
    }
    batch = SimpleNamespace(**wrong(valid, rng))
    for part in micro_batches(batch, 2, method="random"):
        MiniBatch.from_pyg(part).validate(unique=False)


def pyg_graph(rng: random.Random) -> None:
    edges = torch.randint(9, (2, 30), generator=torch.Generator().manual_seed(0))
    valid = {"edge_index": edges, "num_nodes": 9, "edge_weight": torch.rand(30), "edge_type": torch.arange(30)}
    graph_from_pyg(SimpleNamespace(**wrong(valid, rng))).validate()


def scipy_matrix(rng: random.Random) -> None:
    pytest.importorskip("scipy")
    matrix = to_scipy(random_graph(9, 30, edge_weight=torch.float32))
    name = rng.choice(("data", "indices", "indptr"))
    values = getattr(matrix, name).copy()
    if rng.random() < 0.2:
        matrix = mutated(matrix, rng)
    else:
        values[rng.randrange(len(values))] = rng.choice((-1, 1000, 2**30, -(2**31)))
        setattr(matrix, name, values.astype(rng.choice((values.dtype, np.int64))))
    from_scipy(matrix, weighted=rng.random() < 0.7).validate()


def networkx_graph(rng: random.Random) -> None:
    graph: Any = networkx.gnm_random_graph(9, 20, seed=1, directed=rng.random() < 0.5)
    for edge in graph.edges:
        graph.edges[edge]["weight"] = 0.5
    if rng.random() < 0.5:
        wrong_value = rng.choice((None, "a", float("nan"), 2**70, [1.0], True, 1j))
        graph.edges[rng.choice(list(graph.edges))][rng.choice(("weight", "edge_type"))] = wrong_value
    if rng.random() < 0.3:
        graph = networkx.relabel_nodes(graph, {4: rng.choice(("a", -1, 9, 1.5, (4,)))})
    if rng.random() < 0.1:
        graph = mutated(graph, rng)
    Graph.from_networkx(graph, weight=rng.choice(("weight", "capacity", None))).validate()


CATEGORIES = {
    "dgl": (dgl_blocks,),
    "pyg": (pyg_layers, pyg_adjacency, pyg_hops, pyg_graph),
    "scipy": (scipy_matrix,),
    "networkx": (networkx_graph,),
}

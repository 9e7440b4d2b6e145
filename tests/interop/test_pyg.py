"""Batches and graphs of PyG: round trips are exact."""

import pickle
import sys
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, strategies as st

from tests.interop.exact import assert_batches_equal, assert_fields_equal, full_batch, shuffled
from tests.strategies import graphs, minibatches, random_graph, random_minibatch
from workbench.core.minibatch import MiniBatch
from workbench.interop import (
    PygBatch,
    graph_from_pyg,
    graph_to_pyg,
)


@given(minibatches(), st.integers(0, 99))
def test_pyg_round_trip(mb, seed):
    mb = shuffled(mb, seed)
    assert_batches_equal(MiniBatch.from_pyg(mb.to_pyg(), step=mb.step), mb)


def one_sample_per_node(mb):
    """Brute force: a node has the same edges in every layer."""
    rows = [
        [block.indices[block.indptr[i] : block.indptr[i + 1]].tolist() for i in range(block.num_dst)]
        for block in mb.blocks
    ]
    return all(outer == inner[: len(outer)] for inner, outer in pairwise(rows))


@given(minibatches())
def test_a_pyg_batch_has_an_edge_index_only_if_that_is_the_same_batch(mb):
    bare = [replace(block, edge_ids=None, edge_weight=None, edge_type=None) for block in mb.blocks]
    mb = replace(mb, blocks=bare)
    batch = mb.to_pyg()
    assert hasattr(batch, "edge_index") == one_sample_per_node(mb)
    assert not hasattr(batch, "num_sampled_edges") or hasattr(batch, "edge_index")
    converted = mb.to_pyg("edge_index")
    assert not hasattr(converted, "adjs")
    again = MiniBatch.from_pyg(converted)
    assert one_sample_per_node(again)
    assert torch.equal(again.seeds, mb.seeds)
    assert again.num_inputs <= mb.num_inputs


def test_weights_that_only_one_form_has_are_refused():
    batch = full_batch().to_pyg()
    batch.edge_weight = torch.rand(batch.edge_index.shape[1])
    with pytest.raises(
        ValueError, match=r'edge_weight for edge_index, but no adj_weights .*; set both, or .*"edge_index"'
    ):
        MiniBatch.from_pyg(batch)


@pytest.mark.parametrize("installed", [True, False])
def test_the_form_that_a_pyg_batch_lacks_is_named(installed, monkeypatch):
    if installed:
        pytest.importorskip("torch_geometric")
    else:
        monkeypatch.setitem(sys.modules, "workbench.interop.pyg_data", None)
    mb = random_minibatch(random_graph(40, 300), fanouts=(3, 2), num_seeds=6)
    layers, hops = mb.to_pyg(), mb.to_pyg("edge_index")
    assert isinstance(layers, PygBatch) != installed
    with pytest.raises(AttributeError, match=r'no edge_index: .*; call the layers with adjs, or .*form="edge_index"'):
        layers.edge_index  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"no adjs: .* kept one sample per node .*; call the layers with edge_index"
    ):
        hops.adjs  # noqa: B018
    with pytest.raises(ValueError, match="form 'csr' is not known; choose from adjs, edge_index"):
        mb.to_pyg("csr")


def test_pyg_data_if_pyg_is_installed():
    data = pytest.importorskip("torch_geometric.data")
    mb = random_minibatch(edge_ids=False)
    batch = pickle.loads(pickle.dumps(mb.to_pyg()))
    assert isinstance(batch, data.Data)
    assert batch.num_nodes == mb.num_inputs
    assert "e_id" not in batch
    assert_batches_equal(MiniBatch.from_pyg(batch.to("cpu")), mb)


def test_pyg_rejects():
    with pytest.raises(ValueError, match="the batch has no blocks"):
        MiniBatch(torch.arange(3), ()).to_pyg()
    with pytest.raises(ValueError, match="the batch has no n_id"):
        MiniBatch.from_pyg(object())


@given(graphs())
def test_pyg_graph_round_trip(graph):
    again = graph_from_pyg(graph_to_pyg(graph))
    canonical = graph if again.edge_ids is not None or graph.edge_ids is None else replace(graph, edge_ids=None)
    assert_fields_equal(replace(again, indices=again.indices.to(graph.indices.dtype)), canonical)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({}, ValueError, "the SimpleNamespace has no edge_index; pass a PyG Data of one node and edge type"),
        ({"edge_index": [[0], [0]]}, TypeError, "edge_index is a list"),
        ({"edge_index": torch.zeros(1, 4, dtype=torch.int64)}, ValueError, r"edge_index has shape \(1, 4\)"),
        (
            {"edge_index": torch.tensor([[0], [9]]), "num_nodes": 3},
            IndexError,
            "the edges contain node 9, but num_nodes is 3",
        ),
    ],
)
def test_graph_from_pyg_rejects(fields, error, message):
    with pytest.raises(error, match=message):
        graph_from_pyg(SimpleNamespace(**fields))

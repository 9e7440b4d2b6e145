"""Batches and graphs of DGL: round trips are exact, and its samplers' blocks are read."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st

from tests.interop.exact import assert_batches_equal, assert_fields_equal, shuffled
from tests.strategies import graphs, minibatches, random_graph, random_minibatch
from workbench.core.exchange import Exchange
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.interop import (
    graph_from_dgl,
    graph_to_dgl,
    graph_to_pyg,
)


def cooperative(mb: MiniBatch) -> MiniBatch:
    none = torch.empty(0, dtype=torch.int64)
    return replace(mb, exchanges=tuple(Exchange(none, (0,), (0,), none) for _ in mb.blocks))


@given(minibatches(), st.integers(0, 99))
def test_dgl_round_trip(mb, seed):
    pytest.importorskip("dgl")
    mb = shuffled(mb, seed)
    blocks = mb.to_dgl()
    assert_batches_equal(MiniBatch.from_dgl(blocks, step=mb.step), mb)


def test_dgl_blocks_equal_the_batch():
    dgl = pytest.importorskip("dgl")
    mb = random_minibatch(random_graph(edge_weight=torch.float64, num_edge_types=3), fanouts=(3, 2))
    for theirs, ours in zip(mb.to_dgl(), mb.blocks, strict=True):
        src, dst, edge = theirs.edges(form="all", order="eid")
        assert theirs.idtype == torch.int64
        assert (theirs.num_src_nodes(), theirs.num_dst_nodes()) == (ours.num_src, ours.num_dst)
        assert torch.equal(edge, torch.arange(ours.num_edges))
        assert torch.equal(src, ours.indices.long())
        assert torch.equal(dst, ours.destinations.long())
        assert torch.equal(theirs.in_degrees(), ours.in_degrees())
        assert torch.equal(theirs.srcdata[dgl.NID], mb.node_ids[: ours.num_src])
        assert torch.equal(theirs.dstdata[dgl.NID], mb.node_ids[: ours.num_dst])
        for name, values in ((dgl.EID, ours.edge_ids), ("edge_weight", ours.edge_weight), (dgl.ETYPE, ours.edge_type)):
            assert values is not None
            assert torch.equal(theirs.edata[name], values)


def test_dgl_layers_run_on_the_blocks():
    dgl = pytest.importorskip("dgl")
    mb = random_minibatch(random_graph(30, 100, edge_weight=torch.float64), fanouts=(4,), num_seeds=10)
    block, ours = mb.to_dgl()[0], mb.blocks[0]
    x = torch.rand(ours.num_src, 3, dtype=torch.float64, requires_grad=True)
    assert ours.edge_weight is not None
    block.srcdata["h"] = x
    block.update_all(dgl.function.u_mul_e("h", "edge_weight", "m"), dgl.function.sum("m", "out"))
    dense = torch.zeros(ours.num_dst, ours.num_src, dtype=torch.float64)
    dense.index_put_((ours.destinations, ours.indices), ours.edge_weight, accumulate=True)
    torch.testing.assert_close(block.dstdata["out"], dense @ x)
    (gradient,) = torch.autograd.grad(block.dstdata["out"].square().sum(), x)
    torch.testing.assert_close(gradient, 2 * dense.T @ dense @ x.detach())


@pytest.mark.parametrize("width", [4, 32])
def test_dgl_gat_gives_the_same_on_converted_blocks_and_graphs(width):
    dgl = pytest.importorskip("dgl")
    raw = random_graph(20, 80, edge_ids=False)
    mb = random_minibatch(raw, fanouts=(-1,), num_seeds=20)
    layer = dgl.nn.GATConv(width, width, 2, allow_zero_in_degree=True)
    x = torch.rand(20, width)
    graph = dgl.graph((raw.indices.long(), torch.repeat_interleave(torch.arange(20), raw.in_degrees())), num_nodes=20)
    expected = layer(graph, x)
    results = layer(graph_to_dgl(raw), x)[mb.node_ids], layer(mb.to_dgl()[0], x[mb.node_ids])
    gradients = [torch.autograd.grad(out.square().sum(), layer.fc.weight)[0] for out in (expected, *results)]
    for result, gradient in zip(results, gradients[1:], strict=True):
        torch.testing.assert_close(result, expected[mb.node_ids])
        torch.testing.assert_close(gradient, gradients[0])


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("sampler", ["NeighborSampler", "LaborSampler", "MultiLayerFullNeighborSampler"])
def test_blocks_of_dgl_samplers(sampler, idtype):
    dgl = pytest.importorskip("dgl")
    graph = graph_to_dgl(random_graph(60, 400)).astype(idtype)
    kind = getattr(dgl.dataloading, sampler)
    _, _, blocks = (kind(2) if "Full" in sampler else kind([5, 3])).sample(graph, torch.arange(7, dtype=idtype))
    mb = MiniBatch.from_dgl(blocks, step=3)
    src, dst = graph.edges()
    assert mb.seeds.tolist() == list(range(7))
    for theirs, ours in zip(blocks, mb.blocks, strict=True):
        ours.validate()
        assert ours.edge_ids is not None
        assert torch.equal(mb.node_ids[ours.indices], src[ours.edge_ids].long())
        assert torch.equal(mb.node_ids[ours.destinations], dst[ours.edge_ids].long())
        assert torch.equal(ours.in_degrees(), theirs.in_degrees().long())
        assert sorted(ours.edge_ids.tolist()) == sorted(theirs.edata[dgl.EID].tolist())
    again = MiniBatch.from_dgl(mb.to_dgl(), step=3)
    assert_batches_equal(again, mb)


def test_importance_weights_of_dgl_labor_sampler():
    dgl = pytest.importorskip("dgl")
    sampler = dgl.dataloading.LaborSampler([4], importance_sampling=1)
    _, _, blocks = sampler.sample_blocks(graph_to_dgl(random_graph(60, 400)), torch.arange(7))
    weight = MiniBatch.from_dgl(blocks).blocks[0].edge_weight
    assert weight is not None
    assert sorted(weight.tolist()) == sorted(blocks[0].edata["edge_weights"].tolist())


def test_unordered_dgl_block_is_sorted_stably():
    dgl = pytest.importorskip("dgl")
    block = dgl.create_block((torch.tensor([2, 0, 1, 2]), torch.tensor([1, 0, 1, 0])), 3, 2)
    block.srcdata[dgl.NID], block.dstdata[dgl.NID] = torch.tensor([9, 4, 6]), torch.tensor([9, 4])
    block.edata[dgl.EID] = torch.tensor([10, 11, 12, 13])
    block.create_formats_()
    ours = MiniBatch.from_dgl([block]).blocks[0]
    assert ours.indptr.tolist() == [0, 2, 4]
    assert ours.indices.tolist() == [0, 2, 2, 1]
    assert ours.edge_ids is not None
    assert ours.edge_ids.tolist() == [11, 13, 10, 12]


def changed_blocks(change):
    """Return a list of two valid blocks after a change."""
    dgl = pytest.importorskip("dgl")
    blocks = random_minibatch(fanouts=(3, 3)).to_dgl()
    changed = change(dgl, blocks)
    return changed if isinstance(changed, list) else blocks


def swap_first(ids):
    return torch.cat([ids[1:2], ids[:1], ids[2:]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda dgl, b: b.clear(), "blocks is empty"),
        (lambda dgl, b: b.reverse(), "sources of block 1 are not the destinations of block 0"),
        (lambda dgl, b: b[1].srcdata.update({dgl.NID: swap_first(b[1].srcdata[dgl.NID])}), "sources of block 1"),
        (
            lambda dgl, b: b[0].dstdata.update({dgl.NID: swap_first(b[0].dstdata[dgl.NID])}),
            "destinations of block 0 are not the prefix",
        ),
        (
            lambda dgl, b: b[0].srcdata.update({dgl.NID: b[0].srcdata[dgl.NID] * 0}),
            r"srcdata\['_ID'\] of block 0 contains 0",
        ),
        (lambda dgl, b: b[0].srcdata.pop(dgl.NID), "block 0 has no raw-graph ids"),
        (lambda dgl, b: b[1].dstdata.pop(dgl.NID), "block 1 has no raw-graph ids"),
        (
            lambda dgl, b: [dgl.create_block({("a", "x", "b"): ([0], [0]), ("b", "y", "b"): ([0], [0])})],
            "block 0 has several node or edge types",
        ),
    ],
)
def test_from_dgl_rejects(change, message):
    with pytest.raises(ValueError, match=message):
        MiniBatch.from_dgl(changed_blocks(change))


def test_halo_is_rejected():
    mb = cooperative(random_minibatch())
    with pytest.raises(ValueError, match="has 2 exchanges: its blocks read rows of other processes"):
        mb.to_pyg()
    pytest.importorskip("dgl")
    with pytest.raises(ValueError, match="has 2 exchanges: its blocks read rows of other processes"):
        mb.to_dgl()


@given(graphs())
def test_dgl_graph_round_trip(graph):
    dgl = pytest.importorskip("dgl")
    theirs = graph_to_dgl(graph)
    again = graph_from_dgl(theirs)
    canonical = graph if again.edge_ids is not None or graph.edge_ids is None else replace(graph, edge_ids=None)
    assert_fields_equal(replace(again, indices=again.indices.to(graph.indices.dtype)), canonical)
    src, dst = theirs.find_edges(torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids)
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    assert torch.equal(src, graph.indices.long())
    assert torch.equal(dst, rows)
    if graph.edge_weight is not None and graph.edge_ids is not None:
        assert torch.equal(theirs.edata["edge_weight"][graph.edge_ids], graph.edge_weight)
    assert (dgl.ETYPE in theirs.edata) == (graph.edge_type is not None)


def test_dgl_graph_of_several_types_and_partial_ids_are_rejected():
    dgl = pytest.importorskip("dgl")
    with pytest.raises(ValueError, match="the graph has several node or edge types"):
        graph_from_dgl(dgl.heterograph({("a", "x", "b"): ([0], [0])}))
    partial = Graph(torch.tensor([0, 1]), torch.tensor([0]), edge_ids=torch.tensor([7]))
    with pytest.raises(ValueError, match="largest edge id is 7, but the graph has 1 edges; drop"):
        graph_to_dgl(partial)
    with pytest.raises(ValueError, match="largest edge id is 7, but the graph has 1 edges; drop"):
        graph_to_pyg(partial)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda dgl, b: [3], TypeError, "block 0 is an int; pass an object of DGL"),
        (lambda dgl, b: [b], TypeError, "block 0 is a list; pass an object of DGL"),
        (
            lambda dgl, b: b[0].srcdata.update({dgl.NID: b[0].srcdata[dgl.NID].float()}),
            TypeError,
            "_ID of block 0 must be an int64 or int32 tensor",
        ),
        (
            lambda dgl, b: b[0].srcdata.update({dgl.NID: b[0].srcdata[dgl.NID][:, None]}),
            ValueError,
            "_ID of block 0 must be a vector",
        ),
        (
            lambda dgl, b: b[0].srcdata.update({dgl.NID: -b[0].srcdata[dgl.NID] - 1}),
            IndexError,
            "_ID of block 0 contains -",
        ),
        (lambda dgl, b: b[0].edata.update({dgl.EID: b[0].edata[dgl.EID].float()}), TypeError, "_ID must be an int64"),
        (lambda dgl, b: b[0].edata.update({dgl.EID: b[0].edata[dgl.EID] * 0 - 1}), IndexError, "_ID contains -1"),
    ],
)
def test_from_dgl_rejects_invalid_values(change, error, message):
    with pytest.raises(error, match=message):
        MiniBatch.from_dgl(changed_blocks(change))

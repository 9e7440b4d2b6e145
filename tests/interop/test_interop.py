"""Round trips through other libraries are exact: node ids, edge ids, order, weights and types."""

import pickle
import sys
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import graphs, minibatches, random_graph, random_minibatch
from workbench.core.exchange import Exchange
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.interop import (
    PygBatch,
    from_scipy,
    graph_from_dgl,
    graph_from_pyg,
    graph_to_dgl,
    graph_to_pyg,
    to_scipy,
)


def assert_fields_equal(left, right) -> None:
    for name, tensor in left._tensors().items():
        other = right._tensors()[name]
        assert (tensor is None) == (other is None), name
        assert tensor is None or (tensor.dtype == other.dtype and torch.equal(tensor, other)), name


def assert_batches_equal(left: MiniBatch, right: MiniBatch) -> None:
    assert left.step == right.step
    assert [(b.num_src, b.num_dst) for b in left.blocks] == [(b.num_src, b.num_dst) for b in right.blocks]
    assert_fields_equal(left, right)


def shuffled(mb: MiniBatch, seed: int) -> MiniBatch:
    """Shuffle the edges of each block, so that nothing is in ascending order by accident."""
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    for block in mb.blocks:
        order = torch.randperm(block.num_edges, generator=generator)
        moved = {name: t[order] for name, t in block._tensors().items() if t is not None and name != "indptr"}
        blocks.append(replace(block, **moved))
    return replace(mb, blocks=tuple(blocks))


def cooperative(mb: MiniBatch) -> MiniBatch:
    none = torch.empty(0, dtype=torch.int64)
    return replace(mb, exchanges=tuple(Exchange(none, (0,), (0,), none) for _ in mb.blocks))


def full_batch(**kind) -> MiniBatch:
    return random_minibatch(random_graph(15, 60, **kind), num_seeds=4, fanouts=(-1, -1, -1))


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


@given(minibatches(), st.integers(0, 99))
def test_pyg_round_trip(mb, seed):
    mb = shuffled(mb, seed)
    assert_batches_equal(MiniBatch.from_pyg(mb.to_pyg(), step=mb.step), mb)


@given(minibatches())
def test_pyg_hops(mb):
    """The hop form equals a breadth-first search; each node has the edges of the layer that first reached it."""
    batch = mb.to_pyg("edge_index")
    expected, seen = [], list(range(mb.num_seeds))
    first_new, num_edges, num_nodes = 0, [], [mb.num_seeds]
    for _ in mb.blocks:
        frontier = seen[first_new:]
        first_new = len(seen)
        start = len(expected)
        for node in frontier:
            block = next(b for b in reversed(mb.blocks) if node < b.num_dst)
            row = block.indices[block.indptr[node] : block.indptr[node + 1]].tolist()
            expected += [(source, node) for source in row]
            seen += [source for source in dict.fromkeys(row) if source not in seen]
        num_edges.append(len(expected) - start)
        num_nodes.append(len(seen) - first_new)
    local = {node: position for position, node in enumerate(seen)}
    assert torch.equal(batch.n_id, mb.node_ids[seen])
    assert batch.edge_index.T.tolist() == [[local[s], local[d]] for s, d in expected]
    assert (batch.num_sampled_edges, batch.num_sampled_nodes) == (num_edges, num_nodes)
    assert batch.batch_size == mb.num_seeds


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


@pytest.mark.parametrize("kind", [{}, {"edge_weight": torch.float32, "num_edge_types": 2}])
def test_hop_form_of_full_neighbourhoods_is_exact(kind):
    mb = full_batch(**kind)
    batch = mb.to_pyg()
    merged = PygBatch(
        n_id=batch.n_id,
        batch_size=batch.batch_size,
        edge_index=batch.edge_index,
        num_sampled_nodes=batch.num_sampled_nodes,
        num_sampled_edges=batch.num_sampled_edges,
        adjs=None,  # type: ignore[arg-type] — batches of NeighborLoader have none
        **{name: getattr(batch, name, None) for name in ("e_id", "edge_weight", "edge_type")},
    )
    again = MiniBatch.from_pyg(merged)
    assert_batches_equal(again, mb)
    storages = {block.indices.untyped_storage().data_ptr() for block in again.blocks}
    assert len(storages) == 1  # row prefixes of one CSR


def test_hop_form_has_ids_weights_and_types():
    mb = full_batch(edge_weight=torch.float32, num_edge_types=2)
    batch = mb.to_pyg()
    raw = random_graph(15, 60, edge_weight=torch.float32, num_edge_types=2)
    positions = raw.edge_positions(batch.e_id)
    assert raw.edge_weight is not None
    assert raw.edge_type is not None
    assert torch.equal(raw.edge_weight[positions], batch.edge_weight)
    assert torch.equal(raw.edge_type[positions], batch.edge_type)
    assert torch.equal(raw.indices[positions].long(), batch.n_id[batch.edge_index[0]])


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


@given(graphs())
def test_pyg_graph_round_trip(graph):
    fields = graph_to_pyg(graph)
    again = graph_from_pyg(type("Data", (), fields))
    canonical = graph if again.edge_ids is not None or graph.edge_ids is None else replace(graph, edge_ids=None)
    assert_fields_equal(replace(again, indices=again.indices.to(graph.indices.dtype)), canonical)


@given(graphs())
def test_scipy_round_trip(graph):
    pytest.importorskip("scipy")
    matrix = to_scipy(graph)
    again = from_scipy(matrix, weighted=graph.edge_weight is not None)
    plain = replace(graph, edge_ids=None, edge_type=None, indices=graph.indices.int())
    assert_fields_equal(again, plain)
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    weight = torch.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    np.add.at(dense, (rows.numpy(), graph.indices.numpy()), weight.numpy())
    np.testing.assert_allclose(matrix.toarray(), dense, rtol=1e-6)


def test_scipy_rejects_and_widens():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        from_scipy(sparse.csr_array((2, 3)))
    assert to_scipy(random_graph(edge_weight=torch.bfloat16)).dtype == np.float32


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


def pyg_hops(**changes):
    """A batch of NeighborLoader: seeds 5 and 9; nodes 4 and 7 in the first hop; node 8 in the second."""
    fields = {
        "n_id": torch.tensor([5, 9, 4, 7, 8]),
        "edge_index": torch.tensor([[2, 3, 1, 4, 4, 0], [0, 0, 1, 2, 3, 3]]),
        "num_sampled_nodes": [2, 2, 1],
        "num_sampled_edges": [3, 3],
        "batch_size": 2,
    }
    return SimpleNamespace(**(fields | changes))


def test_batches_of_hops_are_row_prefixes():
    mb = MiniBatch.from_pyg(pyg_hops())
    assert [(b.num_src, b.num_dst, b.num_edges) for b in mb.blocks] == [(5, 4, 6), (4, 2, 3)]
    assert MiniBatch.from_pyg(pyg_hops(num_sampled_edges=None, batch_size=None)).num_seeds == 2
    assert MiniBatch.from_pyg(pyg_hops(num_sampled_nodes=[torch.tensor(n) for n in (2, 2, 1)])).num_inputs == 5


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"n_id": [5, 9, 4, 7, 8]}, TypeError, "n_id must be an int64 or int32 tensor, not list"),
        ({"n_id": torch.tensor([5, 9, 4, 7, 5])}, ValueError, "node_ids contains 5 more than once"),
        ({"n_id": torch.tensor([5, 9, 4, 7, -1])}, IndexError, "n_id contains -1"),
        ({"n_id": torch.arange(4)}, ValueError, r"num_sampled_nodes \[2, 2, 1\] add up to 5, but n_id has 4 nodes"),
        ({"n_id": None}, ValueError, "the batch has no n_id"),
        ({"edge_index": None}, TypeError, "edge_index is a NoneType; pass an int64 tensor"),
        ({"edge_index": torch.zeros(3, 6, dtype=torch.int64)}, ValueError, r"edge_index has shape \(3, 6\)"),
        ({"edge_index": torch.zeros(2, 6)}, TypeError, "sources must be an int64 or int32 tensor, not torch.float32"),
        ({"edge_index": torch.tensor([[0], [4]])}, ValueError, "an edge into node 4, .* subgraph_type"),
        ({"edge_index": torch.tensor([[0], [5]])}, IndexError, "destinations contains 5"),
        ({"edge_index": torch.tensor([[9], [1]])}, IndexError, "sources contains 9; .* not raw-graph ids"),
        ({"edge_index": torch.tensor([[-9], [1]])}, IndexError, "sources contains -9"),
        (
            {"edge_index": torch.tensor([[4, 3, 1, 4, 4, 0], [0, 0, 1, 2, 3, 3]])},
            ValueError,
            "block 1: indices contains 4",
        ),
        ({"num_sampled_nodes": [2, 2, 7]}, ValueError, "add up to 11, but n_id has 5 nodes"),
        ({"num_sampled_nodes": [5]}, ValueError, r"num_sampled_nodes is \[5\]; it must count the seeds and"),
        ({"num_sampled_nodes": [6, -2, 1]}, ValueError, "a number of num_sampled_nodes is -2"),
        ({"num_sampled_nodes": None}, ValueError, "with pyg-lib, not with torch-sparse, .* subgraph_type=.directional"),
        (
            {"num_sampled_nodes": None, "edge_index": torch.tensor([[2, 0, 3, 0, 1, 4], [0, 2, 0, 3, 4, 1]])},
            ValueError,
            r'go both ways, as those of NeighborLoader\(subgraph_type="bidirectional".*pass subgraph_type="directional',
        ),
        ({"num_sampled_edges": [2, 4]}, ValueError, r"are \[2, 4\], but edge_index has \[3, 3\] edges"),
        ({"batch_size": 3}, ValueError, "batch_size is 3, but num_sampled_nodes begins with 2 seeds"),
        ({"e_id": torch.arange(7)}, ValueError, r"edge_ids has shape \(7,\) for 6 edges; pass one value per edge"),
    ],
)
def test_batches_of_hops_are_checked(changes, error, message):
    with pytest.raises(error, match=message):
        MiniBatch.from_pyg(pyg_hops(**changes))


def test_disjoint_batches_may_contain_a_node_twice():
    ids = torch.tensor([5, 9, 4, 4, 8])
    assert torch.equal(MiniBatch.from_pyg(pyg_hops(n_id=ids, batch=torch.tensor([0, 1, 0, 1, 1]))).node_ids, ids)


def pyg_layers(**changes):
    batch = random_minibatch(fanouts=(3, 2)).to_pyg()
    return SimpleNamespace(**((batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)) | changes))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda e, e_id, size: (e + 1000, e_id, size),
            IndexError,
            "sources contains .*positions in the batch's node list",
        ),
        (lambda e, e_id, size: (e - 1000, e_id, size), IndexError, "sources contains -"),
        (lambda e, e_id, size: (e, e_id, (size[0], 1)), IndexError, "destinations contains"),
        (lambda e, e_id, size: (e, e_id, (size[0] + 1, size[1])), ValueError, r"a size of adjs\[0\] is"),
        (lambda e, e_id, size: (e[:, :0], None, (size[0] - 1, 0)), ValueError, "sources, but the batch provides"),
        (lambda e, e_id, size: (e, e_id[:1], size), ValueError, r"edge_ids has shape \(1,\) for"),
        (lambda e, e_id, size: (e.T, e_id, size), ValueError, "edge_index has shape"),
        (lambda e, e_id, size: (e, e_id, (size[0], 2.5)), ValueError, r"a size of adjs\[0\] is 2\.5"),
    ],
)
def test_layers_of_pyg_are_checked(change, error, message):
    good = pyg_layers()
    with pytest.raises(error, match=message):
        MiniBatch.from_pyg(pyg_layers(adjs=[change(*good.adjs[0]), *good.adjs[1:]]))
    with pytest.raises(ValueError, match="2 adjs, 1 adj_weights and 2 adj_types; pass one of each per layer"):
        MiniBatch.from_pyg(pyg_layers(adj_weights=[None]))


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


def test_from_scipy_checks_structure():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"matrix is a ndarray; pass a sparse one: scipy.sparse.csr_array\(matrix\)"):
        from_scipy(np.eye(2))
    with pytest.raises(TypeError, match=r"contains int64, but weights must be floating point; .* weighted=False"):
        from_scipy(sparse.csr_array(np.eye(2, dtype=np.int64)))
    matrix = sparse.csr_array(np.ones((3, 3)))
    matrix.indices[4] = 7
    with pytest.raises(ValueError, match=r"indices contains 7; sources must be in \[0, 3\)"):
        from_scipy(matrix)
    matrix.indptr[1] = 8
    with pytest.raises(ValueError, match="indptr must be non-decreasing, but it decreases after row 1, from 8 to 6"):
        from_scipy(matrix)

"""Batches of PyG in hops and layers: their structure is checked, and full neighbourhoods are exact."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given

from tests.interop.exact import assert_batches_equal, full_batch
from tests.strategies import minibatches, random_graph, random_minibatch
from workbench.core.minibatch import MiniBatch
from workbench.interop import PygBatch, count_hops


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
        ({"num_sampled_nodes": None}, ValueError, r"with pyg-lib, not with torch-sparse, .*count_hops\(batch, 2\)"),
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


@given(minibatches())
def test_hops_are_counted_by_the_order_of_discovery(mb):
    """As torch-sparse returns a batch: without numbers per hop."""
    expected = mb.to_pyg("edge_index")
    batch = SimpleNamespace(n_id=expected.n_id, edge_index=expected.edge_index, batch_size=mb.num_seeds)
    assert count_hops(batch, len(mb.blocks)) is batch
    assert batch.num_sampled_nodes == expected.num_sampled_nodes
    assert batch.num_sampled_edges == expected.num_sampled_edges
    assert count_hops(batch, 1).num_sampled_nodes == expected.num_sampled_nodes  # those that it has are kept


@pytest.mark.parametrize(
    ("changes", "num_hops", "error", "message"),
    [
        ({}, 0, ValueError, "num_hops is 0"),
        ({}, 1, ValueError, "3 edges lead beyond hop 1; pass the length of num_neighbors"),
        ({"edge_index": torch.tensor([[2, 3, 1, 4, 4, 0, 2], [0, 0, 1, 2, 3, 3, 4]])}, 2, ValueError, "1 edges lead"),
        ({"edge_index": torch.tensor([[3, 2, 1, 4, 4, 0], [0, 0, 1, 2, 3, 3]])}, 2, ValueError, "the order in which"),
        ({"edge_index": torch.tensor([[2, 1, 3, 4, 4, 0], [0, 1, 0, 2, 3, 3]])}, 2, ValueError, "the order in which"),
        ({"n_id": torch.arange(6)}, 2, ValueError, "the order in which"),
        ({"batch_size": None}, 2, TypeError, r"batch_size is \[None\], not whole numbers"),
    ],
)
def test_orders_without_hops_are_refused(changes, num_hops, error, message):
    batch = pyg_hops(num_sampled_nodes=None, num_sampled_edges=None, **changes)
    with pytest.raises(error, match=message):
        count_hops(batch, num_hops)
    assert batch.num_sampled_nodes is None


def test_hops_beyond_the_last_new_node_are_empty():
    batch = count_hops(pyg_hops(num_sampled_nodes=None, num_sampled_edges=None), 3)
    assert (batch.num_sampled_nodes, batch.num_sampled_edges) == ([2, 2, 1, 0], [3, 3, 0])


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
    for name in ("adjs", "adj_weights", "adj_types"):
        with pytest.raises(TypeError, match=f"{name} is .*; pass a list with one entry per layer"):
            MiniBatch.from_pyg(pyg_layers(**{name: torch.ones(2)}))

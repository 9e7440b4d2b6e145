"""Records of a batch: immutable, validated, and counted and copied with each storage once."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import given

from tests.strategies import minibatches, random_minibatch
from workbench.core.block import Block
from workbench.core.exchange import Exchange
from workbench.core.minibatch import MiniBatch


def ids(*values: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def block(**changes) -> Block:
    """Return a block of three sources and two destinations: 0 ← 2, 0; 1 ← 2."""
    fields = {"indptr": ids(0, 2, 3), "indices": ids(2, 0, 2, dtype=torch.int32), "num_src": 3, "num_dst": 2}
    return Block(**(fields | changes))


def exchange(**changes) -> Exchange:
    """Return an exchange between two processes that sends one row and receives two."""
    fields = {"send_index": ids(1), "send_counts": (0, 1), "receive_counts": (0, 2), "halo_ids": ids(40, 41)}
    return Exchange(**(fields | changes))


def dense_batch() -> MiniBatch:
    """Return a batch of two blocks that are row prefixes of one CSR."""
    indptr, indices = ids(0, 2, 3, 5), ids(1, 2, 0, 3, 4, dtype=torch.int32)
    outer = Block(indptr, indices, num_src=5, num_dst=3)
    inner = Block(indptr[:2], indices[:2], num_src=3, num_dst=1)
    return MiniBatch(ids(9, 8, 7, 6, 5), (outer, inner))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"num_dst": -1}, ValueError, "num_dst is -1; it must be a whole number of at least 0"),
        ({"num_dst": 2.0}, ValueError, "num_dst is 2.0; it must be a whole number"),
        ({"num_src": 1}, ValueError, r"num_src \(destinations are a prefix of the sources\) is 1; .* at least 2"),
        ({"indptr": ids(0, 3)}, ValueError, r"indptr has shape \(2,\); its first dimension must be 3"),
        ({"indptr": ids(0, 2, 3).int()}, TypeError, "indptr must be a tensor of torch.int64, not torch.int32"),
        ({"indptr": [0, 2, 3]}, TypeError, "indptr is a list; pass a tensor"),
        ({"indices": [2, 0, 2]}, TypeError, "indices is a list; pass a tensor"),
        ({"indices": torch.zeros(3)}, TypeError, "not torch.float32"),
        ({"indices": ids(2, 0, 2)[:, None]}, ValueError, r"indices has shape \(3, 1\); it must have one dimension"),
        ({"edge_ids": ids(1, 2)}, ValueError, r"edge_ids has shape \(2,\); its first dimension must be 3"),
        (
            {"edge_weight": ids(1, 2, 3)},
            TypeError,
            "edge_weight must be a tensor of torch.float32 or .* not torch.int64",
        ),
        ({"edge_weight": torch.ones(2, 3)}, ValueError, r"edge_weight has shape \(2, 3\)"),
        ({"edge_type": torch.ones(3)}, TypeError, "edge_type must be a tensor of .* not torch.float32"),
    ],
)
def test_block_rejects(changes, error, message):
    with pytest.raises(error, match=message):
        block(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": ids(0, 4, 3)}, "indptr must be non-decreasing, but it decreases after row 1, from 4 to 3"),
        ({"indices": ids(2, 3, 2)}, r"indices contains 3; sources must be in \[0, 3\)"),
        ({"indices": ids(2, -1, 2)}, r"indices contains -1; sources must be in \[0, 3\)"),
    ],
)
def test_validate_checks_everything(changes, message):
    broken = block(**changes)
    with pytest.raises(ValueError, match=message):
        broken.validate()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"send_counts": (1, 1)}, ValueError, r"send_index has shape \(1,\); its first dimension must be 2"),
        ({"halo_ids": ids(4)}, ValueError, r"halo_ids has shape \(1,\); its first dimension must be 2"),
        ({"send_counts": (2, -1)}, ValueError, "a number of send_counts is -1; it must be a whole"),
        ({"receive_counts": (0, 2.0)}, ValueError, "a number of receive_counts is 2.0"),
        ({"halo_ids": ids(4, 5).int()}, TypeError, "halo_ids must be a tensor of torch.int64"),
        (
            {"send_counts": (0, 0, 1)},
            ValueError,
            "3 send counts but 2 receive counts; pass one of each per process",
        ),
    ],
)
def test_exchange_rejects(changes, error, message):
    with pytest.raises(error, match=message):
        exchange(**changes)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"node_ids": ids(1, 2)}, ValueError, r"block 0 has 3 sources, but the batch provides 2 \(2 owned \+ 0 halo\)"),
        ({"blocks": (block(), block())}, ValueError, r"block 1 has 3 sources, but the batch provides 2 \(2 owned"),
        ({"node_ids": ids(1, 2, 3).int()}, TypeError, "node_ids must be a tensor of torch.int64, not torch.int32"),
        ({"node_ids": [1, 2, 3]}, TypeError, "node_ids is a list; pass a tensor"),
        ({"parent": ids(0, 1)}, ValueError, r"parent has shape \(2,\); its first dimension must be 3"),
        ({"exchanges": ()}, ValueError, "0 exchanges for 1 blocks; pass one per block"),
        ({"exchanges": (block(),)}, TypeError, r"exchanges\[0\] is a Block; pass a list of Exchanges"),
        ({"blocks": (object(),)}, TypeError, r"blocks\[0\] is an object; .*MiniBatch\.from_dgl"),
        ({"blocks": 3}, TypeError, "blocks is an int; pass a list of Blocks"),
        ({"step": 1.5}, ValueError, "step is 1.5; it must be a whole number"),
        ({"exchanges": (exchange(),)}, ValueError, r"the batch provides 5 \(3 owned \+ 2 halo\)"),
    ],
)
def test_minibatch_rejects(fields, error, message):
    with pytest.raises(error, match=message):
        MiniBatch(**({"node_ids": ids(7, 8, 9), "blocks": (block(),)} | fields))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"node_ids": ids(7, 8, 7)}, ValueError, "node_ids contains 7 more than once"),
        ({"node_ids": ids(7, 8, -9)}, IndexError, r"node_ids contains -9; ids must be in \[0, 10\)"),
        ({"node_ids": ids(7, 8, 10)}, IndexError, r"node_ids contains 10; ids must be in \[0, 10\)"),
        ({"parent": ids(0, 1, -1)}, IndexError, "parent contains -1"),
        ({"parent": ids(0, 1, 1)}, ValueError, "parent contains 1 more than once"),
        ({"blocks": (block(indptr=ids(0, 4, 3)),)}, ValueError, "block 0: indptr must be non-decreasing"),
        (
            {"blocks": (block(), block(num_src=2, num_dst=2))},
            ValueError,
            "block 1: indices contains 2; sources must be in",
        ),
    ],
)
def test_minibatch_validate_checks_everything(fields, error, message):
    batch = MiniBatch(**({"node_ids": ids(7, 8, 9), "blocks": (block(),)} | fields))
    with pytest.raises(error, match=message):
        batch.validate(num_nodes=10)


@given(minibatches())
def test_minibatch_validate_accepts_sampled_batches(batch):
    assert batch.validate() is batch


def test_disjoint_batches_may_contain_a_node_twice():
    batch = MiniBatch(ids(7, 8, 7), (block(),))
    assert batch.validate(unique=False) is batch


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"send_index": ids(1)}, r"send_index contains 1; ids must be in \[0, 1\)"),
        ({"halo_ids": ids(4, -5), "send_index": ids(0)}, "halo_ids contains -5"),
    ],
)
def test_validate_checks_exchanges(changes, message):
    blocks = (block(num_dst=1, indptr=ids(0, 3)),)
    batch = MiniBatch(ids(7), blocks, exchanges=(exchange(**changes),))
    with pytest.raises(IndexError, match=message):
        batch.validate()


def test_a_block_on_two_devices_is_rejected():
    with pytest.raises(ValueError, match="indptr is on meta, indices on cpu; move both to one device"):
        block(indptr=ids(0, 2, 3).to("meta"))


@pytest.mark.parametrize("record", [block(), exchange(), dense_batch()])
def test_records_are_frozen(record):
    for field in record.__dataclass_fields__:
        with pytest.raises(FrozenInstanceError):
            setattr(record, field, None)


def test_halo_rows_are_additional_sources():
    batch = MiniBatch(ids(7), (block(num_dst=1, indptr=ids(0, 3)),), exchanges=(exchange(),))
    assert (batch.num_inputs, batch.num_seeds) == (1, 1)


def test_block_lists_edges_both_ways():
    small = block()
    assert small.in_degrees().tolist() == [2, 1]
    assert small.destinations.tolist() == [0, 0, 1]
    assert small.destinations.dtype == torch.int32
    assert small.transposed.indptr.tolist() == [0, 1, 1, 3]
    assert small.transposed.rows.tolist() == [0, 0, 1]
    assert small.transposed is small.transposed


@given(batch=minibatches())
def test_layers_share_one_node_list(batch):
    assert batch.seeds.tolist() == batch.node_ids[: batch.blocks[-1].num_dst].tolist()
    assert batch.num_edges == sum(b.validate().num_edges for b in batch.blocks)
    assert [b.num_src for b in batch.blocks[1:]] == [b.num_dst for b in batch.blocks[:-1]]


def test_a_batch_without_blocks_is_its_seeds():
    batch = MiniBatch(ids(4, 2), ())
    assert (batch.num_seeds, batch.seeds.tolist(), batch.num_edges) == (2, [4, 2], 0)


def test_blocks_become_a_tuple():
    assert MiniBatch(ids(7, 8, 9), [block()]).blocks.__class__ is tuple  # pyright: ignore[reportArgumentType]


def test_bytes_count_every_array():
    plain = block()
    assert plain.nbytes == 3 * 8 + 3 * 4
    full = block(edge_ids=ids(5, 6, 7), edge_weight=torch.ones(3, dtype=torch.float64), edge_type=ids(0, 1, 0))
    assert full.nbytes == plain.nbytes + 3 * 24
    batch = MiniBatch(ids(7, 8, 9), (plain,), parent=ids(0, 1, 2))
    assert batch.nbytes == 2 * 24 + plain.nbytes
    halo = MiniBatch(ids(7), (block(num_dst=1, indptr=ids(0, 3)),), exchanges=(exchange(),))
    assert halo.nbytes == 8 + 2 * 8 + 3 * 4 + 3 * 8


def test_dense_blocks_count_and_move_as_one_csr():
    batch = dense_batch()
    one_csr = 5 * 8 + 4 * 8 + 5 * 4
    assert batch.nbytes == one_csr
    moved = batch.to("meta")
    assert moved.device.type == "meta"
    assert moved.nbytes == one_csr
    assert repr(moved) == repr(batch)


def test_to_moves_every_tensor():
    full = block(num_dst=1, indptr=ids(0, 3), edge_ids=ids(5, 6, 7), edge_weight=torch.ones(3), edge_type=ids(0, 1, 0))
    batch = MiniBatch(ids(7), (full,), parent=ids(0), exchanges=(exchange(),), step=4)
    moved = batch.to("meta")
    assert {t.device.type for t in moved._tensors().values() if t is not None} == {"meta"}
    assert moved._tensors().keys() == batch._tensors().keys()
    assert (moved.step, moved.nbytes) == (4, batch.nbytes)
    assert moved.exchanges is not None
    assert moved.exchanges[0].receive_counts == (0, 2)
    assert full.to("meta").device.type == exchange().to("meta").halo_ids.device.type == "meta"


@given(batch=minibatches())
def test_to_keeps_values(batch):
    moved = replace(batch, parent=torch.arange(batch.num_inputs)).to("cpu")
    assert moved.node_ids.tolist() == batch.node_ids.tolist()
    for there, here in zip(moved.blocks, batch.blocks, strict=True):
        assert torch.equal(there.indices, here.indices)
        assert torch.equal(there.indptr, here.indptr)


def test_a_batch_on_its_device_shares_arrays_but_not_what_layers_cache():
    batch = MiniBatch(ids(7), (block(num_dst=1, indptr=ids(0, 3)),), exchanges=(exchange(),), step=4)
    assert batch.blocks[0].transposed is batch.blocks[0].transposed
    for moved in (batch.to("cpu"), replace(batch, blocks=(batch.blocks[0].to("cpu"),))):
        assert (moved.step, moved.blocks[0].num_dst) == (4, 1)
        assert moved._tensors().keys() == batch._tensors().keys()
        pairs = zip(moved._tensors().values(), batch._tensors().values(), strict=True)
        assert all(there is here for there, here in pairs)
        assert "transposed" not in moved.blocks[0].__dict__


def test_reprs_are_readable():
    assert repr(block()) == "Block(3 → 2 nodes, 3 edges)"
    assert repr(block(edge_weight=torch.ones(3))) == "Block(3 → 2 nodes, 3 edges, edge_weight)"
    assert repr(dense_batch()) == "MiniBatch(5 inputs → 1 seeds: 5→3 (5 edges), 3→1 (2 edges); 92 B)"
    html = random_minibatch()._repr_html_()
    assert html.startswith("<table><caption>MiniBatch: ")
    assert html.count("<tr>") == 3


def test_blocks_and_exchanges_show_sizes_instead_of_values() -> None:
    block = random_minibatch().blocks[-1]
    assert f"<td>{block.num_src:,}</td>" in block._repr_html_()
    exchange = Exchange(torch.arange(3), (1, 2), (4, 0), torch.arange(4))
    assert repr(exchange) == "Exchange(send [1, 2], receive [4, 0] rows per process)"


def test_a_block_rejects_wrong_ends_and_matrices() -> None:
    one = torch.tensor([0], dtype=torch.int32)
    with pytest.raises(ValueError, match="runs from 0 to 5"):
        Block(torch.tensor([0, 5]), one, 1, 1)
    with pytest.raises(ValueError, match="one dimension"):
        Block(torch.tensor([0, 1]), one, 1, 1, edge_weight=torch.ones(1, 1))
    with pytest.raises(ValueError, match="one dimension"):
        Block(torch.zeros(2, 2, dtype=torch.int64), one, 1, 1)

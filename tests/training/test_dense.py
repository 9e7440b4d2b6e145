"""Training on DENSE samples: blocks that share rows give what independent copies give, whole, split, and after OOM."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.memory.measured import CLASSES, GRAPH, IN, WIDE, build, check, thirds
from tests.strategies import random_graph
from tests.training.toys import gradients
from workbench.core.shared_storage import same_record
from workbench.memory.estimator import estimate_memory
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS

TYPED = random_graph(300, 2400, seed=3, edge_weight=torch.float64, num_edge_types=3)
X, Y = torch.linspace(-9, 9, 300 * 6, dtype=torch.float64).sin().view(300, 6), torch.arange(300) % 4
SEEDS = torch.arange(0, 24)
KINDS = (*MODEL_KINDS, *TYPED_MODEL_KINDS)


def dense(num_layers: int = 3, **options: Any) -> wb.MiniBatch:
    return wb.DenseSampler([3] * num_layers, edge_ids=True, **options).sample(TYPED, SEEDS)


def model_of(kind: str, num_layers: int = 3) -> torch.nn.Module:
    options: dict[str, Any] = {"num_relations": 3} if kind == "rgcn" else {}
    sizes: dict[str, Any] = {"in_dim": 6, "hidden_dim": 8, "out_dim": 4, "num_layers": num_layers}
    return wb.build_model(kind, **sizes, **options, seed=1).double()


def apart(batch: wb.MiniBatch) -> wb.MiniBatch:
    """Return the batch with blocks that are copies."""
    blocks = [replace(b, **{n: t.clone() for n, t in b._tensors().items() if t is not None}) for b in batch.blocks]
    return replace(batch, blocks=tuple(blocks))


def outputs_and_gradients(model: torch.nn.Module, batch: wb.MiniBatch, *, learned: bool) -> list[Tensor]:
    x = X[batch.node_ids].requires_grad_(learned)
    model.zero_grad()
    out = model(batch.blocks, x)
    out.square().sum().backward()
    return [out.detach(), gradients(model), *([x.grad] if x.grad is not None else [])]


@pytest.mark.parametrize("learned", [False, True], ids=["features", "learned rows"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_give_what_copies_of_the_blocks_give(kind: str, learned: bool) -> None:
    model, shared = model_of(kind), dense()
    ours = outputs_and_gradients(model, shared, learned=learned)
    theirs = outputs_and_gradients(model, apart(shared), learned=learned)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_transpose_is_computed_once_for_the_largest_block_that_needs_it() -> None:
    for learned, largest in ((True, 0), (False, 1)):
        batch = dense()
        outputs_and_gradients(model_of("gin"), batch, learned=learned)
        computed = [block for block in batch.blocks if "transposed" in block.__dict__]
        assert computed == list(batch.blocks[largest:])
        rows = {block.transposed.rows.data_ptr() for block in computed}
        assert len(rows) == 1
        assert len(computed[0].transposed.rows) == computed[0].num_edges
        ends = [block.transposed.ends for block in computed]
        assert ends[0] is None and all(end is not None for end in ends[1:])
    alone = dense().blocks[2].transposed  # without a forward pass, a block's own
    assert len(alone.rows) == dense().blocks[2].num_edges
    assert dense().blocks[1].destinations.tolist() == apart(dense()).blocks[1].destinations.tolist()


def test_records_keep_sharing() -> None:
    batch = dense()
    for copy in (batch, batch.to("cpu"), replace(batch, step=3), *batch.split(SEEDS % 3)):
        shared = {id(block.__dict__["shared_rows"]) for block in copy.blocks}
        assert len(shared) == 1
    assert id(batch.blocks[0].__dict__["shared_rows"]) != id(batch.to("cpu").blocks[0].__dict__["shared_rows"])
    assert "shared_rows" not in same_record(batch.blocks[0]).__dict__


@pytest.mark.parametrize("method", ["reg", "random"])
@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_are_exact(kind: str, method: str) -> None:
    model, batch = model_of(kind), dense()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    results = []
    for micro in ([batch], batch.split(wb.partition_batch(batch, 4, method=method))):
        loss = wb.train_step(model, micro, X, Y, cross_entropy, optimizer)
        results.append((loss, gradients(model)))
    assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(*results, strict=True))


def test_parts_are_what_sampling_the_parts_gives() -> None:
    sampler = wb.DenseSampler([2] * 4)
    whole = sampler.sample(TYPED, SEEDS, step=2)
    for part, micro in enumerate(whole.split(SEEDS % 3)):
        alone = sampler.sample(TYPED, SEEDS[part == SEEDS % 3], step=2)
        assert torch.equal(alone.node_ids, micro.node_ids)
        assert all(torch.equal(a.indices, b.indices) for a, b in zip(alone.blocks, micro.blocks, strict=True))


def estimated(kind: str, num_layers: int) -> wb.MiniBatch:
    return wb.DenseSampler([5] * num_layers).sample(GRAPH, torch.arange(200))


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_the_estimate_matches_the_meter(kind: str) -> None:
    batch = estimated(kind, 3)
    check(build(kind, 3, WIDE), [batch])
    check(build(kind, 3, 16), thirds(batch))


def test_the_estimate_counts_shared_rows_once() -> None:
    model, batch = build("gcn", 4, WIDE), estimated("gcn", 4)
    for backend in ("cpu", "cuda"):
        ours, theirs = (estimate_memory(model, b, backend=backend) for b in (batch, apart(batch)))
        assert theirs.terms["blocks"] > ours.terms["blocks"]  # not by all arrays: one large transpose
        assert theirs.peak_bytes > ours.peak_bytes


def test_recovery_from_oom_is_exact() -> None:
    batch = wb.DenseSampler([4] * 3).sample(GRAPH, torch.arange(200))
    x, y = torch.randn(GRAPH.num_nodes, IN), torch.arange(GRAPH.num_nodes) % CLASSES
    model = build("gat", 3, WIDE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(**options: Any) -> tuple[Tensor, Tensor]:
        loss = wb.train_step(model, batch, x, y, cross_entropy, optimizer, **options)
        return loss, gradients(model)

    expected, splits = step(), []
    peak = wb.measure_peak(step)
    with wb.limit_memory(int(0.7 * peak)):
        found = step(recover=wb.Recovery(on_split=lambda *split: splits.append(split)))
    assert splits
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected, strict=True))


def test_conversions() -> None:
    dgl = pytest.importorskip("dgl")
    batch = dense()
    there = batch.to_dgl()
    back = wb.MiniBatch.from_dgl(there)
    assert torch.equal(back.node_ids, batch.node_ids)
    for ours, theirs in zip(batch.blocks, back.blocks, strict=True):
        assert torch.equal(ours.indptr, theirs.indptr) and torch.equal(ours.indices, theirs.indices)
    assert batch.blocks[0].edge_ids is not None
    assert there[0].edata[dgl.EID].tolist() == batch.blocks[0].edge_ids.tolist()
    pyg = batch.to_pyg()
    assert pyg.edge_index.shape[1] == batch.blocks[0].num_edges  # one sample per node serves every layer
    assert len(pyg.adjs) == 3

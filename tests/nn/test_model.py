"""`build_model`, and a model's options: exchanges, precomputed aggregates, dropout by node id."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.nn.blocks import NUM_TYPES, random_block, random_rows
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.nn.gnn import GNN
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS, build_model

IN, HIDDEN, OUT = 5, 8, 3
KINDS = (*MODEL_KINDS, *TYPED_MODEL_KINDS)
LINEAR = ("sage-mean", "sage-gcn", "gcn", "gin")


@pytest.fixture(scope="module")
def batch() -> MiniBatch:
    return random_minibatch(
        random_graph(30, 150, seed=3, num_edge_types=NUM_TYPES), fanouts=(4, 3), num_seeds=7, seed=3
    )


def model_of(kind: str, **options: Any) -> GNN:
    heads = {"heads": 4} if kind == "gat" else {}
    relations = {"num_relations": NUM_TYPES, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    sizes: dict[str, Any] = {"in_dim": IN, "hidden_dim": HIDDEN, "out_dim": OUT} | heads | relations | options
    return build_model(kind, **sizes).double()


def first_layer(model: GNN) -> Any:
    return model.layers[0]


def gradients(model: nn.Module, out: Tensor, x: Tensor) -> list[Tensor]:
    grads = torch.autograd.grad((out**2).sum(), [x, *model.parameters()], allow_unused=True)
    return [g for g in grads if g is not None]


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_norms(kind: str, num_layers: int, norm: str | None) -> None:
    mb = random_minibatch(random_graph(30, 150, num_edge_types=NUM_TYPES), fanouts=(3,) * num_layers, num_seeds=6)
    model = model_of(kind, num_layers=num_layers, norm=norm)
    out = model(mb.blocks, torch.randn(mb.num_inputs, IN, dtype=torch.float64))
    assert out.shape == (6, OUT)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.LayerNorm)]
    inner = num_layers if kind == "gin" else 0
    assert len(norms) == (0 if norm is None else num_layers - 1 + inner)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_applies_activations_between_its_layers(kind: str, batch: MiniBatch) -> None:
    model, x = model_of(kind), random_rows(batch.num_inputs, IN)
    hidden = model.layers[0](batch.blocks[0], x)
    hidden = nn.functional.elu(hidden) if kind == "gat" else hidden.relu()
    assert torch.equal(model(batch.blocks, x), model.layers[1](batch.blocks[1], hidden))


def test_weights_depend_on_the_seed_alone_and_the_global_generator_is_unchanged() -> None:
    before = torch.get_rng_state()
    a, b, c = model_of("gat"), model_of("gat"), model_of("gat", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(a.parameters()), next(c.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges_fill_the_halo(kind: str) -> None:
    """A callable that appends the halo to the owned sources gives the same as a block of all sources."""
    inner, outer = random_block(14, 9, 40, seed=1), random_block(9, 4, 20, seed=2)
    model, x = model_of(kind), random_rows(14, IN)
    plain = model((inner, outer), x)

    def fill(h: Tensor) -> Tensor:
        return torch.cat([h, x[10:]])

    out = model((inner, outer), x[:10], exchanges=(fill, lambda h: h))
    assert torch.equal(out, plain)
    for mine, other in zip(gradients(model, out, x), gradients(model, plain, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", LINEAR)
def test_a_precomputed_aggregate_replaces_the_first_block(kind: str, batch: MiniBatch) -> None:
    model, x = model_of(kind), random_rows(batch.num_inputs, IN)
    first, *others = batch.blocks
    aggregated = first_layer(model).aggregate(first, x)
    out = model(others, x[: first.num_dst], aggregated=aggregated)
    torch.testing.assert_close(out, model(batch.blocks, x), rtol=1e-12, atol=1e-12)


def test_a_precomputed_aggregate_in_a_model_of_one_layer() -> None:
    block, model = random_block(), model_of("gcn", num_layers=1)
    x = random_rows(block.num_src, IN)
    out = model((), x[: block.num_dst], aggregated=first_layer(model).aggregate(block, x))
    torch.testing.assert_close(out, model((block,), x))


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(LINEAR)))
def test_a_precomputed_aggregate_needs_a_linear_layer(kind: str, batch: MiniBatch) -> None:
    x = random_rows(batch.num_inputs, IN)
    with pytest.raises(ValueError, match="linear aggregate"):
        model_of(kind)(batch.blocks[1:], x, aggregated=x)


def split_rows(block: Block, rows: Tensor) -> tuple[Block, Tensor]:
    """Extract some destinations of a block as a block; return its sources, too."""
    edges = torch.cat([torch.arange(int(block.indptr[r]), int(block.indptr[r + 1])) for r in rows.tolist()])
    old = block.indices[edges].long()
    new = torch.tensor([s for s in dict.fromkeys(old.tolist()) if s not in set(rows.tolist())], dtype=torch.int64)
    sources = torch.cat([rows, new])
    local = torch.full((block.num_src,), -1)
    local[sources] = torch.arange(len(sources))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), block.in_degrees()[rows].cumsum(0)])
    types = None if block.edge_type is None else block.edge_type[edges]
    return Block(indptr, local[old].to(torch.int32), len(sources), len(rows), edge_type=types), sources


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_add_up_with_dropout(kind: str, batch: MiniBatch) -> None:
    model, x = model_of(kind, dropout=0.4).train(), random_rows(batch.num_inputs, IN)
    whole = model(batch.blocks, x, node_ids=batch.node_ids, step=5)
    parts = []
    for seeds in (torch.tensor([0, 3, 5]), torch.tensor([1, 2, 4, 6])):
        outer, middle = split_rows(batch.blocks[1], seeds)
        inner, inputs = split_rows(batch.blocks[0], middle)
        out = model((inner, outer), x[inputs], node_ids=batch.node_ids[inputs], step=5)
        torch.testing.assert_close(out, whole[seeds], rtol=1e-11, atol=1e-11)
        parts.append((out**2).sum())
    ours = torch.autograd.grad(torch.stack(parts).sum(), list(model.parameters()))
    theirs = torch.autograd.grad((whole**2).sum(), list(model.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).norm() <= 1e-10 * max(1e-12, other.norm().item())
    assert not torch.equal(model(batch.blocks, x, node_ids=batch.node_ids, step=6), whole)
    assert torch.equal(model.eval()(batch.blocks, x), model(batch.blocks, x, node_ids=batch.node_ids))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "sage"}, "sage-lstm"),
        ({"norm": "group"}, "batch, layer"),
        ({"kind": "gat", "heads": 3}, "heads is 3, which does not divide the 8"),
        ({"heads": 2}, "gcn has no heads"),
        ({"self_attention": True}, "self_attention is True, but gcn has no attention"),
        ({"num_layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout probability is 1.0"),
        ({"num_bases": 2}, "options of rgcn, but the kind is gcn"),
        ({"kind": "rgcn"}, "rgcn needs num_relations, one more than the largest edge type"),
        ({"kind": "rgcn", "num_relations": 0}, "num_relations is 0"),
        ({"kind": "rgcn", "num_relations": 3, "regularizer": "block"}, "choose from basis, bdd"),
        ({"kind": "rgcn", "num_relations": 3, "num_bases": 2, "regularizer": "bdd"}, "does not divide .* 5 and 8"),
    ],
)
def test_bad_arguments_are_refused(options: dict, message: str) -> None:
    arguments = {"kind": "gcn", "in_dim": IN, "hidden_dim": HIDDEN, "out_dim": OUT} | options
    with pytest.raises(ValueError, match=message):
        build_model(**arguments)


def test_wrong_numbers_of_blocks_and_exchanges_are_refused(batch: MiniBatch) -> None:
    model, x = model_of("gcn"), random_rows(batch.num_inputs, IN)
    with pytest.raises(ValueError, match="1 blocks given; this model of 2 layers needs 2"):
        model(batch.blocks[:1], x)
    with pytest.raises(ValueError, match="1 exchanges for 2 blocks"):
        model(batch.blocks, x, exchanges=(lambda h: h,))


def test_edge_weights_of_ones_change_nothing(batch: MiniBatch) -> None:
    ones = [replace(b, edge_weight=torch.ones(b.num_edges)) for b in batch.blocks]
    x = random_rows(batch.num_inputs, IN)
    for kind in KINDS:
        model = model_of(kind)
        torch.testing.assert_close(model(ones, x), model(batch.blocks, x))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seed": 1.5}, ValueError, "seed is 1.5; it must be a whole number"),
        ({"seed": 2**64}, ValueError, "seed is 18446744073709551616; it must be in"),
        ({"dropout": "0.5"}, ValueError, "dropout probability is '0.5'; it must be a number"),
        ({"num_layers": 10**9}, ValueError, "num_layers is 1000000000; it must be a whole number from 1 to 1000"),
        ({"in_dim": 2**31 - 1, "hidden_dim": 2**31 - 1}, MemoryError, r"a model with .* needs .* free; use narrower"),
        ({"kind": "rgcn", "num_relations": 2**31 - 1}, MemoryError, r"free; use narrower .* or another num_bases"),
        ({"kind": "rgcn", "num_relations": 2**31 - 1, "num_bases": 99}, MemoryError, "another num_bases"),
        (
            {"kind": "rgcn", "num_relations": 2**31 - 1, "num_bases": 1, "regularizer": "bdd"},
            MemoryError,
            "another num_bases",
        ),
    ],
)
def test_impossible_models_are_refused(options, error, message) -> None:
    sizes = {"kind": "sage-mean", "in_dim": 4, "hidden_dim": 4, "out_dim": 4}
    with pytest.raises(error, match=message):
        build_model(**(sizes | options))


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_another_dtype_or_width_are_refused(kind) -> None:
    mb = random_minibatch()
    model = model_of(kind, in_dim=4, heads=1).float()
    with pytest.raises(TypeError, match=r"features are torch.float64, the model's parameters torch.float32"):
        model(mb.blocks, torch.ones(mb.num_inputs, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"features have shape \(.*, 5\), but the model reads \[nodes, 4\]"):
        model(mb.blocks, torch.ones(mb.num_inputs, 5))

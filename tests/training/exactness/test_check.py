"""`check_exact`: which module breaks exactness, what can't be decided, and that trying a model leaves no trace."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from tests.training.exactness.models import BATCH, Centred, Two, X
from tests.training.toys import toy_batch
from workbench.core.block import Block
from workbench.interop.pyg_forms import has_one_sample_per_node
from workbench.nn.gcn import GCNLayer
from workbench.training.exactness.small_batch import small_batch


def with_mean(h: Tensor) -> Tensor:
    return h - h.mean(0)


@pytest.mark.parametrize(
    ("between", "module", "kind"),
    [
        (Centred(), "between", "Centred"),
        (nn.Sequential(nn.ReLU(), nn.Sequential(nn.Identity(), Centred())), "between.1.1", "Centred"),
        (with_mean, "", "Two"),
        (nn.BatchNorm1d(5), "between", "BatchNorm1d"),
        (nn.BatchNorm1d(5, track_running_stats=False).eval(), "between", "BatchNorm1d"),
        (nn.Softmax(dim=0), "between", "Softmax"),
    ],
)
def test_the_first_inexact_module_is_named(between: Any, module: str, kind: str) -> None:
    result = wb.check_exact(Two(between), BATCH)
    assert (result.exact, result.module, result.kind) == (False, module, kind)
    assert result.deviation is not None and result.deviation > 1e-3
    assert str(result).startswith(f"{kind} ({module})" if module else kind)


@pytest.mark.parametrize(
    "between",
    [
        torch.tanh,
        nn.LayerNorm(5),
        nn.BatchNorm1d(5).eval(),
        nn.Dropout(0.5),
        lambda h: F.dropout(h, 0.5, training=True),
    ],
)
def test_row_wise_modules_are_exact_and_dropout_is_off(between: Any) -> None:
    result = wb.check_exact(Two(between), BATCH)
    always_random = not isinstance(between, nn.Module) and between is not torch.tanh
    assert result.exact is (None if always_random else True), result
    assert ("draws random numbers in eval mode" in result.reason) == always_random


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is divided by the number of rows."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad / len(grad)


def test_gradients_are_compared_too() -> None:
    result = wb.check_exact(Two(Scaled.apply), BATCH)
    assert (result.exact, result.module) == (False, "")


class Failing(nn.Module):
    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        raise LookupError("no such column")


class Frozen(nn.Module):
    """Neither parameters nor rows that require a gradient."""

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return x.detach()[: blocks[-1].num_dst]


class Scalar(Frozen):
    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        return x.sum()


@pytest.mark.parametrize(
    ("model", "mb", "reason"),
    [
        (Failing(), BATCH, "LookupError on a small batch: no such column"),
        (Scalar(), BATCH, "returns no floating-point tensor with a row per seed"),
        (Two(lambda h: h / 0), BATCH, "not finite"),
        (Two(), random_minibatch(random_graph(2, 0), num_seeds=1), "the batch has 1 nodes; 4 are needed"),
    ],
)
def test_what_can_not_be_decided_has_a_reason(model: nn.Module, mb: wb.MiniBatch, reason: str) -> None:
    result = wb.check_exact(model, mb)
    assert result.exact is None
    assert reason in str(result)


def test_a_module_that_is_known_is_named_where_the_model_can_not_be_tried() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), Failing())
    result = wb.check_exact(model, BATCH)
    assert (result.exact, result.module, result.deviation) == (False, "0", None)


def test_models_of_the_library_are_known_and_not_run() -> None:
    def model(norm: str | None = None) -> Any:
        built = wb.build_model("gcn", in_dim=4, hidden_dim=5, out_dim=3, norm=norm)
        built.register_forward_hook(lambda *_: pytest.fail("it was run"))
        return built

    assert wb.check_exact(model("layer"), BATCH) == wb.check_exact(model(), BATCH) == wb.Exactness(True)
    assert wb.check_exact(model("batch"), BATCH).module == "norms.0"
    assert wb.check_exact(model("batch").eval(), BATCH).exact is True
    both = model()
    both.layers[1] = GCNLayer(5, 3, norm="both")
    result = wb.check_exact(both, BATCH)
    assert (result.module, result.kind) == ("layers.1", "GCNLayer")
    assert "split workbench.symmetric_norm(batch)" in result.reason
    changed = wb.build_model("gcn", in_dim=4, hidden_dim=5, out_dim=3)
    changed.activation = nn.Softmax(dim=0)
    assert wb.check_exact(changed, BATCH).module == "activation"


def test_every_kind_of_model_is_exact_when_it_is_run() -> None:
    mb = random_minibatch(random_graph(40, 200, edge_weight=torch.float32), fanouts=(3, 2), num_seeds=13)
    for kind in ("sage-mean", "sage-pool", "sage-lstm", "gin", "gat", "gcn"):
        inner = wb.build_model(kind, in_dim=4, hidden_dim=6, out_dim=3, norm="layer", dropout=0.5)
        wrapped = nn.ModuleDict({"inner": inner})
        wrapped.forward = inner.forward  # type: ignore[method-assign] — not a GNN, so it is tried
        result = wb.check_exact(wrapped, mb, in_dim=4)
        assert result.exact is True and result.deviation is not None and result.deviation < 1e-12, (kind, result)


@pytest.mark.parametrize("fanouts", [(3, 2), (4,), (-1, -1), (2, 2, 2)])
@pytest.mark.parametrize("num_seeds", [1, 13])
def test_the_small_batch_has_rows_of_the_batch_and_shared_sources(fanouts: tuple[int, ...], num_seeds: int) -> None:
    graph = random_graph(40, 300, edge_weight=torch.float32, num_edge_types=3)
    mb = random_minibatch(graph, fanouts=fanouts, num_seeds=num_seeds, step=5)
    small = small_batch(mb, torch.float64)
    assert small is not None
    small.validate(num_nodes=40)
    assert len(small.blocks) == len(mb.blocks) and small.step == 5
    assert torch.equal(small.node_ids, mb.node_ids[: small.num_inputs])
    merged = has_one_sample_per_node(mb.blocks)
    assert has_one_sample_per_node(small.blocks) == merged
    for ours, theirs in zip(small.blocks, mb.blocks, strict=True):
        assert_rows_of(ours, mb.blocks[0] if merged else theirs)
    parts = small.split(torch.arange(small.num_seeds) % 3)
    assert sum(part.num_inputs for part in parts) > small.num_inputs


def assert_rows_of(first: Block, rows: Block) -> None:
    """The rows have the attributes of the others, cyclically."""
    for row in range(first.num_dst):
        theirs = slice(*rows.indptr[row % rows.num_dst :][:2].tolist())
        ours = slice(*first.indptr[row : row + 2].tolist())
        for name in ("edge_ids", "edge_type", "edge_weight"):
            assert torch.equal(getattr(first, name)[ours], getattr(rows, name)[theirs].to(getattr(first, name).dtype))


def test_the_price_does_not_grow_with_the_batch() -> None:
    sizes = [small_batch(toy_batch(n, n // 2)).nbytes for n in (200, 2000)]  # type: ignore[union-attr]
    assert sizes[1] < 1.2 * sizes[0] < 8000


def test_side_data_is_looked_up_by_the_ids_of_the_small_batch() -> None:
    model, edge_rows = Two(), torch.rand(200, 5)

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Any:
        h = model(mb.blocks, inputs.x)
        edges = edge_rows[mb.blocks[-1].edge_ids].sum(1)
        total = torch.zeros(mb.num_seeds, dtype=h.dtype).index_add(0, mb.blocks[-1].destinations, edges.to(h.dtype))
        return {"h": h, "auxiliary": (h * total[:, None], torch.ones(3))}

    assert wb.check_exact(model, BATCH, x=X[BATCH.node_ids], forward=forward).exact is True


def test_inputs_may_be_nested_and_must_have_the_rows_of_the_batch() -> None:
    model, rows = Two(), X[BATCH.node_ids]

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        return model(mb.blocks, inputs.x["left"] * inputs.x["scale"] + inputs.x["right"][0])

    nested = {"left": rows, "right": (2 * rows, "a name"), "scale": torch.tensor(3.0)}
    assert wb.check_exact(model, BATCH, x=nested, forward=forward).exact is True
    assert "contain a object" in wb.check_exact(model, BATCH, x={"left": object()}, forward=forward).reason
    assert "(40, 4), but the batch 34 inputs; pass x[batch.node_ids]" in wb.check_exact(model, BATCH, x=X).reason


def test_batches_of_dgl_are_checked() -> None:
    pytest.importorskip("dgl")
    blocks = BATCH.to_dgl()
    assert wb.check_exact(Two(Centred()), blocks).module == "between"


def test_batches_of_pyg_are_checked() -> None:
    batch = BATCH.to_pyg("edge_index")
    batch = SimpleNamespace(**(batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)), x=X[batch.n_id])
    assert wb.check_exact(Two(Centred()), batch).module == "between"


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="model is the class Two; pass an instance"):
        wb.check_exact(Two, BATCH)  # type: ignore[arg-type]
    assert "Two" in wb.check_exact(Two(dim=7), BATCH, in_dim=3).reason

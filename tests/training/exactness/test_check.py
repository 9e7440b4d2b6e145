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
from workbench.interop.pyg import has_one_sample_per_node
from workbench.nn.gcn import GCNLayer
from workbench.training.exactness.trial import (
    APART,
    COMMON_LEAVES,
    OF_ITS_DEGREES,
    WIRINGS,
    overlap,
    small_batch,
)


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

    assert wb.check_exact(model("layer"), BATCH) == wb.check_exact(model(), BATCH) == wb.training.Exactness(True)
    assert wb.check_exact(model("batch"), BATCH).module == "norms.0"
    assert wb.check_exact(model("batch").eval(), BATCH).exact is True
    both = model()
    both.layers[1] = GCNLayer(5, 3, norm="both")
    result = wb.check_exact(both, BATCH)
    assert (result.module, result.kind) == ("layers.1", "GCNLayer")
    assert "split workbench.nn.symmetric_norm(batch)" in result.reason
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


ALL = (*WIRINGS, OF_ITS_DEGREES, APART, COMMON_LEAVES)


@pytest.mark.parametrize("fanouts", [(3, 2), (4,), (-1, -1), (2, 2, 2), (-1,) * 6])
@pytest.mark.parametrize("num_seeds", [1, 13])
def test_every_part_of_a_small_batch_lacks_rows_of_the_batch(fanouts: tuple[int, ...], num_seeds: int) -> None:
    graph = random_graph(40, 300, edge_weight=torch.float32, num_edge_types=3)
    mb = random_minibatch(graph, fanouts=fanouts, num_seeds=num_seeds, step=5)
    for wiring in ALL:
        small = small_batch(mb, torch.float64, wiring)
        assert small is not None
        made, rows, part = small
        made.validate(num_nodes=40, unique=False)
        assert len(made.blocks) == len(mb.blocks) and made.step == 5
        assert torch.equal(made.node_ids, mb.node_ids[rows])
        merged = has_one_sample_per_node(mb.blocks)
        assert has_one_sample_per_node(made.blocks) == merged
        for ours, theirs in zip(made.blocks, mb.blocks, strict=True):
            assert_edges_of(ours, theirs)
        parts = made.split(part)
        assert [len(p.seeds) for p in parts] == [made.num_seeds // 3] * 3
        assert overlap(parts)[::2] == (wiring not in (APART,), wiring not in (APART, COMMON_LEAVES))
        if wiring in WIRINGS:
            assert_lacking(made, parts)
            (whole,) = made.split(torch.zeros_like(part))
            assert whole.num_inputs == made.num_inputs  # no node is out of reach


def assert_edges_of(ours: Block, theirs: Block) -> None:
    """Every edge has the id, type and weight of one edge of the other block."""
    known = {
        (i, t, w) for i, t, w in zip(*(_list(theirs, n) for n in ("edge_ids", "edge_type", "edge_weight")), strict=True)
    }
    assert {
        (i, t, w) for i, t, w in zip(*(_list(ours, n) for n in ("edge_ids", "edge_type", "edge_weight")), strict=True)
    } <= known


def _list(block: Block, name: str) -> list[float]:
    return getattr(block, name).tolist()


def assert_lacking(whole: wb.MiniBatch, parts: list[wb.MiniBatch]) -> None:
    """By sets of local ids: every part reads nodes whose rows it lacks, in every layer, and its own nodes."""
    for layer, block in enumerate(whole.blocks):
        with_rows = set(range(block.num_dst))
        read = []
        for part in parts:
            assert part.parent is not None
            mine = part.blocks[layer]
            sources = set(part.parent[: mine.num_src].tolist())
            assert sources & with_rows - set(part.parent[: mine.num_dst].tolist())
            assert with_rows - sources  # it never comes around
            read.append(sources)
        assert not (read[0] <= read[1] or read[1] <= read[2] or read[2] <= read[0])


def test_the_price_does_not_grow_with_the_batch() -> None:
    sizes = [small_batch(toy_batch(n, n // 2)).mb.nbytes for n in (200, 2000)]  # type: ignore[union-attr]
    assert sizes[1] < 1.2 * sizes[0] < 8000


class Gated(nn.Module):
    """A module that looks across the batch behind two gates that are closed before training."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(2)])

    def forward(self, h: Tensor) -> Tensor:
        return h + self.gates[0] * self.gates[1] * (h - h.mean(0))


class Functional(nn.Module):
    """Batch normalization without a module for it."""

    def forward(self, h: Tensor) -> Tensor:
        return F.batch_norm(h, None, None, training=True) if self.training else h


@pytest.mark.parametrize("between", [Gated(), Functional()])
def test_what_is_hidden_before_training_or_in_eval_mode_is_found(between: nn.Module) -> None:
    assert wb.check_exact(Two(between), BATCH).module == "between"


def test_features_that_are_zero_hide_nothing() -> None:
    assert wb.check_exact(Two(Centred()), BATCH, x=torch.zeros(BATCH.num_inputs, 4)).module == "between"


def test_a_batch_without_edges_decides_nothing() -> None:
    mb = wb.NeighborSampler([3, 3]).sample(wb.Graph.from_edges([0], [1], num_nodes=40), torch.arange(20, 30))
    result = wb.check_exact(Two(), mb)
    assert result.exact is None and "have all rows of it" in result.reason


class Rounded(nn.Module):
    """Subtracts a little of the mean: less than float32 computes, more than it rounds."""

    def forward(self, h: Tensor) -> Tensor:
        if h.dtype == torch.float64:
            raise TypeError("float32 alone")
        return h - 3e-4 * h.mean(0)


def test_deviations_that_may_be_rounding_decide_nothing() -> None:
    result = wb.check_exact(Two(Rounded()), BATCH)
    assert result.exact is None and "may be the rounding of torch.float32" in result.reason


class Degrees(nn.Module):
    """Divides by out-degrees, which only shared sources change."""

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        for block in blocks:
            degrees = torch.bincount(block.indices, minlength=block.num_src).clamp(min=1)
            x = torch.zeros(block.num_dst, x.shape[1], dtype=x.dtype).index_add(
                0, block.destinations, (x / degrees[:, None])[block.indices]
            )
        return x


@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_whose_parts_share_nothing_is_not_warned_of_but_the_next_one_is(shared: bool) -> None:
    """Chains i → i + 100 → i + 200; with a shared end, out-degrees of parts differ."""
    ends = torch.arange(20)
    graph = wb.Graph.from_edges(
        torch.cat([ends + 100, (ends + 200) // (20 if shared else 1)]), torch.cat([ends, ends + 100]), num_nodes=400
    )
    mb = wb.NeighborSampler([3, 3]).sample(graph, ends)
    result = wb.check_exact(Degrees(), mb, in_dim=4)
    assert result.exact is (False if shared else None) and result.kind == "Degrees"
    assert ("whose parts share no nodes" in result.reason) != shared


class Padded(nn.Module):
    """Sums neighbours; in one layer, rows see the largest degree, as those that are padded to it do."""

    def __init__(self, padded: int) -> None:
        super().__init__()
        self.padded = padded

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        for layer, block in enumerate(blocks):
            rows = x.new_zeros(block.num_dst, x.shape[1]).index_add(0, block.destinations, x[block.indices])
            x = rows * (block.in_degrees().max() if layer == self.padded else 1)
        return x


@pytest.mark.parametrize(
    ("num_layers", "padded"), [(layers, layer) for layers in range(1, 6) for layer in range(layers)]
)
@pytest.mark.parametrize("merged", [False, True])
def test_padding_to_the_largest_degree_is_found_in_any_layer(num_layers: int, padded: int, merged: bool) -> None:
    mb = random_minibatch(random_graph(400, 4000), fanouts=(3,) * num_layers, num_seeds=24)
    mb = wb.MiniBatch.from_pyg(mb.to_pyg("edge_index")) if merged else mb
    assert wb.check_exact(Padded(padded), mb, in_dim=4).kind == "Padded"


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

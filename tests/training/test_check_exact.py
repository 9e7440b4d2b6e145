"""`check_exact`: which module breaks exactness, what can't be decided, and that trying a model leaves no trace."""

import copy
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from tests.training.toys import PlainLayer, PlainModel, gradients, toy_batch
from workbench.core.block import Block
from workbench.interop.pyg_forms import has_one_sample_per_node
from workbench.nn.gcn import GCNLayer
from workbench.training.exactness.small_batch import small_batch

BATCH = toy_batch()
X = torch.linspace(-1, 1, 160).sin().view(40, 4)


class Centred(nn.Module):
    """Subtracts the mean over all nodes."""

    def forward(self, h: Tensor) -> Tensor:
        return h - h.mean(0)


class Two(nn.Module):
    """Two layers with a module in between, and whatever a test needs."""

    def __init__(self, between: nn.Module | Callable[[Tensor], Tensor] = torch.tanh, *, dim: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([PlainLayer(dim, 5), PlainLayer(5, 3)])
        self.between = between

    def forward(self, blocks: Any, x: Tensor) -> Any:
        return self.layers[1](blocks[1], self.between(self.layers[0](blocks[0], x)))


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


class Cached(nn.Module):
    """Keeps its first input, counts its calls in a buffer, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None
        self.register_buffer("calls", torch.zeros(()))
        self.lstm = nn.LSTM(5, 5, dropout=0.5, num_layers=2)

    def forward(self, h: Tensor) -> Tensor:
        self.first = h if self.first is None else self.first
        self.calls += 1
        torch.rand(1)
        return F.dropout(h, 0.5, self.training) + self.lstm(h[:, None])[0][:, 0]


def test_trying_a_model_leaves_no_trace() -> None:
    torch.manual_seed(3)
    model = Two(nn.Sequential(Cached(), nn.BatchNorm1d(5)))
    outside = nn.Embedding(40, 4)

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        return model(mb.blocks, inputs.x + outside(mb.node_ids))

    hooks = []
    model.register_forward_hook(lambda *_: hooks.append(1))
    forward(BATCH, wb.Inputs(X[BATCH.node_ids])).sum().backward()
    model.layers[1].eval()
    before = copy.deepcopy((model.state_dict(), [p.grad for p in model.parameters()], outside.weight.grad))
    identities = [(id(p), id(p.grad)) for p in model.parameters()]
    attributes = [dict(vars(module)) for module in model.modules()]
    random_state = torch.get_rng_state()
    result = wb.check_exact(model, BATCH, x=X[BATCH.node_ids], forward=forward)
    assert result.exact is False
    after = (model.state_dict(), [p.grad for p in model.parameters()], outside.weight.grad)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert [(id(p), id(p.grad)) for p in model.parameters()] == identities
    for module, attributes_before in zip(model.modules(), attributes, strict=True):
        assert vars(module).keys() == attributes_before.keys()
        assert all(value is attributes_before[name] for name, value in vars(module).items())
    assert torch.equal(torch.get_rng_state(), random_state)


def test_an_interrupt_leaves_no_trace() -> None:
    def interrupted(h: Tensor) -> Tensor:
        raise KeyboardInterrupt

    model = Two(interrupted)
    parameters = list(model.parameters())
    with pytest.raises(KeyboardInterrupt):
        wb.check_exact(model, BATCH)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert model.training and model.layers[0].training


def test_tied_parameters_stay_tied_inside() -> None:
    model = Two(dim=5)
    model.layers[1] = model.layers[0]
    assert wb.check_exact(model, BATCH).exact is True


class Single(nn.Module):
    """Computes in float32 only, whatever its parameters are."""

    def forward(self, h: Tensor) -> Tensor:
        if h.dtype == torch.float64:
            raise TypeError("float32 alone")
        return h.sin()


def test_a_model_that_computes_in_float32_alone_is_tried_in_it() -> None:
    result = wb.check_exact(Two(Single()), BATCH)
    assert result.exact is True and result.deviation is not None and result.deviation < 1e-5
    model = Two(nn.Sequential(Single(), Centred()))
    assert wb.check_exact(model, BATCH).module == "between.1"


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


def test_a_model_with_lazy_parameters_is_checked_when_it_has_been_called() -> None:
    model = Two(nn.Sequential(nn.LazyLinear(5), Centred()))
    assert "uninitialized parameters; call it once" in wb.check_exact(model, BATCH).reason
    with pytest.warns(RuntimeWarning, match=r"Centred \(between.1\)"):
        train(model, halves())  # at its second micro-batch, before a step


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_not_run() -> None:
    traced: Any = torch.jit.trace(nn.Linear(5, 5), torch.ones(1, 5))
    model = Two(traced)
    assert "scripted; check the module that it was made from" in wb.check_exact(model, BATCH).reason


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


def train(model: nn.Module, micro: Any, **options: Any) -> None:
    accumulate_options = {"read": lambda m: X[m.node_ids], "loss_of": lambda out, m: out.sum()}
    wb.accumulate(model, micro, *accumulate_options.values(), **options)


def halves(mb: wb.MiniBatch = BATCH) -> list[wb.MiniBatch]:
    return mb.split(torch.arange(mb.num_seeds) % 2)


def test_a_model_is_checked_once_and_warned_of_at_the_callers_line() -> None:
    model = Two(Centred())
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\) makes gradients of micro-batches differ") as caught:
        train(model, halves())
    assert [warning.filename for warning in caught] == [__file__]
    train(model, halves())  # warnings are errors here
    model.eval()
    with pytest.warns(RuntimeWarning, match="Centred"):  # its modes have changed
        train(model, halves())


def test_one_micro_batch_and_verify_false_check_nothing() -> None:
    calls: list[int] = []
    model = Two(Centred())
    model.register_forward_hook(lambda *_: calls.append(1))
    train(model, BATCH)
    train(model, halves(), verify=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wb.train_step(model, halves(), X, torch.arange(40) % 3, F.cross_entropy, optimizer, verify=False)
    assert len(calls) == 5
    with pytest.warns(RuntimeWarning, match="Centred"):
        wb.train_step(model, halves(), X, torch.arange(40) % 3, F.cross_entropy, optimizer)


def test_a_batch_that_is_split_after_an_oom_error_is_checked_then() -> None:
    model, failed = Two(Centred()), []

    def forward(mb: wb.MiniBatch, inputs: wb.Inputs) -> Tensor:
        if not failed:
            failed.append(mb)
            raise torch.OutOfMemoryError("injected")
        return model(mb.blocks, inputs.x)

    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        train(model, BATCH, forward=forward, recover=wb.Recovery(method="range"))


def test_gradients_are_those_without_the_check() -> None:
    results = []
    for verify in (True, False):
        torch.manual_seed(1)
        model = Two(nn.Dropout(0.5))
        train(model, halves(), verify=verify)
        results.append(gradients(model))
    assert torch.equal(*results)


def test_micro_batches_checks_the_model_that_it_is_told() -> None:
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        wb.micro_batches(BATCH, 2, method="range", model=Two(Centred()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.micro_batches(BATCH, 2, method="range", model=PlainModel())
        wb.micro_batches(BATCH, 2, method="range", model=Two(Centred()), verify=False)


def test_the_module_inside_a_data_parallel_one_is_checked() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Two(Centred())

        def no_sync(self) -> Any:
            return warnings.catch_warnings()

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return self.module(blocks, x)

    assert "communicates; check its .module" in wb.check_exact(Parallel(), BATCH).reason
    with pytest.warns(RuntimeWarning, match=r"Centred \(between\)"):
        train(Parallel(), halves())


def test_compiled_models_are_run_eagerly() -> None:
    model = torch.compile(Two(Centred()), backend=lambda *_: pytest.fail("it was compiled"))
    assert isinstance(model, nn.Module)
    assert wb.check_exact(model, BATCH, in_dim=4).module == "_orig_mod.between"


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_under_autocast_is_tried_in_float64(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = wb.check_exact(PlainModel().to(dtype), BATCH)
    assert result.exact is True and result.deviation is not None and result.deviation < 1e-12


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

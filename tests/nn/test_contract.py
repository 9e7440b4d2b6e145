"""Contract of every kind of layer."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.covering import pairwise
from tests.nn.blocks import NUM_TYPES, random_block, random_rows
from tests.nn.oracles import by_rows
from workbench.core.block import Block
from workbench.kernels import (
    block_diagonal_sum,
    edge_softmax,
    gather,
    segment,
    threads,
    typed_sum,
)
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGELayer

IN = 6
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "sage-mean-wide": lambda: SAGELayer(IN, 8, aggregator="mean"),
    "sage-mean-narrow": lambda: SAGELayer(IN, 4, aggregator="mean"),
    "sage-gcn-wide": lambda: SAGELayer(IN, 8, aggregator="gcn"),
    "sage-gcn-narrow": lambda: SAGELayer(IN, 4, aggregator="gcn"),
    "sage-pool": lambda: SAGELayer(IN, 8, aggregator="pool"),
    "sage-lstm": lambda: SAGELayer(IN, 4, aggregator="lstm"),
    "gcn-right-wide": lambda: GCNLayer(IN, 8),
    "gcn-right-narrow": lambda: GCNLayer(IN, 4),
    "gcn-both": lambda: GCNLayer(IN, 8, norm="both"),
    "gcn-none": lambda: GCNLayer(IN, 4, norm="none"),
    "gin": lambda: GINLayer(IN, 4, hidden_dim=5, eps=0.3, learn_eps=True),
    "gin-norm": lambda: GINLayer(IN, 4, norm="layer"),
    "gat-concat": lambda: GATLayer(IN, 8, heads=4),
    "gat-mean": lambda: GATLayer(IN, 3, heads=2, concat=False),
    "gat-self": lambda: GATLayer(IN, 3, heads=2, concat=False, self_attention=True),
    "rgcn-basis-wide": lambda: RGCNLayer(IN, 8, num_relations=NUM_TYPES, num_bases=2),
    "rgcn-basis-narrow": lambda: RGCNLayer(IN, 4, num_relations=NUM_TYPES, norm="right"),
    "rgcn-bdd": lambda: RGCNLayer(IN, 4, num_relations=NUM_TYPES, num_bases=2, regularizer="bdd"),
    "rgcn-bdd-alone": lambda: RGCNLayer(
        IN, 9, num_relations=NUM_TYPES, num_bases=3, regularizer="bdd", norm="none", self_loop=False, bias=False
    ),
}
KERNELS = (segment, edge_softmax, gather, typed_sum, block_diagonal_sum)
FORMS = ("compiled", "torch")
BLOCKS: dict[str, Callable[..., Block]] = {
    "usual": lambda **options: random_block(**options),
    "one edge": lambda **options: random_block(3, 2, 1, **options),
    "no edges": lambda **options: random_block(5, 3, 0, **options),
    "no destinations": lambda **options: random_block(4, 0, 0, **options),
    "no sources": lambda **options: random_block(0, 0, 0, **options),
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    made = LAYERS[request.param]().double()
    for name, parameter in made.named_parameters():  # a zero bias would hide that it is missing
        if "bias" in name:
            nn.init.normal_(parameter)
    return made


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        for module in KERNELS:
            monkeypatch.setattr(module, "use_compiled", lambda _: False)
        monkeypatch.setattr(segment, "MESSAGE_BYTES", 1024)  # several chunks of edges
    return request.param


def _gradients(layer: nn.Module, call: Callable[[], Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Return the result and the gradients of a fixed random projection of it."""
    out = call()
    coefficients = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    variables = [*inputs, *layer.parameters()]
    total = (out * coefficients.to(out.dtype)).sum() + 0 * variables[0].sum()  # an empty result has no gradient
    grads = torch.autograd.grad(total, variables, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(w) if g is None else g for w, g in zip(variables, grads, strict=True))]


def _assert_equal(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-10) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert (
            (mine - other).abs().max().item() <= tolerance * max(1.0, other.abs().max().item())
            if mine.numel()
            else True
        )


@pytest.mark.parametrize(
    ("layer", "form", "shape", "weighted"),
    pairwise(LAYERS, FORMS, BLOCKS, [False, True]),
    indirect=["layer", "form"],
)
def test_equals_the_oracle_row_by_row(layer: nn.Module, form: str, shape: str, weighted: bool) -> None:
    block = BLOCKS[shape](weight=torch.float64 if weighted else None, learn_weight=weighted)
    h = random_rows(block.num_src, IN)
    inputs = [h] if block.edge_weight is None else [h, block.edge_weight]
    _assert_equal(
        _gradients(layer, lambda: layer(block, h), inputs), _gradients(layer, lambda: by_rows(layer, block, h), inputs)
    )


def test_gradients_equal_finite_differences(layer: nn.Module) -> None:
    block = random_block(6, 4, 9, weight=torch.float64, learn_weight=True)
    h = random_rows(block.num_src, IN)
    assert block.edge_weight is not None
    inputs = (h, block.edge_weight, *layer.parameters())
    assert torch.autograd.gradcheck(lambda *_: layer(block, h), inputs, fast_mode=True)


def test_same_bits_for_any_number_of_threads(layer: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_MIN_WORK_PER_THREAD", 1)
    for module in (segment, typed_sum):
        monkeypatch.setattr(module, "_MIN_VALUES_PER_THREAD", 1)
    block = random_block(300, 120, 900, weight=torch.float64, learn_weight=True)
    h, before = random_rows(block.num_src, IN), get_num_threads()
    results = []
    try:
        for count in (1, 2, 7):
            set_num_threads(count)
            results.append(_gradients(layer, lambda: layer(block, h), [h, block.edge_weight]))  # type: ignore[list-item]
    finally:
        set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    ("layer", "form", "dtype"),
    pairwise(LAYERS, FORMS, [torch.float32, torch.bfloat16, torch.float16]),
    indirect=["layer", "form"],
)
def test_dtype_and_accuracy_in_lower_precision(layer: nn.Module, form: str, dtype: torch.dtype) -> None:
    block = random_block(weight=torch.float32)
    h = random_rows(block.num_src, IN, dtype=dtype)
    layer.to(dtype)
    low = _gradients(layer, lambda: layer(block, h), [h])
    assert {t.dtype for t in low} == {dtype}
    layer.double()
    wide = h.detach().double().requires_grad_()
    high = _gradients(layer, lambda: layer(block, wide), [wide])
    tolerance = 1e-5 if dtype == torch.float32 else 0.06
    _assert_equal([t.double() for t in low], high, tolerance)


def test_update_of_the_aggregate_is_the_layer(layer: nn.Module) -> None:
    if not hasattr(layer, "update"):
        assert not layer.is_linear
        return
    block = random_block(weight=torch.float64, learn_weight=True)
    h = random_rows(block.num_src, IN)
    inputs = [h, block.edge_weight]
    split = _gradients(layer, lambda: layer.update(h[: block.num_dst], layer.aggregate(block, h)), inputs)  # type: ignore[operator, arg-type]
    _assert_equal(split, _gradients(layer, lambda: layer(block, h), inputs))  # type: ignore[arg-type]


def test_a_linear_aggregate_is_linear_and_has_no_parameters(layer: nn.Module) -> None:
    block = random_block()
    if not layer.is_linear:
        return
    a, b = random_rows(block.num_src, IN, 1), random_rows(block.num_src, IN, 2)
    aggregate: Callable[[Block, Tensor], Tensor] = layer.aggregate  # type: ignore[assignment]
    torch.testing.assert_close(aggregate(block, 2 * a + b), 2 * aggregate(block, a) + aggregate(block, b))
    grads = torch.autograd.grad(aggregate(block, a).sum(), list(layer.parameters()), allow_unused=True)
    assert all(grad is None for grad in grads)


@pytest.mark.parametrize("name", LAYERS)
def test_transposed_edges_are_built_for_gradients_of_what_is_aggregated_alone(name: str) -> None:
    layer, built = LAYERS[name]().double(), []
    for gradient in (False, True):
        block = random_block()
        layer(block, random_rows(block.num_src, IN).detach().requires_grad_(gradient)).sum().backward()
        built.append("transposed" in block.__dict__)
    transforms_first = name in {"gat-concat", "gat-mean", "rgcn-basis-narrow"}  # its weights need them
    assert built == [transforms_first, name not in {"sage-pool", "gat-self"}]  # which do without


def test_types_that_the_layer_lacks_are_refused(layer: nn.Module) -> None:
    block, h = random_block(), random_rows(14, IN)
    if not isinstance(layer, RGCNLayer):
        layer(replace(block, edge_type=None), h)
        return
    with pytest.raises(ValueError, match="the block has no edge types"):
        layer(replace(block, edge_type=None), h)
    assert block.edge_type is not None
    with pytest.raises(ValueError, match="edge_type contains 3, but the layer has 3 relations"):
        layer(replace(block, edge_type=block.edge_type + 1), h)


def test_too_few_rows_are_refused(layer: nn.Module) -> None:
    block = random_block()
    with pytest.raises(ValueError, match="14 sources"):
        layer(block, random_rows(block.num_src - 1, IN))

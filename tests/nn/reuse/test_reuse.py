"""Models that reuse buffers equal plain ones, allocate next to nothing, and are refused where they would be wrong."""

import copy
import importlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph, random_minibatch
from workbench.meter.allocated import measure_allocated
from workbench.nn.gnn import GNN
from workbench.nn.model import MODEL_KINDS, REUSING_KINDS

IN, CLASSES = 6, 3
GRAPH = random_graph(400, 4000, seed=2)


def pair(kind: str, hidden_dim: int = 8, num_layers: int = 2, dropout: float = 0.4, **options: Any) -> tuple[GNN, GNN]:
    """A plain model and one that reuses buffers, with equal weights."""
    options = {"in_dim": IN, "out_dim": CLASSES, "seed": 3, **options}
    sizes: dict[str, Any] = {"hidden_dim": hidden_dim, "num_layers": num_layers, "dropout": dropout, **options}
    plain, reusing = (wb.build_model(kind, **sizes, reuse_buffers=reuse).double() for reuse in (False, True))
    return plain, reusing


def run(model: GNN, mb: wb.MiniBatch, x: Tensor, **options: Any) -> Tensor:
    return model(mb.blocks, x, node_ids=mb.node_ids, step=mb.step, **options)


def features(mb: wb.MiniBatch, seed: int = 0) -> Tensor:
    rows = torch.randn(400, IN, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows[mb.node_ids]


def results(model: GNN, mb: wb.MiniBatch, x: Tensor) -> list[Tensor]:
    """Outputs, and the gradients of a sum with random weights, those of the features last."""
    for parameter in model.parameters():
        parameter.grad = None
    x = x.clone().requires_grad_()
    out = run(model, mb, x)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    (out * weights).sum().backward()
    grads = [parameter.grad for parameter in model.parameters()]
    return [out.detach(), *(grad for grad in grads if grad is not None), x.grad]  # type: ignore[list-item]


def assert_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("hidden_dim", [4, 9])
@pytest.mark.parametrize("kind", REUSING_KINDS)
@settings(max_examples=6)
@given(seeds=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 12)), min_size=1, max_size=3), data=st.data())
def test_equals_the_plain_model_on_growing_and_shrinking_batches(
    kind: str, hidden_dim: int, norm: str | None, seeds: list[tuple[int, int]], data: st.DataObject
) -> None:
    num_layers = data.draw(st.integers(1, 3))
    weight = data.draw(st.sampled_from((None, torch.float64)))
    plain, reusing = pair(kind, hidden_dim, num_layers, norm=norm)
    for seed, num_seeds in seeds:
        graph = random_graph(12, 40, seed, edge_weight=weight)
        mb = random_minibatch(graph, fanouts=[2] * num_layers, seed=seed, num_seeds=num_seeds, step=seed)
        assert_equal(results(reusing, mb, features(mb)), results(plain, mb, features(mb)))


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_torch_forms_equal_the_compiled_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.kernels.segment.MESSAGE_BYTES", 200)
    mb = random_minibatch(random_graph(40, 300, 1, edge_weight=torch.float64), fanouts=(5, 4), num_seeds=9)
    plain, reusing = pair(kind)
    expected = results(plain, mb, features(mb))
    for name in ("nn.reuse.aggregation", "nn.reuse.layers"):
        monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "use_compiled", lambda x: False)
    assert_equal(results(reusing, mb, features(mb)), expected)


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_block_without_edges(kind: str) -> None:
    plain, reusing = pair(kind)
    mb = random_minibatch(random_graph(5, 0), fanouts=(2, 2), num_seeds=3)
    assert_equal(results(reusing, mb, features(mb)), results(plain, mb, features(mb)))


def steps(model: GNN, batches: Sequence[Sequence[wb.MiniBatch]]) -> list[Tensor]:
    """Losses and parameters after training steps of micro-batches, with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(400, IN, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = torch.arange(400) % CLASSES
    losses = [wb.train_step(model, list(micro), x, y, cross_entropy, optimizer) for micro in batches]
    return [torch.stack(losses), *(parameter.detach().clone() for parameter in model.parameters())]  # type: ignore[arg-type]


def sampled(num_seeds: int, step: int = 0, fanouts: Sequence[int] = (4, 4)) -> wb.MiniBatch:
    return wb.NeighborSampler(list(fanouts), seed=1).sample(GRAPH, torch.arange(num_seeds), step=step)


def micro_batches() -> list[list[wb.MiniBatch]]:
    batches = [sampled(count, step) for step, count in enumerate((30, 90, 12))]
    return [mb.split(torch.arange(mb.num_seeds) % 3) for mb in batches]


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_training_with_micro_batches(kind: str) -> None:
    plain, reusing = pair(kind)
    assert_equal(steps(reusing, micro_batches()), steps(plain, micro_batches()))


def test_gradients_reach_hooks_as_data_parallel_wrappers_set_them() -> None:
    """A wrapper reads each gradient when it is complete, and may keep it while later ones are computed."""
    kept: list[dict[str, Tensor]] = []
    for model in pair("sage-mean"):
        found: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda p, n=name, f=found: f.update({n: p.grad}))
        results(model, sampled(40), features(sampled(40)))
        kept.append(found)
    assert_equal([kept[1][name] for name in kept[0]], list(kept[0].values()))


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_pieces_of_a_batch_that_ran_out_of_memory(share: float) -> None:
    """The buffers that the failed attempt allocated are freed, whether it failed forward or backward."""
    plain, reusing = pair("sage-mean", 32)
    mb, x, y = sampled(200), torch.randn(400, IN, dtype=torch.float64), torch.arange(400) % CLASSES
    optimizer = torch.optim.SGD(reusing.parameters(), lr=0.0)

    def step() -> Tensor:
        return wb.train_step(reusing, mb, x, y, cross_entropy, optimizer, recover=wb.Recovery())  # type: ignore[return-value]

    step()
    reusing.workspace.release()  # type: ignore[union-attr]
    needed = wb.measure_peak(step)
    reusing.workspace.release()  # type: ignore[union-attr]
    splits: list[str] = []
    with wb.limit_memory(int(share * needed)):
        loss = wb.train_step(
            reusing, mb, x, y, cross_entropy, optimizer, recover=wb.Recovery(), after=lambda *_: splits.append("piece")
        )
    assert len(splits) > 1
    expected = wb.train_step(plain, mb, x, y, cross_entropy, torch.optim.SGD(plain.parameters(), lr=0.0))
    torch.testing.assert_close(loss, expected)
    grads = [[parameter.grad for parameter in model.parameters()] for model in (plain, reusing)]
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_evaluation(kind: str) -> None:
    plain, reusing = pair(kind)
    for model in (plain, reusing):
        model.eval()
    x = features(sampled(40))
    with torch.no_grad():
        kept = reusing(sampled(40).blocks, x)
        reusing(sampled(20).blocks, features(sampled(20)))
        assert_equal([kept], [plain(sampled(40).blocks, x)])  # outputs are no buffers
    all_x = torch.randn(400, IN, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    logits = [wb.full_neighbour_logits(model, GRAPH, all_x, chunk_edges=900) for model in (plain, reusing)]
    assert_equal(logits[1:], logits[:1])


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_precomputed_aggregates_and_exchanges(kind: str) -> None:
    plain, reusing = pair(kind)
    mb = sampled(40)
    x = features(mb)
    first = x[: mb.blocks[0].num_dst], torch.randn(mb.blocks[0].num_dst, IN, dtype=torch.float64)
    outputs = [m(mb.blocks[1:], first[0], node_ids=mb.node_ids, aggregated=first[1]) for m in (plain, reusing)]
    assert_equal(outputs[1:], outputs[:1])
    outputs[1].sum().backward()
    exchanged = [run(m, mb, x, exchanges=[lambda h: 2 * h, lambda h: h + 1]) for m in (plain, reusing)]
    assert_equal(exchanged[1:], exchanged[:1])
    for model, out in zip((plain, reusing), exchanged, strict=True):
        model.zero_grad()
        out.sum().backward()
    grads = [[parameter.grad for parameter in model.parameters()] for model in (plain, reusing)]
    assert_equal(grads[1], grads[0])  # type: ignore[arg-type]


def one_step(model: GNN, mb: wb.MiniBatch, x: Tensor) -> Callable[[], None]:
    def call() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        batch = wb.MiniBatch(mb.node_ids, tuple(copy.copy(block) for block in mb.blocks), step=mb.step)
        for block in batch.blocks:
            block.__dict__.pop("transposed", None)
        model(batch.blocks, x, node_ids=mb.node_ids, step=mb.step).sum().backward()

    return call


@pytest.mark.parametrize("torch_forms", [False, True])
@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_allocates_a_twentieth_after_warm_up(kind: str, torch_forms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch_forms:
        for name in ("kernels.segment_sum", "nn.sage", "nn.gcn", "nn.reuse.aggregation", "nn.reuse.layers"):
            monkeypatch.setattr(importlib.import_module(f"workbench.{name}"), "use_compiled", lambda x: False)
    graph = random_graph(3000, 30_000, seed=2)
    mb = wb.NeighborSampler([5, 5, 5], seed=1).sample(graph, torch.arange(100))
    x = torch.randn(mb.num_inputs, 24, dtype=torch.float64)
    models = pair(kind, 32, 3, in_dim=24, dropout=0.0 if torch_forms else 0.5)
    plain, reusing = (one_step(model, mb, x) for model in models)
    for call in (plain, reusing):
        call()
    assert measure_allocated(reusing) <= 0.05 * measure_allocated(plain)
    before = models[1].workspace.nbytes  # type: ignore[union-attr]
    part = wb.NeighborSampler([5, 5, 5], seed=1).sample(graph, torch.arange(60))
    one_step(models[1], part, x[: part.num_inputs])()
    assert models[1].workspace.nbytes == before  # type: ignore[union-attr]


def test_a_second_forward_pass_before_backward_is_refused() -> None:
    plain, reusing = pair("sage-mean")
    mb = sampled(20)
    x = features(mb)
    out = run(reusing, mb, x)
    for context in (torch.enable_grad(), torch.no_grad()):
        with context, pytest.raises(RuntimeError, match=r"second forward pass before the backward pass .*release"):
            run(reusing, mb, x)
    out.sum().backward()  # the refused passes have changed nothing
    run(plain, mb, x).sum().backward()
    grads = [[parameter.grad for parameter in model.parameters()] for model in (plain, reusing)]
    assert_equal(grads[1], grads[0])  # type: ignore[arg-type]
    second = reusing(mb.blocks, x)  # although `out` still exists
    del second
    reusing(mb.blocks, x)  # the outputs of the last pass were dropped: there is nothing to run backward


def test_a_backward_pass_after_a_later_forward_pass_is_refused() -> None:
    _, reusing = pair("gcn")
    mb = sampled(20)
    loss = reusing(mb.blocks, features(mb)).sum()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)  # nothing was overwritten
    reusing(mb.blocks, features(mb)).sum().backward()
    with pytest.raises(RuntimeError, match="buffers of this forward pass were overwritten"):
        loss.backward()
    kept = reusing(mb.blocks, features(mb))
    reusing.workspace.release()  # type: ignore[union-attr]
    assert reusing.workspace.nbytes == 0  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="were overwritten"):
        kept.sum().backward()
    reusing(mb.blocks, features(mb)).sum().backward()


def test_a_failed_forward_pass_does_not_occupy_the_buffers() -> None:
    _, reusing = pair("gin")
    mb = sampled(20)

    def fail(h: Tensor) -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        reusing(mb.blocks, features(mb), exchanges=[lambda h: h, fail])
    reusing(mb.blocks, features(mb)).sum().backward()
    assert kept.value.__traceback__ is not None  # it refers to the failed pass


def test_frozen_parameters() -> None:
    plain, reusing = pair("sage-mean", num_layers=3)
    for model in (plain, reusing):
        model.layers[0].requires_grad_(False)
        model.layers[2].fc_self.weight.requires_grad_(False)  # type: ignore[union-attr]
    mb = sampled(20, fanouts=(3, 3, 3))
    assert_equal(results(reusing, mb, features(mb)), results(plain, mb, features(mb)))
    for model in (plain, reusing):
        for parameter in model.parameters():
            parameter.grad = None
        for _ in range(2):
            loss = run(model, mb, features(mb)).sum()  # the first layer is not part of the graph
            loss.backward()
    grads = [[p.grad for p in model.parameters() if p.requires_grad] for model in (plain, reusing)]
    assert_equal(grads[1], grads[0])  # type: ignore[arg-type]


def test_copies_have_buffers_of_their_own() -> None:
    _, reusing = pair("sage-gcn")
    mb = sampled(20)
    out = reusing(mb.blocks, features(mb))
    for copied in (copy.deepcopy(reusing), pickle.loads(pickle.dumps(reusing))):
        assert copied.workspace is not reusing.workspace and not copied.workspace.tensors()  # type: ignore[union-attr]
        assert {id(layer.workspace) for layer in copied.layers} == {id(copied.workspace)}
        copied(mb.blocks, features(mb)).sum().backward()
    out.sum().backward()


def test_state_of_the_models_is_interchangeable() -> None:
    for kind in REUSING_KINDS:
        plain, reusing = pair(kind)
        reusing.load_state_dict(plain.state_dict())
        assert list(reusing.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("kind", [*(kind for kind in MODEL_KINDS if kind not in REUSING_KINDS), "rgcn"])
def test_other_kinds_are_refused(kind: str) -> None:
    options: dict[str, Any] = {"num_relations": 2} if kind == "rgcn" else {}
    with pytest.raises(ValueError, match=rf"layers of {kind} can't reuse buffers; leave it at False"):
        wb.build_model(kind, in_dim=4, hidden_dim=4, out_dim=2, reuse_buffers=True, **options)


def test_other_precisions_are_refused() -> None:
    _, reusing = pair("gcn")
    mb = sampled(5)
    with pytest.raises(TypeError, match=r"torch.bfloat16, but .*reuse_buffers=False"):
        reusing.bfloat16()(mb.blocks, features(mb).bfloat16())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(TypeError, match=r"autocast is enabled, but .*float32"):
        reusing.float()(mb.blocks, features(mb).float())


def test_learned_edge_weights_are_refused() -> None:
    _, reusing = pair("gcn")
    mb = random_minibatch(random_graph(20, 60, edge_weight=torch.float64), fanouts=(2, 2))
    for block in mb.blocks:
        assert block.edge_weight is not None
        block.edge_weight.requires_grad_()
    with pytest.raises(ValueError, match=r"edge weights require a gradient.*reuse_buffers=False"):
        reusing(mb.blocks, features(mb))


@pytest.mark.filterwarnings("default")
def test_compiled_models_are_refused() -> None:
    torch.compiler.reset()
    _, reusing = pair("gcn")
    mb = sampled(5)
    with pytest.raises(RuntimeError, match=r"torch.compile plans the memory .*reuse_buffers=False"):
        torch.compile(reusing, backend="eager")(mb.blocks, features(mb))

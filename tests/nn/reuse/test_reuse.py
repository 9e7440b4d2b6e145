"""Models that reuse buffers equal plain ones and allocate next to nothing."""

import copy
import importlib
import pickle

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.nn.reuse.models import (
    CLASSES,
    GRAPH,
    IN,
    assert_equal,
    features,
    micro_batches,
    one_step,
    pair,
    results,
    run,
    sampled,
    steps,
)
from tests.strategies import examples, random_graph, random_minibatch
from workbench.meter.allocation_tracker import measure_allocated
from workbench.nn.model import REUSING_KINDS


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("hidden_dim", [4, 9])
@pytest.mark.parametrize("kind", REUSING_KINDS)
@examples(3)
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
    monkeypatch.setattr("workbench.nn.reuse.layers.use_compiled", lambda x: False)
    assert_equal(results(reusing, mb, features(mb)), expected)


@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_block_without_edges(kind: str) -> None:
    plain, reusing = pair(kind)
    mb = random_minibatch(random_graph(5, 0), fanouts=(2, 2), num_seeds=3)
    assert_equal(results(reusing, mb, features(mb)), results(plain, mb, features(mb)))


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


@pytest.mark.parametrize("torch_forms", [False, True])
@pytest.mark.parametrize("kind", REUSING_KINDS)
def test_allocates_a_twentieth_after_warm_up(kind: str, torch_forms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch_forms:
        for name in ("kernels.segment", "nn.sage", "nn.gcn", "nn.reuse.layers"):
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

"""Models that reuse buffers are refused where a result would be wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.nn.reuse.models import assert_equal, features, pair, run, sampled
from tests.strategies import random_graph, random_minibatch
from workbench.nn.model import MODEL_KINDS, REUSING_KINDS


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

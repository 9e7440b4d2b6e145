"""Betty's eight terms against the number in the artifact and batches counted by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.training.toys import PlainModel
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.memory.betty import betty_lstm_bytes, betty_terms
from workbench.memory.estimate import TERMS
from workbench.nn.model import MODEL_KINDS, build_model

ARXIV = {1: 13428, 2: 11706, 3: 9277, 4: 7320, 5: 6222, 6: 4868, 7: 4045, 8: 3472, 9: 2976, 10: 27627}


def batch() -> MiniBatch:
    """7 inputs → 4 nodes over 6 edges (in-degrees 3, 2, 1, 0) → 2 seeds over 3 edges (in-degrees 2, 1)."""
    first = Block(torch.tensor([0, 3, 5, 6, 6]), torch.tensor([4, 5, 6, 0, 1, 2], dtype=torch.int32), 7, 4)
    last = Block(torch.tensor([0, 2, 3]), torch.tensor([2, 3, 0], dtype=torch.int32), 4, 2)
    return MiniBatch(torch.arange(7), (first, last))


def test_the_artifacts_worked_number() -> None:
    assert sum(ARXIV.values()) == 90_941
    assert betty_lstm_bytes(ARXIV, 128) == 4_731_623_424


def test_terms_of_a_mean_model_by_hand() -> None:
    model = build_model("sage-mean", in_dim=5, hidden_dim=8, out_dim=3)
    parameters = (5 * 8 + 5 * 8 + 8) + (8 * 3 + 8 * 3 + 3)
    estimate = betty_terms(model, batch())
    by_hand = {
        "parameters": 4 * parameters,
        "optimizer": 4 * 2 * parameters,
        "inputs": 4 * 7 * 5,
        "blocks": 4 * 3 * (6 + 3),
        "labels": 4 * 2,
        "hidden": 4 * (4 * 8 + 2 * 3),
        "gradients": 4 * parameters,
    }
    assert {name: size for name, size in estimate.terms.items() if size} == by_hand
    assert tuple(estimate.terms) == TERMS and estimate.backend == "betty"
    assert estimate.phase == "backward" and estimate.peak_bytes == estimate.phase_bytes["backward"]
    assert estimate.fixed_bytes == 4 * 3 * parameters


def test_lstm_intermediates_replace_the_gradients_if_they_are_larger() -> None:
    """Both layers' LSTMs: 6 edges of 5 channels and 3 of 2, 18 tensors each; aggregator parameters count too."""
    model = build_model("sage-lstm", in_dim=5, hidden_dim=2, out_dim=3).double()
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == sum(4 * d * (2 * d + 2) for d in (5, 2)) + (5 * 2 * 2 + 2) + (2 * 3 * 2 + 3)
    estimate = betty_terms(model, batch(), optimizer="sgd")
    assert estimate.phase_bytes["forward"] - estimate.phase_bytes["backward"] == 8 * (18 * (6 * 5 + 3 * 2) - parameters)
    assert estimate.terms["aggregator"] == 8 * 18 * (6 * 5 + 3 * 2) and not estimate.terms["gradients"]
    assert estimate.peak_bytes == estimate.phase_bytes["forward"] == max(estimate.phase_bytes.values())


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_hidden_counts_the_outputs_of_every_layer(kind: str) -> None:
    model, mb = build_model(kind, in_dim=4, hidden_dim=6, out_dim=3, heads=2 if kind == "gat" else 1), batch()
    widths = []
    for layer in model.layers:
        layer.register_forward_hook(lambda module, args, out: widths.append(out.numel()))
    model(mb.blocks, torch.zeros(7, 4))
    estimate = betty_terms(model, mb)
    assert estimate.terms["hidden"] == 4 * sum(widths) and estimate.terms["inputs"] == 4 * 7 * 4


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (lambda p: torch.optim.Adam(p), 2),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), 3),
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
    ],
)
def test_states_of_optimizers(optimizer: Callable[..., torch.optim.Optimizer], states: int) -> None:
    model = build_model("gcn", in_dim=4, hidden_dim=6, out_dim=3)
    terms = betty_terms(model, batch(), optimizer=optimizer(model.parameters())).terms
    assert terms["optimizer"] == states * terms["parameters"]


def test_arguments_without_terms_are_refused() -> None:
    model = build_model("gcn", in_dim=4, hidden_dim=6, out_dim=3)
    with pytest.raises(ValueError, match="not for a PlainModel"):
        betty_terms(PlainModel(), batch())
    with pytest.raises(ValueError, match="2 layers, but the batch has 1 blocks"):
        betty_terms(model, MiniBatch(torch.arange(4), batch().blocks[1:]))
    with pytest.raises(ValueError, match="optimizer 'lion' is not known"):
        betty_terms(model, batch(), optimizer="lion")
    with pytest.raises(ValueError, match=r"^optimizer is a Rprop, .*; pass one of Adam, AdamW, SGD$") as caught:
        betty_terms(model, batch(), optimizer=torch.optim.Rprop(nn.Linear(2, 2).parameters()))
    assert len(str(caught.value)) < 120

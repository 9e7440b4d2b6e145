"""Estimates of optimizer state and step temporaries against the memory meter."""

from functools import partial
from typing import Any

import pytest
import torch

from tests.memory.measured import CLASSES, FANOUTS, IN, WIDE, build, compare, is_close, sample
from workbench.memory.estimator import estimate_memory
from workbench.memory.training_setup import Recovery


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.SGD,
        partial(torch.optim.SGD, momentum=0.9),
        partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
        partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1, foreach=True),
        partial(torch.optim.Adam, foreach=True),
        partial(torch.optim.Adam, amsgrad=True, weight_decay=0.1),
        partial(torch.optim.Adam, foreach=True, weight_decay=0.1),
        partial(torch.optim.Adam, fused=True),
        partial(torch.optim.Adam, maximize=True, weight_decay=0.1),
        partial(torch.optim.SGD, momentum=0.9, nesterov=True),
        partial(torch.optim.SGD, maximize=True),
        partial(torch.optim.SGD, maximize=True, foreach=True),
        partial(torch.optim.SGD, weight_decay=0.1),
        torch.optim.AdamW,
        torch.optim.NAdam,
        torch.optim.RMSprop,
        torch.optim.Adadelta,
    ],
    ids=lambda make: str(getattr(make, "keywords", getattr(make, "__name__", ""))),
)
def test_optimizers_match_the_meter(make: Any) -> None:
    model = build("sage-mean", 2, 512)
    optimizer = make(model.parameters(), lr=0.1)
    found = compare(model, [sample([1, 1], 3)], optimizer, in_dim=IN, num_classes=CLASSES)
    assert is_close(found["step"], 0.01), found


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_name_means_torchs_defaults(name: str) -> None:
    model, batch = build("gcn", 2, WIDE), sample(FANOUTS[:2])
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    by_name = estimate_memory(model, batch, optimizer=name)
    assert by_name == estimate_memory(model, batch, optimizer=kinds[name](model.parameters()))


def test_oom_recovery_counts_a_backup_of_the_optimizers_parameters() -> None:
    model = build("sage-mean", 2, 128)
    model.layers[0].requires_grad_(False)
    for learned in (model, model.layers[1]):
        optimizer = torch.optim.Adam(learned.parameters())
        found = compare(
            model, [sample([1, 1], 9)], optimizer, in_dim=IN, num_classes=CLASSES, recover=Recovery()
        )  # fmt: skip
        assert is_close(found["step"], 0.01, scalars=8), found


def test_unknown_and_foreign_optimizers_are_refused() -> None:
    batch = sample(FANOUTS[:2])
    with pytest.raises(ValueError, match="optimizer 'lion' is not known; choose from adam, adamw, sgd"):
        estimate_memory(build("gcn", 2, WIDE), batch, optimizer="lion")
    with pytest.raises(TypeError, match=r"optimizer is None; pass a name \(adam, adamw, sgd\) or an optimizer"):
        estimate_memory(build("gcn", 2, WIDE), batch, optimizer=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="none of the model's parameters"):
        estimate_memory(build("gcn", 2, WIDE), batch, optimizer=torch.optim.SGD(build("gcn", 2, WIDE).parameters()))

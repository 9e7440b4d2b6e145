"""`torch.compile`: compiled models equal eager ones, over batches of different sizes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.strategies import random_graph
from workbench.core.minibatch import MiniBatch
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS, build_model
from workbench.sampling.neighbor import NeighborSampler
from workbench.training.step import train_step

KINDS = (*MODEL_KINDS, *TYPED_MODEL_KINDS)
GRAPH = random_graph(200, 3000, seed=1, num_edge_types=3)
X = torch.randn(200, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(200) % 3
BATCHES = [
    NeighborSampler([5, 5]).sample(GRAPH, torch.arange(seeds), step=step) for step, seeds in enumerate((30, 17, 64, 41))
]
FAST = ("gat",)  # compiling takes six CPU seconds per kind


def losses(kind: str, backend: str | None, norm: str | None) -> list[float]:
    """Train on every batch, whole and in two micro-batches, and return the losses."""
    sizes: dict[str, Any] = {"in_dim": 16, "hidden_dim": 8, "out_dim": 3, "num_layers": 2}
    relations: dict[str, Any] = {"num_relations": 3} if kind in TYPED_MODEL_KINDS else {}
    model = build_model(kind, **sizes, **relations, dropout=0.5, norm=norm).double()
    called = model if backend is None else torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(micro: list[MiniBatch]) -> float:
        return float(train_step(called, micro, X, Y, F.cross_entropy, optimizer))  # type: ignore[arg-type]

    return [step(parts) for mb in BATCHES for parts in ([mb], mb.split(torch.arange(mb.num_seeds) % 2))]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler itself reads .grad
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k not in FAST)) for k in KINDS])
def test_compiled_models_train_like_eager_ones(kind: str) -> None:
    torch.compiler.reset()
    assert losses(kind, "eager", "layer") == losses(kind, None, "layer")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", KINDS)
def test_inductor_differs_only_by_rounding(kind: str) -> None:
    torch.compiler.reset()
    torch.testing.assert_close(losses(kind, "inductor", None), losses(kind, None, None), rtol=1e-9, atol=0)

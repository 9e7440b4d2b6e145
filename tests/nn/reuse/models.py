"""Plain models and models that reuse buffers with the same weights, and batches for both."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from workbench.nn.gnn import GNN

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


def sampled(num_seeds: int, step: int = 0, fanouts: Sequence[int] = (4, 4)) -> wb.MiniBatch:
    return wb.NeighborSampler(list(fanouts), seed=1).sample(GRAPH, torch.arange(num_seeds), step=step)


def steps(model: GNN, batches: Sequence[Sequence[wb.MiniBatch]]) -> list[Tensor]:
    """Losses and parameters after training steps of micro-batches, with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(400, IN, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = torch.arange(400) % CLASSES
    losses = [wb.train_step(model, list(micro), x, y, cross_entropy, optimizer) for micro in batches]
    return [torch.stack(losses), *(parameter.detach().clone() for parameter in model.parameters())]  # type: ignore[arg-type]


def micro_batches() -> list[list[wb.MiniBatch]]:
    batches = [sampled(count, step) for step, count in enumerate((30, 90, 12))]
    return [mb.split(torch.arange(mb.num_seeds) % 3) for mb in batches]


def one_step(model: GNN, mb: wb.MiniBatch, x: Tensor) -> Callable[[], None]:
    def call() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        batch = wb.MiniBatch(mb.node_ids, tuple(copy.copy(block) for block in mb.blocks), step=mb.step)
        for block in batch.blocks:
            block.__dict__.pop("transposed", None)
        model(batch.blocks, x, node_ids=mb.node_ids, step=mb.step).sum().backward()

    return call

"""Two owners that train on cooperative batches, exchanging rows in one process, compute the plain step's gradients."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.strategies import random_graph, random_minibatch
from tests.training.cooperative import Transport, cooperative_batches
from tests.training.toys import gradients, relative_difference
from workbench.core.minibatch import MiniBatch
from workbench.memory.training_setup import Recovery
from workbench.nn.losses import Inputs
from workbench.nn.model import MODEL_KINDS, build_model
from workbench.training.accumulate import accumulate
from workbench.training.step import train_step

TOLERANCE, OWNERS = 1e-10, 2
GRAPH = random_graph(60, 400, seed=5, edge_weight=torch.float64)
BATCH = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=20, seed=2, step=11)
OWNER = torch.arange(60) * 7 % 3 % OWNERS
X = torch.linspace(-9, 9, 60 * 6, dtype=torch.float64).sin().view(60, 6)
Y = torch.where(torch.arange(60) % 5 == 0, -1, torch.arange(60) % 4)


def new_model(kind: str, dropout: float = 0.5) -> nn.Module:
    heads = 2 if kind == "gat" else 1
    return build_model(kind, in_dim=6, hidden_dim=8, out_dim=4, dropout=dropout, heads=heads, seed=4).double()


def filled(model: nn.Module, transport: Transport, rank: int) -> Callable[[MiniBatch, Inputs], Tensor]:
    """A call of the model that fills the halo of every layer."""

    def forward(mb: MiniBatch, inputs: Inputs) -> Tensor:
        exchanges = [partial(transport.fill, rank, exchange) for exchange in mb.exchanges or ()]
        return model(mb.blocks, inputs.x, node_ids=mb.node_ids, step=mb.step, exchanges=exchanges)

    return forward


def step(model: nn.Module, micro: Any, x: Any, **options: Any) -> Tensor:
    return train_step(model, micro, x, Y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.0), **options)


def test_the_batches_of_the_owners_cover_the_batch() -> None:
    batches = cooperative_batches(BATCH, OWNER, OWNERS)
    assert sorted(torch.cat([mb.node_ids for mb in batches]).tolist()) == sorted(BATCH.node_ids.tolist())
    assert sum(mb.num_edges for mb in batches) == BATCH.num_edges
    for mb in batches:
        assert mb.exchanges is not None and mb.exchanges[0].receive_counts != (0, 0)
        assert mb.num_sources == mb.num_inputs + sum(mb.exchanges[0].receive_counts) == mb.blocks[0].num_src


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_cooperative_training_equals_the_plain_step(kind: str, num_parts: int) -> None:
    model, transport = new_model(kind), Transport(OWNERS)
    micro = BATCH.split(torch.arange(BATCH.num_seeds) % num_parts)
    replicas = [copy.deepcopy(model) for _ in range(OWNERS)]
    shared = [cooperative_batches(mb, OWNER, OWNERS) for mb in micro]

    def train(rank: int) -> Tensor:
        options: dict[str, Any] = {"total": partial(transport.sum, rank)}
        options["forward"] = filled(replicas[rank], transport, rank)
        return step(replicas[rank], [batches[rank] for batches in shared], X, **options)

    losses, loss = transport.run(train), step(model, micro, X)
    assert abs(sum(losses) - loss) <= TOLERANCE * loss
    summed = torch.stack([gradients(replica) for replica in replicas]).sum(0)
    assert relative_difference(summed, gradients(model)) <= TOLERANCE
    assert relative_difference(gradients(replicas[0]), gradients(model)) > 0.01


def test_gradients_of_rows_are_returned_to_their_owners() -> None:
    model, transport, found = new_model("gat"), Transport(OWNERS), torch.zeros_like(X)
    replicas = [copy.deepcopy(model) for _ in range(OWNERS)]
    batches = cooperative_batches(BATCH, OWNER, OWNERS)

    def train(rank: int) -> Tensor:
        return accumulate(
            replicas[rank],
            batches[rank],
            lambda mb: X[mb.node_ids].requires_grad_(),
            lambda out, mb: out.square().sum(),
            forward=filled(replicas[rank], transport, rank),
            after=lambda mb, inputs: found.index_add_(0, mb.node_ids, inputs.x.grad),
        )

    transport.run(train)
    x = X.clone().requires_grad_()
    model(BATCH.blocks, x[BATCH.node_ids], node_ids=BATCH.node_ids, step=BATCH.step).square().sum().backward()
    assert x.grad is not None
    assert relative_difference(found, x.grad) <= TOLERANCE


def test_without_forward_exchanges_are_refused_before_anything_changes() -> None:
    model, mb = new_model("gcn"), cooperative_batches(BATCH, OWNER, OWNERS)[0]
    step(model, BATCH, X)
    before = gradients(model)
    with pytest.raises(ValueError, match=r"has 2 exchanges.* pass forward=lambda mb, inputs: model\(mb.blocks, inputs"):
        step(model, mb, X)
    assert torch.equal(gradients(model), before)


def test_recovery_can_not_split_a_batch_with_exchanges() -> None:
    model, mb = new_model("gcn"), cooperative_batches(BATCH, OWNER, OWNERS)[0]
    with pytest.raises(ValueError, match=r"can't be split after an OOM error .* recover=None"):
        step(model, mb, X, forward=lambda mb, inputs: inputs.x, recover=Recovery())

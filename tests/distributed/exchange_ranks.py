"""Functions of ranks that exchange rows, beside torch's all-to-all, and of ranks that differ."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F

import workbench as wb
from tests.distributed.cooperative_setting import (
    Rows,
    X,
    Y,
    gathered,
    new_model,
    new_optimizer,
    new_sampler,
    owned_graph,
    owner_of,
    seeds_of,
    worst,
)
from workbench.distributed.agreement import check_ranks_agree
from workbench.distributed.row_exchange import all_to_all


def torch_oracle(config: Mapping[str, Any]) -> Rows:
    """Rows and their gradients beside torch's differentiable all-to-all; ranks without rows included."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for width in (3, 1):
            counts = [
                [(3 * sender + receiver) % 4 * (sender != 2) for receiver in range(size)] for sender in range(size)
            ]
            sent, received = counts[rank], [one[rank] for one in counts]
            x = torch.arange(5 * width).view(5, width).add(rank).to(dtype).requires_grad_()
            index = torch.arange(sum(sent)) * 3 % 5
            exchange = wb.Exchange(index, tuple(sent), tuple(received), torch.arange(sum(received)))
            block = wb.Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5 + sum(received), 0)
            fill = wb.exchangers(wb.MiniBatch(torch.arange(5), (block,), exchanges=(exchange,)))
            assert fill is not None
            out = fill[0](x)
            scale = torch.arange(out.numel()).view_as(out).to(dtype)
            (grad,) = torch.autograd.grad((out * scale).sum(), x)
            halo = out.new_empty(sum(received), width)
            halo = differentiable.all_to_all_single(halo, x[index], received, sent)
            theirs = torch.cat([x, halo])
            (their_grad,) = torch.autograd.grad((theirs * scale).sum(), x)
            equal = torch.equal(out, theirs) and torch.allclose(grad, their_grad, rtol=0, atol=0)
            yield {"equal": worst(float(not equal)) == 0.0, "received": sum(received)}


def any_dtype(config: Mapping[str, Any]) -> Rows:
    """All-to-all of rows of any dtype and shape."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.bool, torch.int32, torch.float16, torch.int64):
        for shape in ((), (2, 3), (0,)):
            rows = (torch.arange(size)[(slice(None), *[None] * len(shape))] + rank).expand(size, *shape).to(dtype)
            found = all_to_all(rows, [1] * size, [1] * size, None)
            expected = (torch.arange(size)[(slice(None), *[None] * len(shape))] + rank).expand(size, *shape).to(dtype)
            yield {"equal": bool(worst(float(not torch.equal(found, expected))) == 0.0)}


def disagreement(config: Mapping[str, Any]) -> Rows:
    """The error of ranks that were given different things, on every rank."""
    rank = dist.get_rank()
    same = {"owner": owner_of(2), "config": {"lr": 0.1, "fanouts": [1, 2]}}
    check_ranks_agree(same)
    other = {
        "owner": owner_of(2) + int(rank == 1),
        "config": {"lr": 0.1 * (1 + rank % 2), "fanouts": [1, 2], **({"extra": "x" * 99} if rank == 2 else {})},
    }
    try:
        check_ranks_agree(other)
        text = "agreed"
    except ValueError as error:
        text = str(error)
    yield {"text": text, "same": len(set(gathered(text))) == 1}


def unequal_parts(config: Mapping[str, Any]) -> Rows:
    """Ranks with different numbers of micro-batches."""
    owned, seeds = owned_graph(), seeds_of(dist.get_world_size())
    mb = wb.CooperativeSampler(new_sampler("labor", False), owned).sample(owned.graph, seeds)
    model = new_model("gcn")
    micro = [mb] * (1 + dist.get_rank() % 2)
    try:
        wb.cooperative_step(model, micro, X, Y, F.cross_entropy, new_optimizer(model))
    except ValueError as error:
        yield {"text": str(error)}

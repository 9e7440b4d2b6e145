"""Functions of ranks that exchange rows, beside torch's all-to-all, and of ranks that differ."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F

import workbench as wb
from tests.distributed.cooperative_setting import (
    GRAPH,
    Rows,
    X,
    Y,
    difference,
    gathered,
    gradients,
    new_model,
    new_optimizer,
    new_sampler,
    owned_graph,
    owner_of,
    seeds_of,
    worst,
)
from workbench.cooperative import sampler as exchangers
from workbench.distributed.group import all_to_all, check_ranks_agree, check_start


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
            exchange = wb.core.Exchange(index, tuple(sent), tuple(received), torch.arange(sum(received)))
            block = wb.Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5 + sum(received), 0)
            fill = wb.cooperative.exchangers(wb.MiniBatch(torch.arange(5), (block,), exchanges=(exchange,)))
            assert fill is not None
            out = fill[0](x)
            scale = torch.arange(out.numel()).view_as(out).to(dtype)
            (grad,) = torch.autograd.grad((out * scale).sum(), x)
            halo = out.new_empty(sum(received), width)
            world = dist.group.WORLD  # torch's default is the group that there was when its module was imported
            halo = differentiable.all_to_all_single(halo, x[index], received, sent, group=world)
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


def attention(config: Mapping[str, Any]) -> Rows:
    """A step of GAT that exchanges inputs, products, or what is fewer bytes, beside that of one process."""
    size, sampler = dist.get_world_size(), new_sampler("labor", False)
    owned, seeds, plain = owned_graph(), seeds_of(size), new_model("gat")
    expected = wb.train_step(plain, sampler.sample(GRAPH, seeds), X, Y, F.cross_entropy, new_optimizer(plain))
    mb = wb.cooperative.CooperativeSampler(sampler, owned).sample(owned.graph, seeds)
    halo = [len(exchange.halo_ids) for exchange in mb.exchanges or ()]
    sent = [sum(exchange.send_counts) for exchange in mb.exchanges or ()]
    for products in config["products"]:
        model, traffic, multiplied = new_model("gat"), wb.Traffic(), []
        for layer in model.layers:  # pyright: ignore[reportGeneralTypeIssues]
            layer.exchanges_products = products
            layer.fc.register_forward_hook(lambda _, given, out, found=multiplied: found.append(len(out)))
        rows = wb.distributed.OwnedRows.of(X, owner_of(size))
        loss = wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, new_optimizer(model), traffic=traffic)
        yield {
            "loss": worst(abs(float(loss - expected)) / float(expected)),
            "gradients": worst(difference(gradients(model), gradients(plain))),
            "forward": traffic.row()["rank_rows_bytes"] / 8,
            "backward": traffic.row()["rank_gradients_bytes"] / 8,
            "halo_0": halo[0],
            "halo_1": halo[1],
            "sent_0": sent[0],
            "sent_1": sent[1],
            "foreign_0": multiplied[0] - mb.num_inputs,
            "foreign_1": multiplied[1] - mb.blocks[0].num_dst,
        }


def overlap(config: Mapping[str, Any]) -> Rows:
    """The order in which a step begins exchanges, multiplies the rows of destinations, and waits, forward and back."""
    seen: list[str] = []
    begin = exchangers.start_all_to_all

    def logged(*args: Any, **kwargs: Any) -> Any:
        seen.append("start")
        received, wait = begin(*args, **kwargs)
        return received, lambda: (seen.append("wait"), wait())

    owned, model = owned_graph(), new_model("sage-mean")
    for layer in model.layers:  # pyright: ignore[reportGeneralTypeIssues]
        layer.fc_self.register_forward_hook(lambda *_: seen.append("own"))
        layer.fc_self.weight.register_hook(lambda _: seen.append("gradient of own"))
    seeds = seeds_of(dist.get_world_size())
    mb = wb.cooperative.CooperativeSampler(new_sampler("labor", False), owned).sample(owned.graph, seeds)
    rows = wb.distributed.OwnedRows.of(X, owner_of(dist.get_world_size()))
    with patch.object(exchangers, "start_all_to_all", logged):
        wb.cooperative.train_step(model, mb, rows, Y, F.cross_entropy, new_optimizer(model))
    yield {"seen": ", ".join(seen), "same": len(set(gathered(", ".join(seen)))) == 1}


def disagreement(config: Mapping[str, Any]) -> Rows:
    """The error of ranks that were given different things, on every rank."""
    rank = dist.get_rank()
    same = {"owner": owner_of(2), "config": {"lr": 0.1, "fanouts": [1, 2]}}
    check_ranks_agree(same)
    other = {
        "owner": owner_of(2) + int(rank == 1),
        "config": {"lr": 0.1 * (1 + rank % 2), "fanouts": [1, 2], **({"extra": "x" * 99} if rank == 2 else {})},
    }
    text = refusal(lambda: check_ranks_agree(other))
    yield {"text": text, "same": len(set(gathered(text))) == 1}


def other_data(config: Mapping[str, Any]) -> Rows:
    """The error of ranks whose features differ in one bit, and that of ranks with the same data."""
    x = X.clone()
    x.view(torch.int64)[3, 1] ^= int(dist.get_rank() == 2)
    graph = {"indptr": GRAPH.indptr, "indices": GRAPH.indices}
    same, other = (refusal(lambda one=one: check_ranks_agree({"graph": graph, "x": one})) for one in (X, x))
    yield {"same": same, "other": other}


def other_code(config: Mapping[str, Any]) -> Rows:
    """The error of ranks whose package has another helper file on the last rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    folder = Path(config["folder"], f"of_rank_{rank}")
    (folder / "rankcode").mkdir(parents=True)
    for name, text in {"__init__": "", "run": "def run(config): ...", "helper": f"LAST = {rank == size - 1}"}.items():
        (folder / "rankcode" / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    invalidate_caches()
    function = import_module("rankcode.run").run
    sys.path.remove(str(folder))
    yield {"text": refusal(lambda: check_start({}, "rankcode.run:run", function))}


def refusal(check: Callable[[], None]) -> str:
    """What a check says."""
    try:
        check()
    except ValueError as error:
        return str(error)
    return "agreed"


def unequal_parts(config: Mapping[str, Any]) -> Rows:
    """Ranks with different numbers of micro-batches."""
    owned, seeds = owned_graph(), seeds_of(dist.get_world_size())
    mb = wb.cooperative.CooperativeSampler(new_sampler("labor", False), owned).sample(owned.graph, seeds)
    model = new_model("gcn")
    micro = [mb] * (1 + dist.get_rank() % 2)
    try:
        wb.cooperative.train_step(model, micro, X, Y, F.cross_entropy, new_optimizer(model))
    except ValueError as error:
        yield {"text": str(error)}

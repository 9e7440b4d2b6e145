"""Differentiable exchanges: fill the halo of each layer of a cooperative batch, and return its gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.core.exchange import Exchange
from workbench.core.minibatch import MiniBatch
from workbench.core.traffic import Traffic
from workbench.distributed.group import Group, get_world_size
from workbench.distributed.progress import in_phase
from workbench.distributed.row_exchange import all_to_all
from workbench.kernels.gather import gather_rows


def exchangers(
    mb: MiniBatch, group: Group = None, traffic: Traffic | None = None
) -> list[Callable[[Tensor], Tensor]] | None:
    """Functions that fill the halo of each layer, for a model's `exchanges=`: one line for both kinds of minibatching.

        out = model(mb.blocks, x, node_ids=mb.node_ids, step=mb.step, exchanges=wb.exchangers(mb, group))

    Forward, each function appends the rows of other ranks to those that this rank owns; backward, the gradients of
    these rows return to their owners, which add them to their own. Both are collective, so every rank of the group
    calls them equally often and in the same order, even if it neither sends nor receives any row.

    Args:
        mb: a batch of `workbench.CooperativeSampler`, or an independent one.
        group: the ranks; None for all.
        traffic: counts the rows and the gradients of rows that this rank receives from others, as "rank".

    Returns:
        One function per layer, from [owned, …] to [owned + halo, …]; None for a batch without exchanges.

    Raises:
        ValueError: the batch was sampled by another number of ranks.

    Source: Cooperative Minibatching in GNNs, Algorithm 1, the redistributions S → S̃ and back.
    """
    if mb.exchanges is None:
        return None
    num_ranks = get_world_size(group)
    for exchange in mb.exchanges:
        if len(exchange.send_counts) != num_ranks:
            raise ValueError(
                f"the batch exchanges rows between {len(exchange.send_counts)} ranks, but the group has {num_ranks}; "
                "pass the group that it was sampled in"
            )
    if num_ranks == 1:
        return [_identity] * len(mb.exchanges)
    phases = ["features", *["forward"] * len(mb.exchanges)]
    return [partial(_fill, e, group, traffic, phase) for e, phase in zip(mb.exchanges, phases, strict=False)]


def _identity(h: Tensor) -> Tensor:
    """Without other ranks there is no halo."""
    return h


def _fill(exchange: Exchange, group: Group, traffic: Traffic | None, phase: str, h: Tensor) -> Tensor:
    return _FillHalo.apply(h, exchange, group, traffic, phase)  # pyright: ignore[reportReturnType]


class _FillHalo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, exchange: Exchange, group: Group, traffic: Traffic | None, phase: str) -> Tensor:
        ctx.exchange, ctx.group, ctx.traffic = exchange, group, traffic
        rows = h.new_empty(len(h) + len(exchange.halo_ids), *h.shape[1:])
        rows[: len(h)] = h
        halo = rows[len(h) :]
        with in_phase(phase):
            sent = gather_rows(h.detach(), exchange.send_index)
            all_to_all(sent, exchange.send_counts, exchange.receive_counts, group, out=halo)
        _count(traffic, "rows", halo)
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        exchange: Exchange = ctx.exchange
        num_owned = len(grad) - len(exchange.halo_ids)
        with in_phase("backward"):
            returned = all_to_all(grad[num_owned:], exchange.receive_counts, exchange.send_counts, ctx.group)
        _count(ctx.traffic, "gradients", returned)
        return grad[:num_owned].index_add(0, exchange.send_index, returned), None, None, None, None


def _count(traffic: Traffic | None, item: str, received: Tensor) -> None:
    if traffic is not None:
        traffic.add("rank", item, len(received), received.nbytes)

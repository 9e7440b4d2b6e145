"""`CooperativeSampler`: every rank samples the rows that it owns of one global batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.cooperative.sampling import sample_owned
from workbench.core.exchange import Exchange
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, exchange_ids, get_world_size, start_all_to_all
from workbench.distributed.owned import OwnedSampler
from workbench.distributed.progress import in_phase
from workbench.kernels.gather import gather_rows
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import Sampler, require_row_independence


class CooperativeSampler(OwnedSampler):
    """Samples a global batch on all ranks together: each draws the in-edges of its own nodes, and asks the owners.

        owned = wb.sampling.OwnedGraph.of(graph, owner, rank, size)
        sampler = wb.cooperative.CooperativeSampler(wb.LaborSampler([10, 10, 10]), owned)
        for step, mb in wb.batches(owned.graph, data.train_idx, sampler=sampler, batch_size=ranks * 1024): …

    Every rank passes the same seeds; the union of the ranks' batches is the batch that one process would sample, bit
    for bit. `sample` is collective. To overlap it with training (`workbench.prefetch`), pass a group of its own,
    `torch.distributed.new_group()`: collectives of two threads must not share one.

    Args:
        sampler: draws the rows; each must depend on its node alone (`rows_are_independent`), or the sampler exchanges
            what it needs with the owners of nodes (`draw_owned`), as random walks, LABOR-i and LABOR-* do.
        owned: the in-edges of this rank's nodes, and the owner of every node.
        group: the ranks; None for all.
        traffic: counts the ids that other ranks ask for, as "rank".

    Raises:
        ValueError: the rows of `sampler` depend on each other, or `owned` belongs to another rank.

    Source: Cooperative Minibatching in GNNs, section 3.1 and Algorithm 1.
    """

    def __init__(
        self, sampler: Sampler, owned: OwnedGraph, group: Group = None, *, traffic: Traffic | None = None
    ) -> None:
        if not hasattr(sampler, "draw_owned"):
            require_row_independence(sampler, "cooperative sampling")
        super().__init__(sampler, owned, group, traffic=traffic)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample this rank's part of a batch; collective.

        Args:
            graph: `owned.graph`.
            seeds: int64 or int32, the seeds of the *global* batch, the same on all ranks; or, of each rank, its own
                seeds alone.
            step: number of the batch, the same on all ranks.
            exclude_edges: int64 or int32, raw-graph edge ids that must not be drawn; a rank passes over those that are
                not its own.

        Returns:
            A batch with `exchanges`, whose nodes this rank owns; possibly without seeds.

        Raises:
            ValueError: another graph, or seeds that occur twice.
            TypeError: ids of another dtype.
            IndexError: an id out of range.
        """
        self._check(graph)
        with in_phase("sampling"):
            steps = sample_owned(self._owned, seeds, sampler=self._sampler, step=step, exclude_edges=exclude_edges)
            try:
                asked = next(steps)
                while True:
                    asked = steps.send(exchange_ids(asked, self._group, self._traffic))
            except StopIteration as done:
                return done.value


def exchangers(
    mb: MiniBatch, group: Group = None, traffic: Traffic | None = None
) -> list[Callable[[Tensor], Tensor]] | None:
    """Functions that fill the halo of each layer, for a model's `exchanges=`: one line for both kinds of minibatching.

        out = model(mb.blocks, x, node_ids=mb.node_ids, step=mb.step, exchanges=wb.cooperative.exchangers(mb, group))

    Forward, each function appends the rows of other ranks to those that this rank owns; backward, the gradients of
    these rows return to their owners, which add them to their own. Both are collective, so every rank of the group
    calls them equally often and in the same order, even if it neither sends nor receives any row.

    Args:
        mb: a batch of `workbench.cooperative.CooperativeSampler`, or an independent one.
        group: the ranks; None for all.
        traffic: counts the rows and the gradients of rows that this rank receives from others, as "rank".

    Returns:
        One function per layer, from [owned, …] to [owned + halo, …]; None for a batch without exchanges. Layers may
        begin the exchange and finish it later (`HaloExchange.start`).

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
    return [HaloExchange(e, group, traffic, phase) for e, phase in zip(mb.exchanges, phases, strict=False)]


def _identity(h: Tensor) -> Tensor:
    """Without other ranks there is no halo."""
    return h


class HaloExchange:
    """Fills the halo of one layer when it is called; `start` lets the layer work on its own rows meanwhile.

    Args:
        exchange: rows to send and to receive.
        group: the ranks.
        traffic: counts what this rank receives.
        phase: of the exchange, for errors.
    """

    def __init__(self, exchange: Exchange, group: Group, traffic: Traffic | None, phase: str) -> None:
        self.exchange, self.group, self.traffic, self.phase = exchange, group, traffic, phase

    def __call__(self, h: Tensor) -> Tensor:
        """Append the rows of other ranks to this rank's [owned, …]."""
        return self.start(h, 0)[1]()

    def start(self, h: Tensor, num_dst: int) -> tuple[Tensor, Callable[[], Tensor]]:
        """Begin to exchange rows; in the backward pass, gradients return while what was computed meanwhile is reversed.

        Args:
            h: [owned, …].
            num_dst: number of destinations, the first of the rows.

        Returns:
            The destinations' rows, and a function that waits for the others and returns [owned + halo, …].
        """
        pending = _Pending(self)
        rows, h_dst = _Start.apply(h, num_dst, pending)  # pyright: ignore[reportGeneralTypeIssues]
        return h_dst, lambda: _Finish.apply(rows, pending)  # pyright: ignore[reportReturnType]


class _Pending:
    """One use of an exchange: rows, and later gradients, that travel."""

    def __init__(self, halo: HaloExchange) -> None:
        self._halo, self.num_halo, self.send_index = halo, len(halo.exchange.halo_ids), halo.exchange.send_index
        self._wait: Callable[[], Any] | None = None
        self.returned = torch.empty(0)

    @property
    def travels(self) -> bool:
        return self._wait is not None

    def send(self, rows: Tensor, halo: Tensor) -> None:
        exchange = self._halo.exchange
        with in_phase(self._halo.phase):
            sent = gather_rows(rows, self.send_index)
            _, self._wait = start_all_to_all(
                sent, exchange.send_counts, exchange.receive_counts, self._halo.group, out=halo
            )
        self._count("rows", halo)

    def send_back(self, grad: Tensor) -> None:
        exchange = self._halo.exchange
        with in_phase("backward"):
            self.returned, self._wait = start_all_to_all(
                grad, exchange.receive_counts, exchange.send_counts, self._halo.group
            )
        self._count("gradients", self.returned)

    def finish(self, phase: str = "") -> None:
        wait, self._wait = self._wait, None
        assert wait is not None, "nothing is pending"
        with in_phase(phase or self._halo.phase):
            wait()

    def _count(self, item: str, received: Tensor) -> None:
        if self._halo.traffic is not None:
            self._halo.traffic.add("rank", item, len(received), received.nbytes)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, num_dst: int, pending: _Pending) -> tuple[Tensor, Tensor]:
        ctx.pending = pending
        rows = h.new_empty(len(h) + pending.num_halo, *h.shape[1:])
        rows[: len(h)] = h
        pending.send(h.detach(), rows[len(h) :])
        h_dst = h[:num_dst]
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(h_dst)
        return rows, h_dst

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_dst: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        pending: _Pending = ctx.pending
        if not pending.travels:  # nothing that the layer computed depends on the rows, such as an LSTM without edges
            pending.send_back(grad[len(grad) - pending.num_halo :])
        pending.finish("backward")
        owned = grad[: len(grad) - pending.num_halo].index_add(0, pending.send_index, pending.returned)
        pending.returned = torch.empty(0)
        owned[: len(grad_dst)] += grad_dst
        return owned, None, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, pending: _Pending) -> Tensor:
        ctx.pending = pending
        pending.finish()
        return rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.pending.send_back(grad[len(grad) - ctx.pending.num_halo :])
        return grad, None

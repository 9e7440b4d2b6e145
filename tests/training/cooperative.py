"""A batch distributed over owners of nodes, and threads of one process that exchange rows as these owners would."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.exchange import Exchange
from workbench.core.minibatch import MiniBatch

T = TypeVar("T")


def cooperative_batches(mb: MiniBatch, owner: Tensor, num_owners: int) -> list[MiniBatch]:
    """Distribute a batch: each owner gets its nodes' rows; sources of other owners are its halo, grouped by owner.

    Args:
        mb: the batch.
        owner: int64 [num_nodes], owner of each node by raw-graph id.
        num_owners: number of owners.
    """
    owned = [(owner[mb.node_ids] == p).nonzero()[:, 0] for p in range(num_owners)]
    layers = [_distributed(block, owned, mb.node_ids) for block in mb.blocks]
    return [
        MiniBatch(
            mb.node_ids[owned[p]],
            tuple(blocks[p] for blocks, _ in layers),
            exchanges=tuple(exchanges[p] for _, exchanges in layers),
            step=mb.step,
        ).validate()
        for p in range(num_owners)
    ]


def _distributed(block: Block, owned: Sequence[Tensor], node_ids: Tensor) -> tuple[list[Block], list[Exchange]]:
    """Each owner's block and exchange of one layer; `owned` contains the batch's local ids in increasing order."""
    ranks = range(len(owned))
    edges = [_edges(block, owned[p][owned[p] < block.num_dst]) for p in ranks]
    used = [set(block.indices[edges[p]].tolist()) for p in ranks]
    halo = [[sorted(used[p] & set(owned[q].tolist())) if q != p else [] for q in ranks] for p in ranks]
    received = [list(chain(*halo[p])) for p in ranks]
    sources = [owned[p][owned[p] < block.num_src].tolist() + received[p] for p in ranks]
    local = [{s: position for position, s in enumerate(sources[p])} for p in ranks]
    blocks = [_block(block, owned[p], edges[p], local[p]) for p in ranks]
    exchanges = [
        Exchange(
            send_index=torch.tensor([local[p][s] for q in ranks for s in halo[q][p]], dtype=torch.int64),
            send_counts=tuple(len(halo[q][p]) for q in ranks),
            receive_counts=tuple(len(halo[p][q]) for q in ranks),
            halo_ids=node_ids[torch.tensor(received[p], dtype=torch.int64)],
        )
        for p in ranks
    ]
    return blocks, exchanges


def _edges(block: Block, rows: Tensor) -> Tensor:
    """Positions of the edges of some destinations."""
    is_row = torch.zeros(block.num_dst, dtype=torch.bool)
    is_row[rows] = True
    return is_row[block.destinations.long()].nonzero()[:, 0]


def _block(block: Block, owned: Tensor, edges: Tensor, local: dict[int, int]) -> Block:
    degrees = block.in_degrees()[owned[owned < block.num_dst]]
    return Block(
        torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)]),
        torch.tensor([local[s] for s in block.indices[edges].tolist()], dtype=torch.int32),
        len(local),
        len(degrees),
        edge_weight=None if block.edge_weight is None else block.edge_weight[edges],
    )


class Transport:
    """All-to-all exchange between the threads of `run`, one per owner."""

    def __init__(self, num_owners: int) -> None:
        self.num_owners = num_owners
        self._barrier = threading.Barrier(num_owners, timeout=20)
        self._box: dict[tuple[int, int], Any] = {}

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Call `work` with the number of each owner, each in its own thread."""

        def guarded(rank: int) -> T:
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(self.num_owners) as pool:
            return list(pool.map(guarded, range(self.num_owners)))

    def swap(self, rank: int, pieces: Sequence[T]) -> list[T]:
        """Send one piece to every owner; return what every owner sent to this one."""
        for receiver, piece in enumerate(pieces):
            self._box[rank, receiver] = piece
        self._barrier.wait()
        received = [self._box[sender, rank] for sender in range(self.num_owners)]
        self._barrier.wait()  # nobody overwrites a piece before it is read
        return received

    def sum(self, rank: int, value: float) -> float:
        return sum(self.swap(rank, [value] * self.num_owners))

    def fill(self, rank: int, exchange: Exchange, h: Tensor) -> Tensor:
        """Append the halo to the owned rows; the backward pass returns its gradients to their owners."""
        return _FillHalo.apply(h, self, rank, exchange)  # pyright: ignore[reportReturnType]


class _FillHalo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, transport: Transport, rank: int, exchange: Exchange) -> Tensor:
        ctx.transport, ctx.rank, ctx.exchange = transport, rank, exchange
        return torch.cat([h, *transport.swap(rank, h[exchange.send_index].split(exchange.send_counts))])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        owned = grad.shape[0] - sum(ctx.exchange.receive_counts)
        returned = ctx.transport.swap(ctx.rank, grad[owned:].split(ctx.exchange.receive_counts))
        return grad[:owned].index_add(0, ctx.exchange.send_index, torch.cat(returned)), None, None, None

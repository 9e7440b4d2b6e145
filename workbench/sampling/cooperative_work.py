"""The work of a global batch that several ranks sample, by rank and layer, and what they exchange.

Balın, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", tables 1 and 7.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.block import Block
from workbench.core.errors import check_at_least, check_type
from workbench.core.minibatch import MiniBatch
from workbench.kernels.id_index import IdIndex

ID_BYTES = 8


class LayerWork(NamedTuple):
    """What one rank counts in one layer, hop l from the seeds.

    Args:
        rank: number of the rank.
        hop: l, 1 for the sources of the seeds, up to the number of layers for the inputs.
        destinations: |S_p^{l-1}|, nodes whose rows the rank draws and computes.
        owned: |S_p^l|, nodes that the rank has the values of before the exchange of rows.
        needed: |S̃_p^l|, its destinations and the sources of its edges: what its layer reads after the exchange.
        halo: c|S̃_p^l|, those of them that other ranks own: ids that it sends, and rows that it receives.
        sent: rows that it sends, one per receiver; as many ids as it is asked for.
        edges: drawn edges.
        cross_edges: drawn edges from nodes of other ranks.
        received_from: rows that it receives, by sender.
        row_bytes: size of a row.
    """

    rank: int
    hop: int
    destinations: int
    owned: int
    needed: int
    halo: int
    sent: int
    edges: int
    cross_edges: int
    received_from: tuple[int, ...]
    row_bytes: int

    def row(self) -> dict[str, int]:
        """Return the counts as a table row, with bytes of the ids and rows that cross links."""
        counts = {name: value for name, value in self._asdict().items() if name not in ("received_from", "row_bytes")}
        return counts | {
            "id_bytes": ID_BYTES * self.halo,
            "received_bytes": self.row_bytes * self.halo,
            "sent_bytes": self.row_bytes * self.sent,
        }


@dataclass(frozen=True)
class CooperativeWork:
    """The work of all ranks.

    Args:
        layers: by rank, and hop by hop within a rank.
        distinct: |S^l| for every hop l: nodes of all ranks, each counted once.
    """

    layers: tuple[LayerWork, ...]
    distinct: tuple[int, ...]

    @property
    def num_ranks(self) -> int:
        return len(self.layers) // max(1, len(self.distinct))

    @property
    def links(self) -> Tensor:
        """Rows by link: int64 [hops, ranks, ranks], those of hop l that rank p receives from q at [l - 1, p, q]."""
        counts = torch.tensor([layer.received_from for layer in self.layers], dtype=torch.int64)
        return counts.view(self.num_ranks, len(self.distinct), self.num_ranks).transpose(0, 1)

    @property
    def link_bytes(self) -> Tensor:
        """Bytes by link, of rows in forward passes: int64 [ranks, ranks], those that rank p receives from q."""
        sizes = torch.tensor([layer.row_bytes for layer in self.layers[: len(self.distinct)]], dtype=torch.int64)
        return (self.links * sizes[:, None, None]).sum(0)

    @property
    def duplication(self) -> float:
        """Input nodes of all ranks per distinct input node: 1 for cooperating ranks."""
        inputs = sum(layer.owned for layer in self.layers if layer.hop == len(self.distinct))
        return inputs / self.distinct[-1] if self.distinct[-1] else 1.0

    def rows(self) -> list[dict[str, int]]:
        """Return a table row per rank and hop."""
        return [layer.row() for layer in self.layers]

    def row(self) -> dict[str, float]:
        """Return means over the ranks as one table row: `owned_3`, `halo_3`, `needed_3`, `edges_3`, … by hop.

        `edges_l` are the edges whose sources are at hop l; `imbalance` is the largest number of edges of a rank,
        divided by the mean.
        """
        row: dict[str, float] = {}
        for hop in range(len(self.distinct), 0, -1):
            ranks = [layer for layer in self.layers if layer.hop == hop]
            for name in ("owned", "halo", "needed", "edges"):
                row[f"{name}_{hop}"] = sum(getattr(layer, name) for layer in ranks) / len(ranks)
        edges = torch.tensor([layer.edges for layer in self.layers]).view(self.num_ranks, -1).sum(1).double()
        crossing = sum(layer.cross_edges for layer in self.layers)
        row["cross_edge_share"] = crossing / max(1.0, float(edges.sum()))
        row["imbalance"] = float(edges.max() / edges.mean()) if edges.sum() else 1.0
        return row | {"duplication": self.duplication}


def cooperative_work(batches: Sequence[MiniBatch], *, row_bytes: int | Sequence[int] = 0) -> CooperativeWork:
    """Count the work of a global batch that several ranks sampled, and what they exchange.

    Args:
        batches: one per rank: `cooperative_batches`, or `independent_batches`, which exchange nothing.
        row_bytes: bytes per input row of a layer: one number for all layers, or one per layer, input layer first.

    Returns:
        The counts.

    Raises:
        TypeError: `batches` contains anything but batches.
        ValueError: no batches, batches of different numbers of layers, or another number of `row_bytes`.

    Source: Cooperative Minibatching, tables 1 and 7.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> batches = wb.cooperative_batches(path, torch.tensor([3, 1]), sampler=wb.FullNeighborSampler(1),
    ...                                  owner=torch.tensor([0, 1, 0, 1]), num_ranks=2)
    >>> wb.cooperative_work(batches).links.tolist()
    [[[0, 0], [2, 0]]]
    """
    batches = list(batches)
    for position, mb in enumerate(batches):
        check_type(f"batches[{position}]", mb, MiniBatch, "pass one MiniBatch per rank")
    lengths = {len(mb.blocks) for mb in batches}
    if len(lengths) != 1:
        raise ValueError(f"batches have {sorted(lengths)} layers; pass the batches of all ranks, from one sampler")
    num_layers = lengths.pop()
    sizes = [row_bytes] * num_layers if isinstance(row_bytes, int) else list(row_bytes)
    if len(sizes) != num_layers:
        raise ValueError(f"row_bytes has {len(sizes)} sizes for {num_layers} layers; pass one per layer, or one number")
    for size in sizes:
        check_at_least("row_bytes", size, 0)
    layers = [layer for rank, mb in enumerate(batches) for layer in _layers(rank, mb, len(batches), sizes)]
    return CooperativeWork(tuple(layers), tuple(_distinct(batches)))


def _layers(rank: int, mb: MiniBatch, num_ranks: int, row_bytes: Sequence[int]) -> Iterator[LayerWork]:
    for hop in range(1, len(mb.blocks) + 1):
        number = len(mb.blocks) - hop
        block, owned = mb.blocks[number], _num_owned(mb, hop)
        exchange = mb.exchanges[number] if mb.exchanges else None
        received = exchange.receive_counts if exchange else (0,) * num_ranks
        yield LayerWork(
            rank,
            hop,
            destinations=block.num_dst,
            owned=owned,
            needed=_num_used(block),
            halo=sum(received),
            sent=sum(exchange.send_counts) if exchange else 0,
            edges=block.num_edges,
            cross_edges=int((block.indices >= owned).sum()),
            received_from=received,
            row_bytes=row_bytes[number],
        )


def _num_owned(mb: MiniBatch, hop: int) -> int:
    """|S^l|: the destinations of the next layer towards the inputs, or the inputs."""
    return mb.num_inputs if hop == len(mb.blocks) else mb.blocks[len(mb.blocks) - hop - 1].num_dst


def _num_used(block: Block) -> int:
    """Number of destinations and sources of edges; other sources are there because other ranks ask for them."""
    used = torch.zeros(block.num_src, dtype=torch.bool, device=block.device)
    used[: block.num_dst] = True
    used[block.indices.long()] = True
    return int(used.sum())


def _distinct(batches: Sequence[MiniBatch]) -> Iterator[int]:
    for hop in range(1, len(batches[0].blocks) + 1):
        ids = [mb.node_ids[: _num_owned(mb, hop)] for mb in batches]
        limit = 1 + max((int(v.max()) for v in ids if len(v)), default=-1)
        yield len(IdIndex(ids, limit).ids)
